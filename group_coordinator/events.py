"""Events of groups, their members and their offsets, reported to the metrics and the log once durable. `GroupNews` is
the effect that wakes waiting heartbeats."""

from __future__ import annotations

from enum import StrEnum

from coordinator_protocol.marker import Outcome
from group_coordinator.state import GroupKind, OfGroup


class LeaveReason(StrEnum):
    """Reason for the end of a membership."""

    LEAVE = "leave"
    """The member left, or an administrator removed it."""
    SESSION = "session"
    """No sign of life for its session timeout."""
    REBALANCE = "rebalance"
    """It exceeded its rebalance timeout, either in joining again or in revoking partitions."""
    SYNC = "sync"
    """It joined a generation and never asked for its assignment."""
    FENCED = "fenced"
    """A newer member joined with its instance id."""
    SIZE = "size"
    """The group had more members than its limit allows."""


class KindEvent(OfGroup, frozen=True):
    """An event of either kind of group."""

    kind: GroupKind


class GroupCreated(KindEvent, frozen=True):
    """A group came into existence, by a join or by a commit of offsets."""


class GroupRemoved(KindEvent, frozen=True):
    """A group was removed: a caller deleted it, or it had neither members nor offsets."""

    is_deleted: bool
    """True if a caller asked for it; False if it expired."""


class MemberJoined(KindEvent, frozen=True):
    """A new member. A client that was only handed a member id is not one yet."""

    member_id: str


class MemberLeft(KindEvent, frozen=True):
    """A membership ended."""

    member_id: str
    reason: LeaveReason


class RebalanceStarted(KindEvent, frozen=True):
    """The group needs a new assignment."""

    cause: str
    """Cause in plain words, for people."""


class RebalanceCompleted(KindEvent, frozen=True):
    """Every member can have its part of the new assignment, or the group is empty."""

    generation: int
    member_count: int
    elapsed_ms: int
    """Time since the rebalance started, by wall clock."""


class RebalanceFailed(KindEvent, frozen=True):
    """A rebalance must start again before it was completed."""


class OffsetsEvent(OfGroup, frozen=True):
    """Something happened to offsets of a group."""

    offset_count: int


class OffsetsCommitted(OffsetsEvent, frozen=True):
    """Offsets were committed; those of a transaction are pending."""

    is_transactional: bool = False


class OffsetsSettled(OffsetsEvent, frozen=True):
    """A transaction ended, and its pending offsets were committed or dropped."""

    outcome: Outcome


class OffsetsExpired(OffsetsEvent, frozen=True):
    """Offsets were forgotten because of their age."""


class OffsetsDeleted(OffsetsEvent, frozen=True):
    """Offsets of the group were deleted by a caller, or with a topic that they belong to."""


class TargetComputed(OfGroup, frozen=True):
    """A target for this epoch exists; members move towards it."""

    assignment_epoch: int
    assignor_name: str
    changed_members: int
    away_us: int | None = None
    """Time that another process needed, including the wait for it (us); None if computed in this process."""


class TargetFailed(OfGroup, frozen=True):
    """The assignor failed in the worker process; the group keeps its target."""

    group_epoch: int
    assignor_name: str
    error: str


class GroupConverted(OfGroup, frozen=True):
    """A group with members changed its protocol."""

    is_upgrade: bool
    """True from classic to consumer, False from consumer to classic."""


class GroupNews(OfGroup, frozen=True):
    """Effect: something changed for the members of a group, so heartbeats that wait look again (`news`)."""
