"""Observer of events of groups.

A line is written for:

- every member that joins or leaves;
- every rebalance that begins, fails or completes;
- every group that is created, removed or converted to the other protocol;
- targets that cannot be computed, and offsets that expire or are deleted.

A removed member is a warning with advice, because its client may not know or report the cause. Committed offsets have
no line, because there are too many.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import structlog

from coordinator_runtime.decision import Turn
from coordinator_server.events.lines import PartitionFields, Remember, caller_fields, forget
from coordinator_server.events.shares import share_tellers
from coordinator_server.metrics.groups import GroupNumbers
from group_coordinator.events import (
    GroupConverted,
    GroupCreated,
    GroupRemoved,
    KindEvent,
    LeaveReason,
    MemberJoined,
    MemberLeft,
    OffsetsCommitted,
    OffsetsDeleted,
    OffsetsExpired,
    OffsetsSettled,
    RebalanceCompleted,
    RebalanceFailed,
    RebalanceStarted,
    TargetComputed,
    TargetFailed,
)

SLOW_REBALANCE_MS: Final = 30_000
"""Duration from which a rebalance counts as slow, until every member has its share. It usually takes milliseconds if
members hear of it at once. If they only ask from time to time, it takes the interval between two heartbeats."""

_ADVICE: Final[Mapping[LeaveReason, str]] = {
    LeaveReason.SESSION: "nothing was heard of it for its session timeout: it ended, was cut off, or stood still; if "
    "it lives it joins again, and if that happens often its session timeout is too short",
    LeaveReason.REBALANCE: "it took longer than its rebalance timeout to join again, or to give up partitions: let it "
    "process less at a time, or raise that timeout (max_poll_interval_ms of the consumer)",
    LeaveReason.SYNC: "it joined a generation and did not ask for its assignment within the rebalance timeout: see why "
    "the client stands still",
    LeaveReason.SIZE: "the group has as many members as it may have: start fewer, or raise group_size_max",
}
"""Advice on members that were removed against their will."""

_log = structlog.get_logger("groups")


class GroupObserver:
    """Passes events of groups on to the metrics and to the log."""

    def __init__(self, numbers: GroupNumbers, partition: PartitionFields, remember: Remember = forget) -> None:
        self._numbers = numbers
        self._remember = remember
        self.tellers: Mapping[type, Callable[[Any, Turn], None]] = {
            **dict.fromkeys(_LINES, self._count_and_log),
            OffsetsCommitted: numbers.committed,
            OffsetsSettled: numbers.settled,
            **share_tellers(numbers.shares, partition),
        }
        """Handlers of events, by type."""

    def _count_and_log(self, event: object, turn: Turn) -> None:
        self._numbers.count(event)
        _LINES[type(event)](event, turn)
        if isinstance(event, RebalanceStarted):
            self._remember("rebalance_started", {**_group_fields(event, turn), "cause": event.cause})
        elif isinstance(event, RebalanceFailed):
            self._remember("rebalance_failed", _group_fields(event, turn))
        elif isinstance(event, MemberLeft) and event.reason in _ADVICE:
            fields = {"member_id": event.member_id, "reason": event.reason.value}
            self._remember("member_removed", {**_group_fields(event, turn), **fields})


def _member_joined(event: MemberJoined, turn: Turn) -> None:
    _log.info("member_joined", **_group_fields(event, turn), member_id=event.member_id)


def _member_left(event: MemberLeft, turn: Turn) -> None:
    fields = {**_group_fields(event, turn), "member_id": event.member_id}
    if event.reason is LeaveReason.LEAVE:
        _log.info("member_left", **fields)
    elif event.reason is LeaveReason.FENCED:
        _log.info("member_fenced", **fields)
    else:
        _log.warning("member_removed", **fields, reason=event.reason.value, advice=_ADVICE[event.reason])


def _rebalance_started(event: RebalanceStarted, turn: Turn) -> None:
    _log.info("rebalance_started", **_group_fields(event, turn), cause=event.cause)


def _rebalance_completed(event: RebalanceCompleted, turn: Turn) -> None:
    fields = {
        **_group_fields(event, turn),
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
    _log.info("rebalance_failed", **_group_fields(event, turn))


def _group_created(event: GroupCreated, turn: Turn) -> None:
    _log.info("group_created", **_group_fields(event, turn))


def _group_removed(event: GroupRemoved, turn: Turn) -> None:
    _log.info("group_deleted" if event.is_deleted else "group_expired", **_group_fields(event, turn))


def _group_converted(event: GroupConverted, turn: Turn) -> None:
    kinds = ("classic", "consumer") if event.is_upgrade else ("consumer", "classic")
    _log.info("group_converted", group_id=event.group_id, old_kind=kinds[0], new_kind=kinds[1], **caller_fields(turn))


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
        _log.info("offsets_deleted", group_id=event.group_id, offsets=event.offset_count, **caller_fields(turn))


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
"""Functions that write the log line of an event, by class."""


def _group_fields(event: KindEvent, turn: Turn) -> dict[str, object]:
    return {"group_id": event.group_id, "kind": event.kind.value, **caller_fields(turn)}
