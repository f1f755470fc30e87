"""Input and output of assignors: frozen values, with topics named by anything that can be sorted (names or ids)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Generic, TypeAlias, TypeVar

TopicT = TypeVar("TopicT", bound=str | bytes)
"""Type of topic names: clients use names, the server uses ids."""

NO_GENERATION: Final = -1

Share: TypeAlias = Mapping[TopicT, tuple[int, ...]]
"""Partitions by topic, ascending; a topic without any is left out. One tuple per topic, never an object per partition:
a group of a million partitions must fit. A share is never changed after it was returned, so an assignor may return the
same object that a member owned before."""

Shares: TypeAlias = Mapping[str, Mapping[TopicT, tuple[int, ...]]]
"""The share of every member, by member id. The order of the mappings means nothing: code that encodes them sorts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSpec(Generic[TopicT]):
    """Input of an assignor about one member."""

    topics: frozenset[TopicT]
    """Subscription of the member. Members with the same one should share one object: comparing it is then free."""
    instance_id: str | None = None
    """Name of a static member, which decides its turn instead of the member id."""
    rack_id: str | None = None
    owned: Mapping[TopicT, tuple[int, ...]] = field(default_factory=dict)
    """Previous partitions. Clients report their own, so claims of members may contradict each other. In the server: the
    previous target."""
    generation: int = NO_GENERATION
    """Generation in which the member got `owned`. If two claim the same partition, the newer one is believed."""


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """Input of an assignor about one topic."""

    partition_count: int
    racks: tuple[frozenset[str], ...] = ()
    """Racks with a replica, for each partition; shorter or empty if they are not known."""
