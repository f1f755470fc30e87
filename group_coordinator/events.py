"""What happened to groups and their members, of either kind, for whoever counts it or writes it down. Told once it is
durable."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from group_coordinator.state import GroupKind


class LeaveReason(StrEnum):
    """Why somebody is a member no more."""

    LEAVE = "leave"
    """It said so, or an administrator did."""
    SESSION = "session"
    """Nothing was heard of it for its session timeout."""
    REBALANCE = "rebalance"
    """It took longer than its rebalance timeout: to join again, or to give up what it had to."""
    SYNC = "sync"
    """It joined a generation and never asked for its assignment."""
    FENCED = "fenced"
    """A newer member came with its instance id."""
    SIZE = "size"
    """The group has more members than it may have."""


@dataclass(frozen=True, slots=True)
class GroupCreated:
    """Somebody joined a group that was not there, or committed offsets of one."""

    group_id: str
    kind: GroupKind


@dataclass(frozen=True, slots=True)
class GroupRemoved:
    """The group is gone: somebody deleted it, or it had neither members nor offsets."""

    group_id: str
    kind: GroupKind
    is_deleted: bool
    """By somebody who asked for it."""


@dataclass(frozen=True, slots=True)
class MemberJoined:
    """A new member; one that was told to come again with an id is not one yet."""

    group_id: str
    kind: GroupKind
    member_id: str


@dataclass(frozen=True, slots=True)
class MemberLeft:
    """Somebody is a member no more."""

    group_id: str
    kind: GroupKind
    member_id: str
    reason: LeaveReason


@dataclass(frozen=True, slots=True)
class RebalanceStarted:
    """The group needs a new assignment."""

    group_id: str
    kind: GroupKind
    cause: str
    """For people."""


@dataclass(frozen=True, slots=True)
class RebalanceCompleted:
    """Every member can have its part of the new assignment, or nobody is left."""

    group_id: str
    kind: GroupKind
    generation: int
    member_count: int
    elapsed_ms: int
    """Since it started; wall time."""


@dataclass(frozen=True, slots=True)
class RebalanceFailed:
    """A rebalance must begin again before it was completed."""

    group_id: str
    kind: GroupKind
