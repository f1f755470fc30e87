"""What happened, told to those who count and to those who read logs.

One line per fence, timeout, administrative act and slow commit, with the ids and states that belong to it; every other
state change only at debug. Observers are told once it is durable, and can change nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import structlog

from coordinator_runtime.decision import Turn
from coordinator_runtime.ports import TopicCatalog
from coordinator_server.metrics.board import LogNumbers, TransactionNumbers
from partition_log.events import PartitionGrew
from txn_coordinator.events import HangingTransactionAborted, TransactionExpired, TransactionStepped
from txn_coordinator.hanging import Hanging
from txn_coordinator.state import PREPARED, Transaction, TransactionState

SLOW_COMMIT_MS: Final = 1_000
"""From the outcome to COMPLETE; a fused commit takes none of it, so a slow one has a participant in trouble."""

DELETED_TOPIC: Final = "(deleted)"
"""Label for what was appended to a topic a moment before it was deleted. No topic can have this name."""

_CAUSE_EVENTS: Final = {
    "fence": "fenced",
    "timeout": "transaction_timed_out",
    "topic_deleted": "transaction_aborted_by_topic_deletion",
    "admin": "transaction_aborted_by_admin",
}
_log = structlog.get_logger("transactions")


class EventObserver:
    """Hands events to the numbers and to the log. `topic_of` names the topic of a partition's ordinal."""

    def __init__(
        self, transactions: TransactionNumbers, log: LogNumbers, topic_of: Callable[[int], str | None]
    ) -> None:
        self._transactions = transactions
        self._log_numbers = log
        self._topic_of = topic_of
        self._is_debug = logging.getLogger("transactions").isEnabledFor(logging.DEBUG)

    def __call__(self, event: object, turn: Turn) -> None:
        if isinstance(event, PartitionGrew):
            self._log_numbers.grew(self._topic_of(event.ordinal) or DELETED_TOPIC, event)
        elif isinstance(event, TransactionStepped):
            self._transactions.stepped(event)
            self._log(event, turn)
        elif isinstance(event, TransactionExpired):
            self._transactions.expired(event)
        elif isinstance(event, HangingTransactionAborted):
            _log.warning(
                "hanging_transaction_aborted",
                topic=self._topic_of(event.ordinal) or DELETED_TOPIC,
                producer_id=event.producer_id,
                producer_epoch=event.producer_epoch,
                client_id=turn.client_id,
                host=turn.host,
            )

    def _log(self, event: TransactionStepped, turn: Turn) -> None:
        before, after = event.before, event.after
        if after.state in PREPARED and after.cause in _CAUSE_EVENTS:
            _log.info(_CAUSE_EVENTS[after.cause], **_fields(before, after, turn))
        elif before is not None and before.state in PREPARED:
            elapsed_ms = after.last_update_ms - before.last_update_ms
            if elapsed_ms >= SLOW_COMMIT_MS:
                _log.warning("slow_commit", elapsed_ms=elapsed_ms, **_fields(before, after, turn))
        elif before is not None and _takes_over(before, after):
            _log.info("taken_over", **_fields(before, after, turn))
        if self._is_debug:
            _log.debug("stepped", **_fields(before, after, turn))


def _takes_over(before: Transaction, after: Transaction) -> bool:
    """A new instance initialised an id that another one had: from now on the other one is fenced."""
    return after.state is TransactionState.EMPTY and before.identity != after.identity and before.producer_epoch >= 0


def _fields(before: Transaction | None, after: Transaction, turn: Turn) -> dict[str, object]:
    return {
        "transactional_id": after.transactional_id,
        "producer_id": after.producer_id,
        "producer_epoch": after.producer_epoch,
        "old_state": None if before is None else before.state.api_name,
        "new_state": after.state.api_name,
        "cause": after.cause,
        "client_id": turn.client_id,
        "host": turn.host,
    }


def log_hanging(hanging: Hanging, *, catalog: TopicCatalog) -> None:
    """One line for each hanging transaction that is found: there should be none, ever."""
    opened, ref = hanging.opened, catalog.by_ordinal(hanging.opened.ordinal)
    _log.error(
        "hanging_transaction",
        topic=DELETED_TOPIC if ref is None else ref.topic,
        partition=None if ref is None else ref.partition,
        producer_id=opened.producer_id,
        producer_epoch=opened.producer_epoch,
        start_offset=opened.first_offset,
        reason=hanging.reason.value,
        transactional_id=None if hanging.owner is None else hanging.owner.transactional_id,
        advice="`txnctl hanging` shows how to end it; please report it, this is a defect or damage",
    )
