"""Descriptions of transactions, and of partitions with the transactions that hold them up."""

from __future__ import annotations

from dataclasses import dataclass

from coordinator_api.v1 import admin_pb2 as admin
from coordinator_api.v1 import log_pb2 as log
from coordinator_api.v1 import transaction_pb2 as txn
from coordinator_client.values import Identity
from coordinator_protocol.next_event import NextEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochDescription:
    """A leader epoch of one partition's log; the record at an offset never changes within one epoch."""

    epoch: int
    start_offset: int
    """First offset of the epoch."""
    began_ms: int
    cause: str
    """Reason for the epoch: created, data_loss or restore."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionDescription:
    """The positions of one partition. Offsets are half-open: the record at an end is not included."""

    partition: int
    log_start_offset: int
    high_watermark: int
    """End of the durable log."""
    last_stable_offset: int
    """End of the log for read-committed readers; every transaction below it is decided."""
    open_transactions: int
    leader_epochs: tuple[EpochDescription, ...] = ()
    """All leader epochs of the partition, ascending; the last one is current."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedRecords:
    """The log start of a partition after records were deleted."""

    low_watermark: int
    """First offset that is left."""
    held_back: str
    """Reason why the log starts before the requested offset; empty if it does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionStep:
    """One step in the history of a transactional id."""

    at_ms: int
    state: str
    """State after the step. Dead: the id was forgotten."""
    cause: str
    """Cause of the step: init, add, client, fence, timeout, admin, topic_deleted, prepare, keep, lost_line or expire.
    For members of a sink's batch also join, decision or given_up."""
    client_id: str
    """Client that asked for the step, together with `host`; both empty = the server itself."""
    host: str
    producer_id: int
    """Producer id of the identity that the client must show after the step, with `producer_epoch`; both -1 = the id was
    forgotten."""
    producer_epoch: int
    fenced: Identity | None
    """Identity that the step fenced: no request that shows it is accepted any more. None if the step fenced no
    identity."""
    participants: int
    """Number of partitions, groups, and partitions of share groups in the transaction."""
    csn: int
    """Commit sequence number of the outcome; 0 = none is decided."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionDescription:
    """Everything that the coordinator knows of one transactional id."""

    transactional_id: str
    state: str
    transaction_timeout_ms: int
    start_ms: int
    producer_id: int
    producer_epoch: int
    partitions: tuple[tuple[str, int], ...]
    """(topic, partition) in the transaction; in a Prepare state only those without a marker yet."""
    groups: tuple[str, ...]
    shares: tuple[tuple[str, str, int], ...]
    """(share group, topic, partition) of records acknowledged in the transaction."""
    csn: int
    """Commit sequence number of the last outcome decided for this id, which orders the outcomes of the id; 0 = none
    yet."""
    last_update_ms: int
    age_ms: int | None
    """Time since the transaction opened (ms), by the server's clock; None = none is open or being ended."""
    two_phase: bool
    """True if the open transaction waits for an outside decision and never times out."""
    prepared_ms: int | None
    """Time at which the transaction was prepared (Unix ms); None if it was not prepared."""
    history: tuple[TransactionStep, ...]
    """The last steps, newest first; empty if they were not requested."""
    is_history_complete: bool
    """True if there are no older steps than these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockingTransaction:
    """The oldest open transaction in a partition; committed readers wait for it."""

    start_offset: int
    """Offset of its first record in the partition."""
    start_ms: int
    age_ms: int
    """Time since that record was written (ms), by the server's clock."""
    identity: Identity | None
    """Identity under which its records were written; None if the caller may not read the topic."""
    transaction: TransactionDescription | None
    """Description of the transaction; None if no transactional id owns it, or if its owner is unknown or hidden."""
    is_owner_hidden: bool
    """True if a transactional id has the producer id but the caller may not describe it."""
    time_left_ms: int | None
    """Time until the server aborts it (ms); None if no timeout will end it."""
    hanging_reason: str
    """Reason why the transaction hangs: unknown_producer, not_open, other_epoch or not_a_member. Empty if it does not
    hang."""
    transactional_id: str
    """For a hanging transaction, the id that has its producer id but not this transaction. Empty if there is none or it
    is hidden."""
    owner_unknown_reason: str
    """Reason why the owner cannot be determined; empty if the owner is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionExplanation(PartitionDescription):
    """Position of a partition's committed readers, the transaction they wait for, and the next event, all at one
    moment."""

    topic: str
    topic_id: bytes
    undecided_offsets: int
    """Number of offsets from the last stable offset to the high watermark."""
    next_event: NextEvent
    blocking: BlockingTransaction | None
    """Transaction that committed readers wait for; None if no transaction is open."""


def transaction_description(found: txn.TransactionDescription) -> TransactionDescription:
    """Return a transactional id as the server described it. If the server refused to describe it, only id and history
    are set."""
    return TransactionDescription(
        transactional_id=found.transactional_id,
        state=found.state,
        transaction_timeout_ms=found.transaction_timeout_ms,
        start_ms=found.start_ms,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        partitions=tuple((topic.topic, partition) for topic in found.topics for partition in topic.partitions),
        groups=tuple(found.groups),
        shares=tuple(
            (share.group_id, topic.topic, partition)
            for share in found.shares
            for topic in share.topics
            for partition in topic.partitions
        ),
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
        participants=step.participant_count,
        csn=step.csn,
    )


def partition_explanation(reply: admin.ExplainPartitionResponse) -> PartitionExplanation:
    """Return the explanation from a successful ExplainPartition response."""
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


def leader_epoch(found: log.LeaderEpoch) -> EpochDescription:
    """Return a leader epoch of a partition."""
    name = log.LeaderEpochCause.Name(found.cause) if found.cause in log.LeaderEpochCause.values() else str(found.cause)
    return EpochDescription(
        epoch=found.epoch,
        start_offset=found.start_offset,
        began_ms=found.began_ms,
        cause=name.removeprefix("LEADER_EPOCH_CAUSE_").lower(),
    )
