"""What happens to transactions, as frozen values: the stored records, whose bytes `codec` knows, and the events that
observers, metrics and logs, are told of once they are durable."""

from __future__ import annotations

from msgspec import Struct

from coordinator_runtime.ports import OutcomeNumber
from txn_coordinator.sink_state import Sink
from txn_coordinator.state import Transaction


class TransactionChanged(Struct, frozen=True, gc=False):
    """The newest snapshot of a transactional id (TRANSACTIONS shards)."""

    transaction: Transaction
    decided: Transaction | None = None
    """The Prepare state on the way, where one operation decided and completed: for the history, which alone has it."""


class TransactionRanThrough(Struct, frozen=True, gc=False):
    """A Transact of the common shape took an id from rest through a whole transaction, which committed (TRANSACTIONS
    shards): all steps in one, as a record and as an event, because it is the most frequent one of all."""

    before: Transaction
    transaction: Transaction
    """The newest snapshot."""
    partitions: tuple[int, ...]
    """Ordinals of the participants, ascending."""
    groups: tuple[str, ...]


class TransactionUnreadable(Struct, frozen=True, gc=False):
    """A transactional id in a state that only a newer program knows (TRANSACTIONS shards). Only ever read: nobody here
    may take a step for it."""

    transactional_id: str
    producer_id: int
    state: int


class TransactionForgotten(Struct, frozen=True, gc=False):
    """A tombstone: the id expired (TRANSACTIONS shards)."""

    transactional_id: str


class SinkChanged(Struct, frozen=True, gc=False):
    """The newest snapshot of a sink (TRANSACTIONS shards)."""

    sink: Sink


class SinkForgotten(Struct, frozen=True, gc=False):
    """A tombstone: the sink expired (TRANSACTIONS shards)."""

    name: str


TransactionRecord = (
    TransactionChanged
    | TransactionRanThrough
    | TransactionForgotten
    | TransactionUnreadable
    | SinkChanged
    | SinkForgotten
)


class ProducerIdBlockTaken(Struct, frozen=True, gc=False):
    """Every producer id of its kind, plain or not, below this one may have been given away (COUNTERS shard)."""

    next_unassigned_producer_id: int


class ProducerIdGiven(Struct, frozen=True, gc=False):
    """Producer ids of the current block were given away. Not stored: after a restart the rest of the block is skipped
    (spec transactions 6)."""

    producer_id: int
    count: int = 1
    """How many were given at once, of which it is the last."""


class CsnGiven(Struct, frozen=True, gc=False):
    """A commit sequence number was given to an outcome (COUNTERS shard)."""

    csn: int
    count: int = 1
    """How many were given at once, of which it is the last."""


class UnownedMarkerWritten(Struct, frozen=True, gc=False):
    """A marker was written for a producer id that no transactional id here owns: by an administrator who ended what
    hung, or for a coordinator elsewhere (COUNTERS shard). History only: it tells why a marker is there that nobody here
    decided."""

    number: OutcomeNumber
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


class SinkDecided(Struct, frozen=True, gc=False):
    """It was decided what becomes of members of a sink."""

    sink: str
    batch_id: int
    result: str
    """committed; repeated (it had been committed before); given_up (members that nobody decided on)."""
    member_count: int
    """How many members that is about: those that commit, or are given up."""


class SinkJoined(Struct, frozen=True, gc=False):
    """A task asked to join a batch of a sink."""

    sink: str
    batch_id: int
    answer: str
    """member (it is a new one); committed (the batch is committed already, so the task writes nothing)."""


class HangingTransactionAborted(Struct, frozen=True, gc=False):
    """An administrator ended a transaction that no transactional id owned."""

    ordinal: int
    producer_id: int
    producer_epoch: int
