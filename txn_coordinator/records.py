"""What happens to transactions, as frozen values: the stored records, whose bytes `codec` knows, and the events that
observers, metrics and logs, are told of once they are durable."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from txn_coordinator.state import NO_EPOCH, NO_PRODUCER_ID, Transaction, TransactionState


class Participants(Struct, frozen=True, gc=False):
    """Partitions and groups that an outcome was decided for. A Prepare state has them, a Complete state does not."""

    partitions: frozenset[int]
    groups: frozenset[str]


class TransactionChanged(Struct, frozen=True, gc=False):
    """The newest snapshot of a transactional id (TRANSACTIONS shards)."""

    transaction: Transaction
    decided_for: Participants | None = None
    """What a record of PREPARE would have said, in a Complete state that was reached in one operation without one. Only
    where the rest of it follows from this state: a transaction that was prepared or kept has a PREPARE record of its
    own."""

    @property
    def decided(self) -> Transaction | None:
        """The state that decided the outcome, where this record stands for it."""
        after, participants = self.transaction, self.decided_for
        if participants is None:
            return None
        has_rotated = after.prev_producer_id != NO_PRODUCER_ID
        is_commit = after.state is TransactionState.COMPLETE_COMMIT
        return replace(
            after,
            state=TransactionState.PREPARE_COMMIT if is_commit else TransactionState.PREPARE_ABORT,
            producer_id=after.prev_producer_id if has_rotated else after.producer_id,
            producer_epoch=after.last_producer_epoch + 1,
            next_producer_id=after.producer_id if has_rotated else NO_PRODUCER_ID,
            next_producer_epoch=after.producer_epoch if has_rotated else NO_EPOCH,
            txn_epoch=after.last_producer_epoch,
            partitions=participants.partitions,
            groups=participants.groups,
        )


class TransactionUnreadable(Struct, frozen=True, gc=False):
    """A transactional id in a state that only a newer program knows (TRANSACTIONS shards). Only ever read: nobody here
    may take a step for it."""

    transactional_id: str
    producer_id: int
    state: int


class TransactionForgotten(Struct, frozen=True, gc=False):
    """A tombstone: the id expired (TRANSACTIONS shards)."""

    transactional_id: str


class ProducerIdBlockTaken(Struct, frozen=True, gc=False):
    """Every producer id of its kind, plain or not, below this one may have been given away (COUNTERS shard)."""

    next_unassigned_producer_id: int


class ProducerIdGiven(Struct, frozen=True, gc=False):
    """One producer id of the current block was given away. Not stored: after a restart the rest of the block is skipped
    (spec transactions 6)."""

    producer_id: int


class CsnGiven(Struct, frozen=True, gc=False):
    """One commit sequence number was given to an outcome (COUNTERS shard)."""

    csn: int


class UnownedMarkerWritten(Struct, frozen=True, gc=False):
    """A marker was written for a producer id that no transactional id here owns: by an administrator who ended what
    hung, or for a coordinator elsewhere (COUNTERS shard). History only: it tells why a marker is there that nobody here
    decided."""

    csn: int
    ordinal: int
    producer_id: int


# Events


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
