"""What happened to transactions, for observers: metrics and logs. Observers are told once it is durable."""

from __future__ import annotations

from msgspec import Struct

from txn_coordinator.state import Transaction


class TransactionExpired(Struct, frozen=True):
    """An idle transactional id was not used for so long that it was forgotten."""

    before: Transaction


class TransactionStepped(Struct, frozen=True):
    """A transactional id took one legal step, or appeared."""

    before: Transaction | None
    """None for a new id."""
    after: Transaction


class HangingTransactionAborted(Struct, frozen=True):
    """An administrator ended a transaction that no transactional id owned."""

    ordinal: int
    producer_id: int
    producer_epoch: int
