"""What happened to groups of all kinds and their members, as the metrics and the log are told it once it is
durable."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

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


class GroupCreated(Struct, frozen=True):
    """Somebody joined a group that was not there, or committed offsets of one."""

    group_id: str
    kind: GroupKind


class GroupRemoved(Struct, frozen=True):
    """The group is gone: somebody deleted it, or it had neither members nor offsets."""

    group_id: str
    kind: GroupKind
    is_deleted: bool
    """True if a caller asked for it; False if it expired."""


class MemberJoined(Struct, frozen=True):
    """A new member; one that was told to come again with an id is not one yet."""

    group_id: str
    kind: GroupKind
    member_id: str


class MemberLeft(Struct, frozen=True):
    """Somebody is a member no more."""

    group_id: str
    kind: GroupKind
    member_id: str
    reason: LeaveReason


class RebalanceStarted(Struct, frozen=True):
    """The group needs a new assignment."""

    group_id: str
    kind: GroupKind
    cause: str
    """Why, in words for people."""


class RebalanceCompleted(Struct, frozen=True):
    """Every member can have its part of the new assignment, or nobody is left."""

    group_id: str
    kind: GroupKind
    generation: int
    member_count: int
    elapsed_ms: int
    """Time since it started, by wall clock."""


class RebalanceFailed(Struct, frozen=True):
    """A rebalance must begin again before it was completed."""

    group_id: str
    kind: GroupKind
