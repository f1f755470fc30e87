"""What assignors read and write: frozen values, topics named by anything that can be sorted (names or ids)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Generic, TypeAlias, TypeVar

TopicT = TypeVar("TopicT", bound=str | bytes)
"""How topics are named: clients use names, the server uses ids."""

NO_GENERATION: Final = -1

Share: TypeAlias = Mapping[TopicT, tuple[int, ...]]
"""Partitions by topic, ascending; a topic without any is left out. One tuple per topic, never an object per partition:
a group of a million partitions must fit. Nobody changes a share after it was given away, so an assignor may return the
very share that a member owned before."""

Shares: TypeAlias = Mapping[str, Mapping[TopicT, tuple[int, ...]]]
"""The share of every member, by member id. Mappings have no order that means anything: whoever writes bytes sorts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSpec(Generic[TopicT]):
    """What an assignor knows of a member."""

    topics: frozenset[TopicT]
    """Its subscription. Members with the same one should share one object: comparing it is then free."""
    instance_id: str | None = None
    """Name of a static member, which decides its turn instead of the member id."""
    rack_id: str | None = None
    owned: Mapping[TopicT, tuple[int, ...]] = field(default_factory=dict)
    """What it had before, as it says itself, so claims of members may contradict each other. In the server: its
    previous target."""
    generation: int = NO_GENERATION
    """Generation in which it got `owned`: where two claim the same partition, the newer one is believed."""


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """What an assignor knows of a topic."""

    partition_count: int
    racks: tuple[frozenset[str], ...] = ()
    """For each partition the racks that have a replica of it; shorter or empty where that is not known."""
