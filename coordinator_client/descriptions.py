"""What the server tells an administrator, as frozen values: transactions, the partitions that they hold up, and groups;
and the functions that make them of messages.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from coordinator_api.v1 import admin_pb2 as admin
from coordinator_api.v1 import group_pb2 as group
from coordinator_api.v1 import log_pb2 as log
from coordinator_api.v1 import transaction_pb2 as txn
from coordinator_api.v1.common_pb2 import TopicPartitions
from coordinator_client.values import Identity, OffsetAndMetadata, TopicPartition
from coordinator_protocol.consumer_protocol import PROTOCOL_TYPE, decode_assignment, subscribed_topics
from coordinator_protocol.errors import Refused
from coordinator_protocol.next_event import NextEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochDescription:
    """A line of one partition's log: what lies at an offset never changes within one."""

    epoch: int
    start_offset: int
    """The first offset of the epoch."""
    began_ms: int
    cause: str
    """Why it began: created, data_loss or restore."""


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
    leader_epochs: tuple[EpochDescription, ...] = ()
    """All that the partition was in, ascending; the last one is the present one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedRecords:
    """Where a partition begins, after records of it were to be deleted."""

    low_watermark: int
    """The first offset that is left."""
    held_back: str
    """What kept it from beginning where it was asked to; empty: nothing did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionStep:
    """One step of a transactional id."""

    at_ms: int
    state: str
    """Dead: the id was forgotten."""
    cause: str
    """Why: init, add, client, fence, timeout, admin, topic_deleted, prepare, keep, lost_line or
    expire."""
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
    """Commit sequence number of the last outcome that was decided, in the order of this id's; 0 = none was yet."""
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
        participants=step.participant_count,
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


