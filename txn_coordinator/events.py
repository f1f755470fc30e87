"""What happened to transactions, for observers: metrics and logs. Observers are told once it is durable."""

from __future__ import annotations

from dataclasses import dataclass

from coordinator_protocol.quick import quick
from txn_coordinator.state import Transaction


@dataclass(frozen=True, slots=True)
class TransactionExpired:
    """An idle transactional id was not used for so long that it was forgotten."""

    before: Transaction


@quick
@dataclass(frozen=True, slots=True)
class TransactionStepped:
    """A transactional id took one legal step, or appeared."""

    before: Transaction | None
    """None for a new id."""
    after: Transaction


@dataclass(frozen=True, slots=True)
class HangingTransactionAborted:
    """An administrator ended a transaction that no transactional id owned."""

    ordinal: int
    producer_id: int
    producer_epoch: int
