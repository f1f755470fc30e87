"""Changes of the catalog, as frozen values."""

from __future__ import annotations

from dataclasses import dataclass

from partition_log.catalog.state import Topic


@dataclass(frozen=True, slots=True)
class TopicCreated:
    """The topic exists from now on."""

    topic: Topic


@dataclass(frozen=True, slots=True)
class TopicDeleted:
    """The topic of this name does not exist any more."""

    name: str


@dataclass(frozen=True, slots=True)
class OrdinalsAllocated:
    """Every ordinal below this one is given away, for ever."""

    next_ordinal: int


CatalogRecord = TopicCreated | TopicDeleted | OrdinalsAllocated
