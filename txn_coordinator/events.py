"""What happened to transactions, for observers: metrics and logs. Observers are told once it is durable."""

from __future__ import annotations

from msgspec import Struct

from txn_coordinator.state import Transaction


class TransactionExpired(Struct, frozen=True, gc=False):
    """An idle transactional id was not used for so long that it was forgotten."""

    before: Transaction


class TransactionStepped(Struct, frozen=True, gc=False):
    """A transactional id took one legal step, or appeared."""

    before: Transaction | None
    """None for a new id."""
    after: Transaction


class TransactionRanThrough(Struct, frozen=True, gc=False):
    """A Transact of the client took an id through a whole transaction in one operation. One event for all of its
    steps, because it is the most frequent one of all."""

    before: Transaction
    opened: Transaction
    """Equal to `before` if the transaction was open already, or nothing was written."""
    decided: Transaction
    after: Transaction

    @property
    def steps(self) -> list[TransactionStepped]:
        """One by one."""
        opening = [] if self.opened is self.before else [TransactionStepped(self.before, self.opened)]
        return [
            *opening,
            TransactionStepped(self.opened, self.decided),
            TransactionStepped(self.decided, self.after),
        ]


class HangingTransactionAborted(Struct, frozen=True, gc=False):
    """An administrator ended a transaction that no transactional id owned."""

    ordinal: int
    producer_id: int
    producer_epoch: int
