"""What happened to groups, their members and their offsets, as the metrics and the log are told it once it is durable;
and that waiting members are to hear of it."""

from __future__ import annotations

from enum import StrEnum

from coordinator_protocol.marker import Outcome
from group_coordinator.state import GroupKind, OfGroup


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


class KindEvent(OfGroup, frozen=True):
    """An event of either kind of group."""

    kind: GroupKind


class GroupCreated(KindEvent, frozen=True):
    """Somebody joined a group that was not there, or committed offsets of one."""


class GroupRemoved(KindEvent, frozen=True):
    """The group is gone: somebody deleted it, or it had neither members nor offsets."""

    is_deleted: bool
    """True if a caller asked for it; False if it expired."""


class MemberJoined(KindEvent, frozen=True):
    """A new member; one that was told to come again with an id is not one yet."""

    member_id: str


class MemberLeft(KindEvent, frozen=True):
    """Somebody is a member no more."""

    member_id: str
    reason: LeaveReason


class RebalanceStarted(KindEvent, frozen=True):
    """The group needs a new assignment."""

    cause: str
    """Why, in words for people."""


class RebalanceCompleted(KindEvent, frozen=True):
    """Every member can have its part of the new assignment, or nobody is left."""

    generation: int
    member_count: int
    elapsed_ms: int
    """Time since it started, by wall clock."""


class RebalanceFailed(KindEvent, frozen=True):
    """A rebalance must begin again before it was completed."""


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
    """Somebody deleted offsets of the group, or a topic that they belong to."""


class TargetComputed(OfGroup, frozen=True):
    """There is a target for this epoch; members move towards it."""

    assignment_epoch: int
    assignor_name: str
    changed_members: int
    away_us: int | None = None
    """How long it took another process, with the wait for it; None: it was computed here."""


class TargetFailed(OfGroup, frozen=True):
    """The assignor failed in the other process; the group keeps the target that it has."""

    group_epoch: int
    assignor_name: str
    error: str


class GroupConverted(OfGroup, frozen=True):
    """A group with members changed its protocol."""

    is_upgrade: bool
    """True: from classic to consumer. False: the other way."""


class GroupNews(OfGroup, frozen=True):
    """Effect: something changed for the members of a group: heartbeats that wait look again (`news`)."""
