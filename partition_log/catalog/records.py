"""Changes of the catalog, as frozen values."""

from __future__ import annotations

from msgspec import Struct

from partition_log.catalog.state import Topic


class TopicCreated(Struct, frozen=True):
    """The topic exists from now on."""

    topic: Topic


class TopicDeleted(Struct, frozen=True):
    """The topic of this name does not exist any more."""

    name: str


class OrdinalsAllocated(Struct, frozen=True):
    """Every ordinal below this one is given away, for ever."""

    next_ordinal: int


CatalogRecord = TopicCreated | TopicDeleted | OrdinalsAllocated
