"""Observers of events, which update the metrics and write the log.

Each fence, timeout, administrative act and slow commit (`SLOW_COMMIT_MS`: a second or more) has a log line, with its
ids and states. Every other state change is logged at debug level only.

In groups, a line is written for:

- every member that joins or leaves;
- every rebalance that begins, fails or completes;
- every group that is created, removed or converted to the other protocol;
- targets that cannot be computed, and offsets that expire or are deleted.

A removed member is a warning with advice, because its client may not know or report the cause. Committed offsets have
no line, because there are too many.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import structlog

from coordinator_runtime.clock import Clock
from coordinator_runtime.decision import ShardKey, Turn
from coordinator_runtime.ports import TopicCatalog
from coordinator_server.events.shares import PartitionFields, share_tellers
from coordinator_server.metrics.groups import GroupNumbers
from coordinator_server.metrics.partitions import LogNumbers
from coordinator_server.metrics.transactions import TransactionNumbers, is_admin_fence
from coordinator_server.security.audit import AuditLog
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
from partition_log.records import (
    CompactionEnded,
    DamageFound,
    MarkerFromOutside,
    PartitionGrew,
    ProducersExpired,
    RecordsDeleted,
    RowsCompacted,
    TopicChanged,
)
from txn_coordinator.hanging import Hanging
from txn_coordinator.records import (
    HangingTransactionAborted,
    SinkDecided,
    SinkJoined,
    TransactionExpired,
    TransactionRanThrough,
    TransactionStepped,
)
from txn_coordinator.rules.transacting import steps_of
from txn_coordinator.state import DECIDED, NO_EPOCH, Identity, Transaction, TransactionState

Remember = Callable[[str, Mapping[str, object]], None]
"""Remembers an event by its kind and the fields of its line (`RecentEvents.add`)."""


def forget(_kind: str, _fields: Mapping[str, object]) -> None:
    """Remember nothing."""


def partition_fields(catalog: TopicCatalog, ordinal: int) -> Mapping[str, object]:
    """Return topic and partition as log fields; None for a partition that is gone."""
    ref = catalog.by_ordinal(ordinal)
    return {"topic": None, "partition": None} if ref is None else {"topic": ref.topic, "partition": ref.partition}


def caller_fields(turn: Turn) -> dict[str, object]:
    """Return the client of the call as log fields; empty strings for an act of the server itself."""
    return {"client_id": turn.client_id, "host": turn.host}


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

_group_log = structlog.get_logger("groups")


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
    _group_log.info("member_joined", **_group_fields(event, turn), member_id=event.member_id)


def _member_left(event: MemberLeft, turn: Turn) -> None:
    fields = {**_group_fields(event, turn), "member_id": event.member_id}
    if event.reason is LeaveReason.LEAVE:
        _group_log.info("member_left", **fields)
    elif event.reason is LeaveReason.FENCED:
        _group_log.info("member_fenced", **fields)
    else:
        _group_log.warning("member_removed", **fields, reason=event.reason.value, advice=_ADVICE[event.reason])


def _rebalance_started(event: RebalanceStarted, turn: Turn) -> None:
    _group_log.info("rebalance_started", **_group_fields(event, turn), cause=event.cause)


def _rebalance_completed(event: RebalanceCompleted, turn: Turn) -> None:
    fields = {
        **_group_fields(event, turn),
        "generation": event.generation,
        "members": event.member_count,
        "elapsed_ms": event.elapsed_ms,
    }
    if event.elapsed_ms < SLOW_REBALANCE_MS:
        _group_log.info("rebalance_completed", **fields)
    else:
        advice = "others waited for a member that was slow to join again, or to give up partitions; see its own log"
        _group_log.warning("rebalance_completed", **fields, advice=advice)


def _rebalance_failed(event: RebalanceFailed, turn: Turn) -> None:
    _group_log.info("rebalance_failed", **_group_fields(event, turn))


def _group_created(event: GroupCreated, turn: Turn) -> None:
    _group_log.info("group_created", **_group_fields(event, turn))


def _group_removed(event: GroupRemoved, turn: Turn) -> None:
    _group_log.info("group_deleted" if event.is_deleted else "group_expired", **_group_fields(event, turn))


def _group_converted(event: GroupConverted, turn: Turn) -> None:
    kinds = ("classic", "consumer") if event.is_upgrade else ("consumer", "classic")
    _group_log.info(
        "group_converted", group_id=event.group_id, old_kind=kinds[0], new_kind=kinds[1], **caller_fields(turn)
    )


def _target_computed(event: TargetComputed, _turn: Turn) -> None:
    _group_log.debug(
        "assignment_computed",
        group_id=event.group_id,
        epoch=event.assignment_epoch,
        assignor=event.assignor_name,
        changed_members=event.changed_members,
    )


def _target_failed(event: TargetFailed, _turn: Turn) -> None:
    _group_log.error(
        "assignment_failed",
        group_id=event.group_id,
        epoch=event.group_epoch,
        assignor=event.assignor_name,
        error=event.error,
        advice="its members keep what they have, and the next heartbeat tries again: see why the assignor fails, or "
        "let the members name another one",
    )


def _offsets_expired(event: OffsetsExpired, _turn: Turn) -> None:
    _group_log.info("offsets_expired", group_id=event.group_id, offsets=event.offset_count)


def _offsets_deleted(event: OffsetsDeleted, turn: Turn) -> None:
    if event.offset_count:
        _group_log.info("offsets_deleted", group_id=event.group_id, offsets=event.offset_count, **caller_fields(turn))


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


SLOW_COMMIT_MS: Final = 1_000
"""Time from the outcome until COMPLETE is durable that counts as slow. It usually takes milliseconds, so a slow commit
is a sign of trouble with a disk or a participant."""

_CAUSE_EVENTS: Final = {
    "fence": "fenced",
    "timeout": "transaction_timed_out",
    "topic_deleted": "transaction_aborted_with_topic",
    "admin": "transaction_aborted_by_admin",
}
"""Log events for aborts that the client did not ask for, by cause."""

_ASKED_FOR: Final = frozenset({"client", "add"})
"""Causes of steps that a client asked for by ending its transaction, or by adding to it."""


_log = structlog.get_logger("transactions")
_topic_log = structlog.get_logger("topics")
_partition_log = structlog.get_logger("partitions")


class EventObserver:
    """Passes events on to the metrics and to the log."""

    def __init__(
        self,
        transactions: TransactionNumbers,
        log: LogNumbers,
        groups: GroupObserver,
        *,
        clock: Clock,
        catalog: TopicCatalog,
        audit: AuditLog,
    ) -> None:
        self._transactions = transactions
        self._log_numbers = log
        log.partition = catalog.by_ordinal
        self._clock = clock
        self._partition = partial(partition_fields, catalog)
        self._audit = audit
        self.remember: Remember = forget
        """Called for every event with a line, except those of debug level."""
        self._is_debug = logging.getLogger("transactions").isEnabledFor(logging.DEBUG)
        self._tellers: dict[type, Callable[[Any, Turn], None]] = {
            PartitionGrew: log.grew,
            TransactionStepped: self._stepped,
            TransactionRanThrough: self._ran_through,
            TransactionExpired: self._expired,
            SinkDecided: self._sink_decided,
            SinkJoined: self._sink_joined,
            TopicChanged: self._log_topic,
            ProducersExpired: self._producers_expired,
            RecordsDeleted: self._records_deleted,
            RowsCompacted: self._rows_compacted,
            CompactionEnded: self._compaction_ended,
            MarkerFromOutside: self._marker_from_outside,
            HangingTransactionAborted: self._hanging_aborted,
            **groups.tellers,
        }
        """Handlers of events, by type."""

    def __call__(self, event: object, turn: Turn) -> None:
        try:
            self._tellers[type(event)](event, turn)
        except Exception as defect:  # noqa: BLE001  a wrong number or a missing line is no reason to stop the server
            _log.error("defect", told=type(event).__name__, exc_info=defect)

    def _stepped(self, event: TransactionStepped, turn: Turn) -> None:
        now_ms = self._clock.wall_ms()
        self._transactions.stepped(event, now_ms)
        before, after = event.before, event.after
        # A step that the client asked for is logged only if it was slow, or at debug level.
        is_slow = before is not None and now_ms - before.last_update_ms >= SLOW_COMMIT_MS
        if is_slow or self._is_debug or after.cause not in _ASKED_FOR:
            self._log_step(before, after, turn, now_ms)

    def _ran_through(self, event: TransactionRanThrough, turn: Turn) -> None:
        now_ms = self._clock.wall_ms()
        self._transactions.ran_through(event, now_ms)
        # The same condition as in `_stepped`.
        if self._is_debug or now_ms - event.transaction.last_update_ms >= SLOW_COMMIT_MS:
            for step in steps_of(event):
                self._log_step(step.before, step.after, turn, now_ms)

    def _expired(self, event: TransactionExpired, _turn: Turn) -> None:
        self._transactions.expired(event)
        if self._is_debug:
            _log.debug("expired", transactional_id=event.before.transactional_id)

    def _sink_decided(self, event: SinkDecided, _turn: Turn) -> None:
        self._transactions.sinks.decided(event)
        if event.result == "given_up":
            self._tell(
                _log.warning, "sink_given_up", sink=event.sink, batch_id=event.batch_id, members=event.member_count
            )
        elif self._is_debug:
            fields = {"sink": event.sink, "batch_id": event.batch_id, "members": event.member_count}
            _log.debug("sink_decided", **fields, result=event.result)

    def _sink_joined(self, event: SinkJoined, _turn: Turn) -> None:
        self._transactions.sinks.joined(event)
        if self._is_debug:
            _log.debug("sink_joined", sink=event.sink, batch_id=event.batch_id, answer=event.answer)

    def _producers_expired(self, event: ProducersExpired, _turn: Turn) -> None:
        self._log_numbers.expired(event)

    def _rows_compacted(self, event: RowsCompacted, _turn: Turn) -> None:
        self._log_numbers.compacted(event)

    def _compaction_ended(self, event: CompactionEnded, _turn: Turn) -> None:
        self._tell(
            _partition_log.info, "log_compacted", **self._partition(event.ordinal), compacted_to=event.end_offset
        )

    def _records_deleted(self, event: RecordsDeleted, turn: Turn) -> None:
        self._log_numbers.deleted(event)
        self._tell(
            _partition_log.info,
            "records_deleted",
            **self._partition(event.ordinal),
            offsets=event.offsets,
            cause=event.cause.value,
            **caller_fields(turn),
        )

    def _hanging_aborted(self, event: HangingTransactionAborted, turn: Turn) -> None:
        self._tell(
            _log.warning,
            "hanging_transaction_aborted",
            **self._partition(event.ordinal),
            producer_id=event.producer_id,
            producer_epoch=event.producer_epoch,
            **caller_fields(turn),
        )

    def damage_found(self, event: DamageFound) -> None:
        """Count and log stored bytes that are not what was written. Called once for each place."""
        self._log_numbers.damaged(event)
        self._tell(
            _partition_log.error,
            "damage_found",
            topic=event.topic,
            partition=event.partition,
            family=event.family.name.lower(),
            offset=event.offset,
            next_offset=event.next_offset,
            reason=event.reason,
            advice="everything else is served; check the disk. `txnctl store verify` of the stopped directory says "
            "what else is damaged",
        )

    def hanging_found(self, hanging: Hanging) -> None:
        """Log a hanging transaction that an audit found. There should never be one."""
        opened = hanging.opened
        self._tell(
            _log.error,
            "hanging_transaction",
            **self._partition(opened.ordinal),
            producer_id=opened.producer_id,
            producer_epoch=opened.producer_epoch,
            start_offset=opened.first_offset,
            group_id=opened.group_id or None,
            reason=hanging.reason.value,
            transactional_id=None if hanging.owner is None else hanging.owner.transactional_id,
            advice="`txnctl hanging` shows how to end it; please report it, this is a defect or damage",
        )

    def coordinator_fenced(self, shard: ShardKey, coordinator_epoch: int) -> None:
        """Log that a partition knows a later coordinator epoch of a shard than ours. Another server then has a copy of
        our data, which should never happen."""
        self._tell(
            _log.error,
            "coordinator_fenced",
            shard=shard.number,
            coordinator_epoch=coordinator_epoch,
            advice="the shard is not served here any more, and its decided transactions wait for the other server; if "
            "this one is to go on, end the other, then `txnctl shard load` takes the shard back",
        )

    def _log_step(self, before: Transaction | None, after: Transaction, turn: Turn, now_ms: int) -> None:
        state = after.state
        if state in DECIDED:
            if after.cause in _CAUSE_EVENTS:
                self._tell(_log.info, _CAUSE_EVENTS[after.cause], **_fields(before, after, turn))
            if after.cause == "fence":
                self._tell_fence(after, turn)
        elif state is TransactionState.EMPTY or after.cause == "keep":
            if is_admin_fence(before, after):
                self._tell(_log.info, "fenced_by_admin", **_fields(before, after, turn))
                self._tell_fence(after, turn)
            elif _takes_over(before, after):
                self._tell(_log.info, "taken_over", **_fields(before, after, turn))
                self._tell_fence(after, turn)
        elif before is not None and before.state in DECIDED:
            elapsed_ms = now_ms - before.last_update_ms
            if elapsed_ms >= SLOW_COMMIT_MS:
                self._tell(_log.warning, "slow_commit", elapsed_ms=elapsed_ms, **_fields(before, after, turn))
        if self._is_debug:
            _log.debug("stepped", **_fields(before, after, turn))

    def _tell_fence(self, after: Transaction, turn: Turn) -> None:
        self._audit.fenced(
            turn.principal,
            turn.client_id,
            turn.host,
            transactional_id=after.transactional_id,
            producer_id=after.producer_id,
            cause=after.cause,
        )

    def _log_topic(self, event: TopicChanged, turn: Turn) -> None:
        topic = event.before or event.after
        assert topic is not None, "a topic appeared or went"
        caller = caller_fields(turn)
        fields = {"topic": topic.name, "topic_id": topic.topic_id.hex(), "partitions": len(topic.partition_ordinals)}
        if event.after is None:
            self._log_numbers.forget(topic.name)
            self._tell(_topic_log.info, "topic_deleted", **fields, **caller)
        elif event.before is None:
            self._tell(_topic_log.info, "topic_created", **fields, **caller)
        elif event.before.settings != event.after.settings:
            settings = {"old_settings": dict(event.before.settings), "settings": dict(event.after.settings)}
            self._tell(_topic_log.info, "topic_altered", **fields, **settings, **caller)
        else:
            grown = {**fields, "old_partitions": len(event.before.partition_ordinals)}
            self._tell(
                _topic_log.info,
                "topic_extended",
                **{**grown, "partitions": len(event.after.partition_ordinals)},
                **caller,
            )

    def _marker_from_outside(self, event: MarkerFromOutside, turn: Turn) -> None:
        marker = event.marker
        self._tell(
            _log.info,
            "marker_from_outside",
            **self._partition(event.ordinal),
            producer_id=marker.producer_id,
            producer_epoch=marker.txn_epoch,
            outcome=marker.outcome.name.lower(),
            csn=marker.csn,
            **caller_fields(turn),
        )

    def _tell(self, write: Callable[..., None], kind: str, **fields: Any) -> None:  # noqa: ANN401  fields of a line
        """Write a line to the log, and remember the event."""
        write(kind, **fields)
        self.remember(kind, fields)


def _takes_over(before: Transaction | None, after: Transaction) -> bool:
    """Return True if a new instance took over the id of another one, which is fenced from now on.

    A producer that shows its own identity, to go on after an error, takes over from no other. If the older transaction
    was aborted for the new instance, the fence was logged at that moment.
    """
    return (
        before is not None
        and after.cause in ("init", "keep")
        and before.producer_epoch != NO_EPOCH
        and before.client_identity != after.client_identity
        and after.last_producer_epoch == NO_EPOCH
        and not (before.state is TransactionState.COMPLETE_ABORT and before.cause == "fence")
    )


def _fields(before: Transaction | None, after: Transaction, turn: Turn) -> dict[str, object]:
    owner = _owner(after)
    return {
        "transactional_id": after.transactional_id,
        "producer_id": owner.producer_id,
        "old_epoch": None if before is None else _owner(before).producer_epoch,
        "producer_epoch": owner.producer_epoch,
        "old_state": None if before is None else before.state.api_name,
        "new_state": after.state.api_name,
        "cause": after.cause,
        **caller_fields(turn),
    }


def _owner(transaction: Transaction) -> Identity:
    """Return the identity that owns the id. A newer instance that keeps the transaction has its own."""
    return transaction.client_identity if transaction.is_kept else transaction.identity
