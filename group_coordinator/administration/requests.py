"""Requests of administrators about groups, and the answers, as frozen values."""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct

from coordinator_protocol.errors import CoordinatorError, Refused
from group_coordinator.state import OfGroup


class GroupFilter(Struct, frozen=True):
    """Filter of a listing of groups. Case and surrounding space of names do not matter; an empty set means all."""

    states: frozenset[str] = frozenset()
    kinds: frozenset[str] = frozenset()


class ListedGroup(NamedTuple):
    """One group in a listing."""

    group_id: str
    protocol_type: str
    state_name: str
    kind: str


class DescribedMember(Struct, frozen=True):
    """One member of a classic group."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class DescribedGroup(OfGroup, frozen=True):
    """One classic group as it is on disk, or the refusal to show it.

    Protocol name, metadata and assignments are shown of a Stable group only: during a rebalance they are changing (spec
    groups 4.8).
    """

    state_name: str
    refusal: Refused | None = None
    protocol_type: str = ""
    protocol_name: str = ""
    generation_id: int = 0
    leader: str = ""
    members: tuple[DescribedMember, ...] = ()


class DeletedGroup(OfGroup, frozen=True):
    """Result for one group of a DeleteGroups."""

    refusal: CoordinatorError | None = None


class AlterGroupConfig(OfGroup, frozen=True, kw_only=True):
    """Request to change settings of one group, which need not exist."""

    wanted: tuple[tuple[str, int | str], ...]
    """Names and values: numbers, or the words of a setting that has words."""
    unset: frozenset[str]
    """Settings that return to the server's value."""
    validate_only: bool = False
