"""Observer of events, which updates the metrics and writes the log.

Each fence, timeout, administrative act and slow commit (`SLOW_COMMIT_MS`: a second or more) has a log line, with its
ids and states. Every other state change is logged at debug level only.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import structlog

from coordinator_runtime.clock import Clock
from coordinator_runtime.decision import ShardKey, Turn
from coordinator_runtime.ports import TopicCatalog
from coordinator_server.events.groups import GroupObserver
from coordinator_server.events.lines import Remember, caller_fields, forget, partition_fields
from coordinator_server.metrics.partitions import LogNumbers
from coordinator_server.metrics.transactions import TransactionNumbers, is_admin_fence
from coordinator_server.security.audit import AuditLog
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
