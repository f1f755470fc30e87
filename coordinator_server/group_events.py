"""What happened to groups, told to those who count and to those who read logs.

One line for everybody who joins or goes, for every rebalance that begins, fails or is over, for groups that come, go or
change their protocol, for targets that cannot be computed, and for offsets that are forgotten. Somebody who was put out
is a warning, with what can be done about it: the client does not know, or does not say. Offsets that are committed have
no line, there are too many.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import structlog

from coordinator_runtime.decision import Turn
from coordinator_server.metrics.groups import GroupNumbers
from group_coordinator.committed.events import OffsetsCommitted, OffsetsDeleted, OffsetsExpired, OffsetsSettled
from group_coordinator.consumer.events import GroupConverted, TargetComputed, TargetFailed
from group_coordinator.events import (
    GroupCreated,
    GroupRemoved,
    LeaveReason,
    MemberJoined,
    MemberLeft,
    RebalanceCompleted,
    RebalanceFailed,
    RebalanceStarted,
)

SLOW_REBALANCE_MS: Final = 30_000
"""Time from the beginning of a rebalance until every member has its share that counts as slow. With members that hear
at once it takes milliseconds, and with those that ask now and then the pause between two heartbeats."""

_ADVICE: Final[Mapping[LeaveReason, str]] = {
    LeaveReason.SESSION: "nothing was heard of it for its session timeout: it ended, was cut off, or stood still; if "
    "it lives it joins again, and if that happens often its session timeout is too short",
    LeaveReason.REBALANCE: "it took longer than its rebalance timeout to join again, or to give up partitions: let it "
    "process less at a time, or raise that timeout (max_poll_interval_ms of the consumer)",
    LeaveReason.SYNC: "it joined a generation and did not ask for its assignment within the rebalance timeout: see why "
    "the client stands still",
    LeaveReason.SIZE: "the group has as many members as it may have: start fewer, or raise group_size_max",
}
"""What to do about members that did not want to go."""

_log = structlog.get_logger("groups")


class GroupObserver:
    """Hands events of groups to the numbers and to the log."""

    def __init__(self, numbers: GroupNumbers) -> None:
        self._numbers = numbers
        self.tellers: Mapping[type, Callable[[Any, Turn], None]] = {
            **dict.fromkeys(_LINES, self._count_and_log),
            OffsetsCommitted: numbers.committed,
            OffsetsSettled: numbers.settled,
        }
        """Functions that tell of an event, by its type."""

    def _count_and_log(self, event: object, turn: Turn) -> None:
        self._numbers.count(event)
        _LINES[type(event)](event, turn)


def _member_joined(event: MemberJoined, turn: Turn) -> None:
    _log.info("member_joined", **_fields(event, turn), member_id=event.member_id)


def _member_left(event: MemberLeft, turn: Turn) -> None:
    fields = {**_fields(event, turn), "member_id": event.member_id}
    if event.reason is LeaveReason.LEAVE:
        _log.info("member_left", **fields)
    elif event.reason is LeaveReason.FENCED:
        _log.info("member_fenced", **fields)
    else:
        _log.warning("member_removed", **fields, reason=event.reason.value, advice=_ADVICE[event.reason])


def _rebalance_started(event: RebalanceStarted, turn: Turn) -> None:
    _log.info("rebalance_started", **_fields(event, turn), cause=event.cause)


def _rebalance_completed(event: RebalanceCompleted, turn: Turn) -> None:
    fields = {
        **_fields(event, turn),
        "generation": event.generation,
        "members": event.member_count,
        "elapsed_ms": event.elapsed_ms,
    }
    if event.elapsed_ms < SLOW_REBALANCE_MS:
        _log.info("rebalance_completed", **fields)
    else:
        advice = "others waited for a member that was slow to join again, or to give up partitions; see its own log"
        _log.warning("rebalance_completed", **fields, advice=advice)


def _rebalance_failed(event: RebalanceFailed, turn: Turn) -> None:
    _log.info("rebalance_failed", **_fields(event, turn))


def _group_created(event: GroupCreated, turn: Turn) -> None:
    _log.info("group_created", **_fields(event, turn))


def _group_removed(event: GroupRemoved, turn: Turn) -> None:
    _log.info("group_deleted" if event.is_deleted else "group_expired", **_fields(event, turn))


def _group_converted(event: GroupConverted, turn: Turn) -> None:
    kinds = ("classic", "consumer") if event.is_upgrade else ("consumer", "classic")
    _log.info("group_converted", group_id=event.group_id, old_kind=kinds[0], new_kind=kinds[1], **_caller(turn))


def _target_computed(event: TargetComputed, _turn: Turn) -> None:
    _log.debug(
        "assignment_computed",
        group_id=event.group_id,
        epoch=event.assignment_epoch,
        assignor=event.assignor_name,
        changed_members=event.changed_members,
    )


def _target_failed(event: TargetFailed, _turn: Turn) -> None:
    _log.error(
        "assignment_failed",
        group_id=event.group_id,
        epoch=event.group_epoch,
        assignor=event.assignor_name,
        error=event.error,
        advice="its members keep what they have, and the next heartbeat tries again: see why the assignor fails, or "
        "let the members name another one",
    )


def _offsets_expired(event: OffsetsExpired, _turn: Turn) -> None:
    _log.info("offsets_expired", group_id=event.group_id, offsets=event.offset_count)


def _offsets_deleted(event: OffsetsDeleted, turn: Turn) -> None:
    if event.offset_count:
        _log.info("offsets_deleted", group_id=event.group_id, offsets=event.offset_count, **_caller(turn))


_LINES: Final[Mapping[type, Callable[[Any, Turn], None]]] = {
    MemberJoined: _member_joined,
    MemberLeft: _member_left,
    RebalanceStarted: _rebalance_started,
    RebalanceCompleted: _rebalance_completed,
    RebalanceFailed: _rebalance_failed,
    GroupCreated: _group_created,
    GroupRemoved: _group_removed,
    GroupConverted: _group_converted,
    TargetComputed: _target_computed,
    TargetFailed: _target_failed,
    OffsetsExpired: _offsets_expired,
    OffsetsDeleted: _offsets_deleted,
}
"""What is written of an event, by its class."""

_OfAGroup = (
    MemberJoined | MemberLeft | RebalanceStarted | RebalanceCompleted | RebalanceFailed | GroupCreated | GroupRemoved
)


def _fields(event: _OfAGroup, turn: Turn) -> dict[str, object]:
    return {"group_id": event.group_id, "kind": event.kind.value, **_caller(turn)}


def _caller(turn: Turn) -> dict[str, object]:
    """Return whose call it was; both empty: the server itself."""
    return {"client_id": turn.client_id, "host": turn.host}
