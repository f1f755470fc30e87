"""What the server tells an administrator of transactions and of the partitions that they hold up."""

from __future__ import annotations

from dataclasses import dataclass

from coordinator_api.v1 import admin_pb2 as admin
from coordinator_api.v1 import transaction_pb2 as txn
from coordinator_client.state import Identity
from coordinator_protocol.next_event import NextEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionDescription:
    """The positions of one partition. Offsets are half-open: the record at an end is not included."""

    partition: int
    log_start_offset: int
    high_watermark: int
    """End of the durable log."""
    last_stable_offset: int
    """The end for read-committed readers: below it every transaction is decided."""
    open_transactions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionStep:
    """One step of a transactional id."""

    at_ms: int
    state: str
    """Dead: the id was forgotten."""
    cause: str
    """Why: init, add, client, fence, timeout, admin, topic_deleted, prepare, keep or expire."""
    client_id: str
    """With `host` who asked for it; both empty = the server by itself."""
    host: str
    producer_id: int
    """With `producer_epoch` what the client must show after the step; both -1 = the id was forgotten."""
    producer_epoch: int
    fenced: Identity | None
    """Nothing that still shows it is accepted since the step."""
    participants: int
    """Partitions and groups in the transaction."""
    csn: int
    """Number of the outcome; 0 = none is decided."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionDescription:
    """Everything the coordinator knows of one transactional id."""

    transactional_id: str
    state: str
    transaction_timeout_ms: int
    start_ms: int
    producer_id: int
    producer_epoch: int
    partitions: tuple[tuple[str, int], ...]
    """(topic, partition) in the transaction; in a Prepare state only those without a marker yet."""
    groups: tuple[str, ...]
    csn: int
    """Commit sequence number of the last outcome that was decided; 0 = none was yet."""
    last_update_ms: int
    age_ms: int | None
    """How long the transaction has been open or its end under way, by the server's clock; None = none is."""
    two_phase: bool
    """The open transaction waits for somebody else's decision and never times out."""
    prepared_ms: int | None
    """Unix milliseconds at which it was prepared; None where it was not."""
    history: tuple[TransactionStep, ...]
    """The last steps, the newest first; empty if they were not asked for."""
    is_history_complete: bool
    """There are no older steps than these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockingTransaction:
    """The oldest transaction that is open in a partition: committed readers wait for it."""

    start_offset: int
    """Offset of its first record in the partition."""
    start_ms: int
    age_ms: int
    """Time since that record, by the server's clock."""
    identity: Identity | None
    """The identity under which its records were written. None: the caller may not read the topic."""
    transaction: TransactionDescription | None
    """None: no transactional id owns it, or which one does is unknown or hidden."""
    is_owner_hidden: bool
    """A transactional id has the producer id, and the caller may not describe it."""
    time_left_ms: int | None
    """Time until the server aborts it; None = it does not."""
    hanging_reason: str
    """Why nobody will end it: unknown_producer, not_open, other_epoch or not_a_member. Empty: somebody will."""
    transactional_id: str
    """For a transaction that hangs: the id that has its producer id all the same. Empty: none has, or it is hidden."""
    owner_unknown_reason: str
    """Why nobody can tell whose it is. Empty: that is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionExplanation(PartitionDescription):
    """Where committed readers of a partition stand, what they wait for, and what happens next, all at one moment."""

    topic: str
    topic_id: bytes
    undecided_offsets: int
    """Offsets from the last stable offset to the high watermark."""
    next_event: NextEvent
    blocking: BlockingTransaction | None
    """None: nothing is in the way."""


def transaction_description(found: txn.TransactionDescription) -> TransactionDescription:
    """Return a transactional id as the server described it. Of one that it refused, only id and history are told."""
    return TransactionDescription(
        transactional_id=found.transactional_id,
        state=found.state,
        transaction_timeout_ms=found.transaction_timeout_ms,
        start_ms=found.start_ms,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        partitions=tuple((topic.topic, partition) for topic in found.topics for partition in topic.partitions),
        groups=tuple(found.groups),
        csn=found.csn,
        last_update_ms=found.last_update_ms,
        age_ms=found.age_ms if found.HasField("age_ms") else None,
        two_phase=found.two_phase,
        prepared_ms=found.prepared_ms if found.HasField("prepared_ms") else None,
        history=tuple(map(_step, found.history)),
        is_history_complete=found.history_complete,
    )


def _step(step: txn.TransactionStep) -> TransactionStep:
    is_fencing = step.HasField("fenced_producer_id")
    return TransactionStep(
        at_ms=step.at_ms,
        state=step.state,
        cause=step.cause,
        client_id=step.client_id,
        host=step.host,
        producer_id=step.producer_id,
        producer_epoch=step.producer_epoch,
        fenced=Identity(step.fenced_producer_id, step.fenced_producer_epoch) if is_fencing else None,
        participants=step.participants,
        csn=step.csn,
    )


def partition_explanation(reply: admin.ExplainPartitionResponse) -> PartitionExplanation:
    """Return what a successful ExplainPartition told."""
    return PartitionExplanation(
        topic=reply.topic,
        topic_id=reply.topic_id,
        partition=reply.partition,
        log_start_offset=reply.log_start_offset,
        high_watermark=reply.high_watermark,
        last_stable_offset=reply.last_stable_offset,
        open_transactions=reply.open_transactions,
        undecided_offsets=reply.undecided_offsets,
        next_event=NextEvent(reply.next_event),
        blocking=_blocking(reply.blocking) if reply.HasField("blocking") else None,
    )


def _blocking(found: admin.BlockingTransaction) -> BlockingTransaction:
    is_identified = found.HasField("producer_id")
    return BlockingTransaction(
        start_offset=found.start_offset,
        start_ms=found.start_ms,
        age_ms=found.age_ms,
        identity=Identity(found.producer_id, found.producer_epoch) if is_identified else None,
        transaction=transaction_description(found.transaction) if found.HasField("transaction") else None,
        is_owner_hidden=found.owner_hidden,
        time_left_ms=found.time_left_ms if found.HasField("time_left_ms") else None,
        hanging_reason=found.hanging_reason,
        transactional_id=found.transactional_id,
        owner_unknown_reason=found.owner_unknown_reason,
    )