CLASSIC = "classic"
CONSUMER = "consumer"
EMPTY = "Empty"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupListing:
    """One group, as `Admin.list_groups` returns it."""

    group_id: str
    group_type: str
    """`classic` or `consumer`."""
    state: str
    protocol_type: str
    """The protocol of its members, "consumer" for consumers; empty for a group that only has offsets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    """A member of a group, and its partitions."""

    member_id: str
    instance_id: str | None
    """The name of a static member; None for a dynamic one."""
    rack_id: str | None
    client_id: str
    client_host: str
    epoch: int | None
    """The epoch that it has reached; None in a classic group, whose members share the generation."""
    subscribed_topic_names: tuple[str, ...]
    """Empty in a classic group while it rebalances."""
    subscribed_topic_regex: str | None
    assignment: tuple[TopicPartition, ...]
    """Empty in a classic group while it rebalances, and where its members are no consumers."""
    target_assignment: tuple[TopicPartition, ...] | None
    """What it will get once the others have given up what they must; None in a classic group."""
    is_classic: bool
    """Whether it speaks the classic protocol, in a group of either type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    """Everything the coordinator knows of one group."""

    group_id: str
    group_type: str
    state: str
    protocol_type: str
    assignor: str
    """Empty where none was agreed on."""
    epoch: int
    """Group epoch; in a classic group its generation."""
    assignment_epoch: int | None
    """Group epoch that the target assignment was computed for; None in a classic group."""
    leader: str
    """Member that computes the assignment; empty in a consumer group, where the server does."""
    members: tuple[GroupMember, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingOffset:
    """An offset that is committed if its transaction commits, and that transaction."""

    transactional_id: str
    producer_id: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOffset:
    """What a group has committed in one partition."""

    partition: TopicPartition
    committed: OffsetAndMetadata | None
    """None where nothing is committed yet, and a transaction holds the first offset."""
    commit_timestamp_ms: int | None
    """Unix milliseconds."""
    pending: tuple[PendingOffset, ...]
    """While there are any, consumers that must process nothing twice wait."""
    topic_id: bytes = field(default=b"", compare=False)
    """The id of the topic that the offset is of; empty where it is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordCount:
    """How many records lie between an offset and the ends of its partition. Markers are no records."""

    to_last_stable_offset: int
    """Records that a read-committed reader gets now."""
    to_high_watermark: int
    """All records, also those of open and aborted transactions."""
    log_start_offset: int
    last_stable_offset: int
    high_watermark: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLag:
    """What a group has committed in one partition, and how many records lie behind that."""

    offset: GroupOffset
    lag: RecordCount | None
    """None where nothing is committed, or the topic does not exist any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionPositions:
    """Where a partition begins and ends, and what a group has committed in it."""

    log_start_offset: int
    last_stable_offset: int
    high_watermark: int
    committed_offset: int | None
    topic_id: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedOffset:
    """The result of a planned offset reset in one partition."""

    partition: TopicPartition
    committed_offset: int | None
    """Where the group would go on now; None where nothing is committed."""
    offset: int
    wanted_offset: int
    """What the rule asked for: different from `offset` where it lies outside the log, which goes from its start to the
    high watermark."""
    topic_id: bytes = field(default=b"", compare=False)
    """The id of the topic that the plan was made for."""
    is_behind_all: bool = field(default=False, compare=False)
    """True where the rule is a time and no record is that new: the offset is the last stable offset, behind all records
    that can be read. A remark on the plan, which compares without it."""


def described_consumer(found: group.ConsumerGroupDescription) -> GroupDescription:
    """Return the description of a consumer group."""
    return GroupDescription(
        group_id=found.group_id,
        group_type=CONSUMER,
        state=found.group_state,
        protocol_type=PROTOCOL_TYPE,
        assignor=found.assignor_name,
        epoch=found.group_epoch,
        assignment_epoch=found.assignment_epoch,
        leader="",
        members=tuple(
            GroupMember(
                member_id=member.member_id,
                instance_id=member.instance_id if member.HasField("instance_id") else None,
                rack_id=member.rack_id if member.HasField("rack_id") else None,
                client_id=member.client_id,
                client_host=member.client_host,
                epoch=member.member_epoch,
                subscribed_topic_names=tuple(member.subscribed_topic_names),
                subscribed_topic_regex=(
                    member.subscribed_topic_regex if member.HasField("subscribed_topic_regex") else None
                ),
                assignment=_partitions(member.assignment),
                target_assignment=_partitions(member.target_assignment),
                is_classic=member.is_classic,
            )
            for member in found.members
        ),
    )


def described_classic(found: group.GroupDescription) -> GroupDescription:
    """Return the description of a classic group. The metadata and assignments of its members are opaque bytes; only
    those of consumers have a format that is known here."""
    is_of_consumers = found.protocol_type == PROTOCOL_TYPE
    return GroupDescription(
        group_id=found.group_id,
        group_type=CLASSIC,
        state=found.group_state,
        protocol_type=found.protocol_type,
        assignor=found.protocol_name,
        epoch=found.generation_id,
        assignment_epoch=None,
        leader=found.leader,
        members=tuple(
            GroupMember(
                member_id=member.member_id,
                instance_id=member.group_instance_id if member.HasField("group_instance_id") else None,
                rack_id=None,
                client_id=member.client_id,
                client_host=member.client_host,
                epoch=None,
                subscribed_topic_names=_subscribed(member.metadata) if is_of_consumers else (),
                subscribed_topic_regex=None,
                assignment=_assigned(member.assignment) if is_of_consumers else (),
                target_assignment=None,
                is_classic=True,
            )
            for member in found.members
        ),
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


def committed_in(found: group.FetchedOffset) -> OffsetAndMetadata:
    """Return the committed position in an answer that has one."""
    epoch = found.committed_leader_epoch if found.HasField("committed_leader_epoch") else None
    return OffsetAndMetadata(found.committed_offset, found.metadata, epoch)


def group_offset(found: group.FetchedOffset) -> GroupOffset:
    """Return an offset of a group, or the transactions that it waits for."""
    is_committed = found.committed_offset >= 0 and not found.error_code
    return GroupOffset(
        partition=TopicPartition(found.topic, found.partition),
        committed=committed_in(found) if is_committed else None,
        commit_timestamp_ms=found.commit_timestamp_ms if is_committed else None,
        pending=tuple(
            PendingOffset(
                transactional_id=waiting.transactional_id, producer_id=waiting.producer_id, offset=waiting.offset
            )
            for waiting in found.pending
        ),
        topic_id=found.topic_id,
    )


def topic_partitions(partitions: Iterable[TopicPartition]) -> list[TopicPartitions]:
    """Return the partitions grouped by topic, each once."""
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(set(partitions)):
        by_topic.setdefault(topic, []).append(partition)
    return [TopicPartitions(topic=topic, partitions=numbers) for topic, numbers in by_topic.items()]


def _partitions(topics: Iterable[TopicPartitions]) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(each.topic, partition) for each in topics for partition in each.partitions)


def _subscribed(metadata: bytes) -> tuple[str, ...]:
    # A member that writes something else there is shown all the same.
    try:
        return tuple(sorted(subscribed_topics(metadata))) if metadata else ()
    except Refused:
        return ()


def _assigned(assignment: bytes) -> tuple[TopicPartition, ...]:
    try:
        shares = decode_assignment(assignment).partitions if assignment else {}
    except Refused:
        return ()
    return tuple(TopicPartition(topic, partition) for topic in sorted(shares) for partition in shares[topic])
