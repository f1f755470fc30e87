"""What callers ask of the transaction coordinator, and what they are answered: frozen values, nothing of which has been
checked. Identities may be impossible, ids too long, partitions unknown: `service` finds out."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from msgspec import Struct

from coordinator_protocol.errors import CoordinatorError
from coordinator_protocol.marker import Outcome
from coordinator_runtime.ports import ClientBatch, GroupOffsets, PartitionName, PartitionRef
from txn_coordinator.state import Identity, Transaction
from txn_coordinator.steps import StoredStep


class KeyType(IntEnum):
    """What a coordinator can be asked for, with the numbers of the wire."""

    TRANSACTION = 1
    GROUP = 3


class Located(Struct, frozen=True):
    """The shard that a key belongs to, or why that is not told."""

    key: str
    shard: int = 0
    error: CoordinatorError | None = None


class InitProducerId(Struct, frozen=True, kw_only=True):
    """Gives a producer its identity."""

    transactional_id: str | None
    """None: the producer has no transactions, and gets an identity that nobody had before."""
    transaction_timeout_ms: int = 0
    expected: Identity | None = None
    """The identity that a recovering producer holds; None: a new instance takes over."""
    enable_2pc: bool = False
    """Transactions wait for somebody else's decision, without a timeout."""
    keep_prepared: bool = False
    """An open transaction is kept for that decision, not aborted."""


class OfProducer(Struct, frozen=True):
    """What a producer asks for, and whom it says it is."""

    transactional_id: str
    identity: Identity


class AddPartitions(OfProducer, frozen=True, kw_only=True):
    """Adds partitions to a transaction, or only asks whether they are in it."""

    partitions: Sequence[PartitionName]
    verify_only: bool = False


class AddPartitionsBatch(Struct, frozen=True):
    """Several of these, by another server."""

    transactions: Sequence[AddPartitions]
    is_mixed: bool = False
    """The request says besides what a request for one transaction says."""


class AddedPartitions(Struct, frozen=True):
    """What became of each partition, in the order named. All of them were added, or none."""

    results: Sequence[tuple[PartitionName, CoordinatorError | None]]
    error: CoordinatorError | None = None
    """Why none was added. Then every result has an error: the same, or, where it lies with some partitions, their own,
    and OPERATION_NOT_ATTEMPTED for the others."""


class AddedBatch(Struct, frozen=True):
    """What became of each transaction, in the order asked."""

    transactions: Sequence[AddedPartitions]
    error: CoordinatorError | None = None
    """Why nothing was looked at. Every transaction repeats it."""


class AddOffsets(OfProducer, frozen=True, kw_only=True):
    """Adds a group to a transaction: offsets of the group may be committed in it."""

    group_id: str


class PrepareTransaction(OfProducer, frozen=True, kw_only=True):
    """Prepares the open transaction for an outside decision."""

    last_sequences: Sequence[tuple[PartitionName, int]] = ()
    """What the log must hold, as in EndTxn."""


class EndTxn(OfProducer, frozen=True, kw_only=True):
    """Commits or aborts the open transaction."""

    outcome: Outcome
    last_sequences: Sequence[tuple[PartitionName, int]] = ()
    """The sequence number of the last record that the client sent to each partition in this transaction. A commit is
    refused unless the log holds them; an abort needs nothing to be there."""


class Transact(OfProducer, frozen=True):
    """A whole transaction in one request."""

    outcome: Outcome
    batches: Sequence[ClientBatch] = ()
    groups: Sequence[GroupOffsets] = ()


class TransactionFilter(Struct, frozen=True, kw_only=True):
    """What ListTransactions keeps; all of it must hold (spec transactions 2.8)."""

    states: Sequence[str] = ()
    """API names; empty = all. Names that do not exist match nothing."""
    producer_ids: Sequence[int] = ()
    open_longer_than_ms: int = -1
    """Negative = any duration, also of ids without a transaction."""
    id_pattern: str = ""


class Listing(Struct, frozen=True):
    """Transactional ids that matched, and the state names that do not exist."""

    transactions: Sequence[Transaction]
    unknown_states: Sequence[str]
    now_ms: int
    """Wall time of the answer, against which ages are told."""


class StepDescription(Struct, frozen=True):
    """One step of an id, with what is known of who took it."""

    after: StoredStep | None
    """None: the id was forgotten."""
    at_ms: int
    client_id: str
    host: str
    cause: str
    fenced: Identity | None
    """The identity that nobody may show any more."""


class History(Struct, frozen=True):
    """The last steps of an id, the newest first."""

    steps: Sequence[StepDescription]
    is_complete: bool
    """False: there are older steps, or the search ended before it found them."""


class Description(Struct, frozen=True):
    """The durable state of one transactional id, or why it is not told."""

    transactional_id: str
    now_ms: int
    """Wall time of the answer, against which ages are told."""
    error: CoordinatorError | None = None
    transaction: Transaction | None = None
    partitions: Sequence[PartitionRef] = ()
    """Partitions of the transaction that have a name and that the caller may know of; of a decided one, only those
    whose marker is not durable yet."""
    groups: Sequence[str] = ()
    """Groups of the transaction that the caller may know of."""
    history: History | None = None
    """The last steps of the id, even if it was forgotten. None: they were not asked for, or the caller may not know of
    the id."""
