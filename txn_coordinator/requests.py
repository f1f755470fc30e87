"""Requests to the transaction coordinator and their answers: frozen values, unchecked.

Identities may be impossible, ids too long, partitions unknown: `service` checks them.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from msgspec import Struct

from coordinator_protocol.errors import CoordinatorError
from coordinator_protocol.marker import Outcome
from coordinator_runtime.ports import ClientBatch, GroupAcknowledgements, GroupOffsets, PartitionName, PartitionRef
from txn_coordinator.state import Identity, Transaction
from txn_coordinator.steps import StoredStep


class KeyType(IntEnum):
    """Kinds of keys that have a coordinator, with the numbers of the wire."""

    TRANSACTION = 1
    GROUP = 3


class Located(Struct, frozen=True):
    """Shard of a key, or the error."""

    key: str
    shard: int = 0
    error: CoordinatorError | None = None


class InitProducerId(Struct, frozen=True, kw_only=True):
    """Request for a producer identity."""

    transactional_id: str | None
    """None for a producer without transactions, which gets an identity that no producer had before."""
    transaction_timeout_ms: int = 0
    expected: Identity | None = None
    """Identity that a recovering producer holds; None if a new instance takes over."""
    enable_2pc: bool = False
    """True if transactions wait for an outside decision, without a timeout."""
    keep_prepared: bool = False
    """True if an open transaction is kept for that decision, not aborted."""


class OfProducer(Struct, frozen=True):
    """Base of the requests of a producer, with the identity that it shows."""

    transactional_id: str
    identity: Identity


class AddPartitions(OfProducer, frozen=True, kw_only=True):
    """Request to add partitions to a transaction, or only to verify that they are in it."""

    partitions: Sequence[PartitionName]
    verify_only: bool = False


class AddPartitionsBatch(Struct, frozen=True):
    """AddPartitions for several transactions, sent by another server."""

    transactions: Sequence[AddPartitions]
    is_mixed: bool = False
    """True if the request also has the fields for a single transaction."""


class AddedPartitions(Struct, frozen=True):
    """Result for each partition, in the order of the request. All of them were added, or none."""

    results: Sequence[tuple[PartitionName, CoordinatorError | None]]
    error: CoordinatorError | None = None
    """Error if none was added. Then every result has an error: the same one, or, if some partitions are the cause,
    their own, and OPERATION_NOT_ATTEMPTED for the others."""


class AddedBatch(Struct, frozen=True):
    """Result for each transaction, in the order of the request."""

    transactions: Sequence[AddedPartitions]
    error: CoordinatorError | None = None
    """Error if the request was refused as a whole. Every transaction repeats it."""


class AddOffsets(OfProducer, frozen=True, kw_only=True):
    """Request to add a group to a transaction, so that its offsets may be committed in it."""

    group_id: str


class PrepareTransaction(OfProducer, frozen=True, kw_only=True):
    """Request to prepare the open transaction for an outside decision."""

    last_sequences: Sequence[tuple[PartitionName, int]] = ()
    """Records that the log must hold, as in EndTxn."""


class EndTxn(OfProducer, frozen=True, kw_only=True):
    """Request to commit or abort the open transaction."""

    outcome: Outcome
    last_sequences: Sequence[tuple[PartitionName, int]] = ()
    """Sequence number of the last record that the client sent to each partition in this transaction. A commit is
    refused unless the log holds them; an abort needs none of them."""


class Transact(OfProducer, frozen=True):
    """A whole transaction in one request."""

    outcome: Outcome
    batches: Sequence[ClientBatch] = ()
    groups: Sequence[GroupOffsets] = ()
    shares: Sequence[GroupAcknowledgements] = ()


class TransactionFilter(Struct, frozen=True, kw_only=True):
    """Filter of ListTransactions; all its conditions must hold (spec transactions 2.8)."""

    states: Sequence[str] = ()
    """API names; empty for all. Names that do not exist match nothing."""
    producer_ids: Sequence[int] = ()
    open_longer_than_ms: int = -1
    """Negative for any duration, and for ids without a transaction too."""
    id_pattern: str = ""
    limit: int = 0
    """Largest number of ids in the answer, the longest open transaction first; 0 for all, by id."""
    skip: int = 0
    """Number of ids before the first one of the answer, with a limit."""


class Listing(Struct, frozen=True):
    """Transactional ids that matched, and the state names that do not exist."""

    transactions: Sequence[Transaction]
    unknown_states: Sequence[str]
    now_ms: int
    """Wall time of the answer; ages are relative to it."""
    matching: int = 0
    """Number of ids that match, with a limit."""


class StepDescription(Struct, frozen=True):
    """One step of an id, and the client that took it as far as known."""

    after: StoredStep | None
    """None if the id was forgotten."""
    at_ms: int
    client_id: str
    host: str
    cause: str
    fenced: Identity | None
    """Identity that may no longer act."""


class History(Struct, frozen=True):
    """Last steps of an id, the newest first."""

    steps: Sequence[StepDescription]
    is_complete: bool
    """False if there are older steps, or if the search ended before it found them."""


class Description(Struct, frozen=True):
    """Durable state of one transactional id, or the refusal to show it."""

    transactional_id: str
    now_ms: int
    """Wall time of the answer; ages are relative to it."""
    error: CoordinatorError | None = None
    transaction: Transaction | None = None
    partitions: Sequence[PartitionRef] = ()
    """Partitions of the transaction that have a name and that the caller may see. In a decided transaction only those
    whose marker is not durable yet."""
    groups: Sequence[str] = ()
    """Groups of the transaction that the caller may see."""
    shares: Sequence[tuple[str, PartitionRef]] = ()
    """Share groups with records acknowledged in the transaction, each with the partition, as far as the caller may see
    both."""
    history: History | None = None
    """Last steps of the id, even if it was forgotten. None if not requested, or if the caller may not see the id."""
