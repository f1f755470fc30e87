"""Records and events of transactions, as frozen values.

`codec` encodes the records for the store. The events are reported to observers, such as metrics and logs, once they are
durable.
"""

from __future__ import annotations

from msgspec import Struct

from coordinator_runtime.ports import OutcomeNumber
from txn_coordinator.sink_state import Sink
from txn_coordinator.state import Transaction


class TransactionChanged(Struct, frozen=True, gc=False):
    """Newest snapshot of a transactional id (TRANSACTIONS shards)."""

    transaction: Transaction
    decided: Transaction | None = None
    """Prepare state on the way, if one operation decided and completed. Only the history has it."""


class TransactionRanThrough(Struct, frozen=True, gc=False):
    """A Transact of the common shape took an idle id through a whole committed transaction (TRANSACTIONS shards).

    One value for all steps, as a record and as an event, because it is the most frequent of all.
    """

    before: Transaction
    transaction: Transaction
    """Newest snapshot."""
    partitions: tuple[int, ...]
    """Ordinals of the participants, ascending."""
    groups: tuple[str, ...]


class TransactionUnreadable(Struct, frozen=True, gc=False):
    """Transactional id in a state that only a newer program knows (TRANSACTIONS shards). Only ever read: this program
    takes no step for it."""

    transactional_id: str
    producer_id: int
    state: int


class TransactionForgotten(Struct, frozen=True, gc=False):
    """Tombstone: the id expired (TRANSACTIONS shards)."""

    transactional_id: str


class SinkChanged(Struct, frozen=True, gc=False):
    """Newest snapshot of a sink (TRANSACTIONS shards)."""

    sink: Sink


class SinkForgotten(Struct, frozen=True, gc=False):
    """Tombstone: the sink expired (TRANSACTIONS shards)."""

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
    """Every producer id of its kind, plain or not, below this one may have been given (COUNTERS shard)."""

    next_unassigned_producer_id: int


class ProducerIdGiven(Struct, frozen=True, gc=False):
    """Producer ids of the current block were given. Not stored: after a restart the rest of the block is skipped (spec
    transactions 6)."""

    producer_id: int
    count: int = 1
    """Number of ids given at once; `producer_id` is the last of them."""


class CsnGiven(Struct, frozen=True, gc=False):
    """A commit sequence number was given to an outcome (COUNTERS shard)."""

    csn: int
    count: int = 1
    """Number of csns given at once; `csn` is the last of them."""


class UnownedMarkerWritten(Struct, frozen=True, gc=False):
    """A marker was written for a producer id that no transactional id here owns (COUNTERS shard).

    An administrator ended a hanging transaction, or a coordinator elsewhere sent the marker. History only: it explains
    a marker that no coordinator here decided.
    """

    number: OutcomeNumber
    ordinal: int
    producer_id: int


# Events


class TransactionExpired(Struct, frozen=True, gc=False):
    """An idle transactional id was unused for so long that it expired."""

    before: Transaction


class TransactionStepped(Struct, frozen=True, gc=False):
    """A transactional id took one legal step, or appeared."""

    before: Transaction | None
    """None for a new id."""
    after: Transaction


class SinkDecided(Struct, frozen=True, gc=False):
    """The outcome of members of a sink was decided."""

    sink: str
    batch_id: int
    result: str
    """committed; repeated (it had been committed before); given_up (members without a decision)."""
    member_count: int
    """Number of members that commit, or are given up."""


class SinkJoined(Struct, frozen=True, gc=False):
    """A task asked to join a batch of a sink."""

    sink: str
    batch_id: int
    answer: str
    """member (a new one); committed (the batch is committed already, so the task writes nothing)."""


class HangingTransactionAborted(Struct, frozen=True, gc=False):
    """An administrator ended a transaction that no transactional id owned."""

    ordinal: int
    producer_id: int
    producer_epoch: int
