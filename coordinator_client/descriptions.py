"""The server's descriptions for administrators as frozen values, and their constructors from protobuf messages.

They describe transactions, the partitions that transactions hold up, and groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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


CLASSIC = "classic"
CONSUMER = "consumer"
SHARE = "share"
STREAMS = "streams"
EMPTY = "Empty"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupListing:
    """One group, as `Admin.list_groups` returns it."""

    group_id: str
    group_type: str
    """Type of the group: `classic`, `consumer`, `share` or `streams`."""
    state: str
    protocol_type: str
    """Protocol of its members: "consumer", and "share" or "streams" in groups of these types. Empty for a group that
    only has offsets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberTasks:
    """Tasks of a member of a streams group: pairs of a subtopology and a partition."""

    process_id: str
    """Process of the member, which has each task at most once."""
    active: tuple[tuple[str, int], ...]
    standby: tuple[tuple[str, int], ...]
    warmup: tuple[tuple[str, int], ...]
    lags: Mapping[tuple[str, int], int]
    """Changelog records that the member lacks, by task, as it last reported them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    """A member of a group, and its partitions."""

    member_id: str
    instance_id: str | None
    """Name of a static member; None for a dynamic one."""
    rack_id: str | None
    client_id: str
    client_host: str
    epoch: int | None
    """Member epoch reached so far; None in a classic group, where all members share the generation."""
    subscribed_topic_names: tuple[str, ...]
    """Topics named in the subscription; empty in a classic group while it rebalances."""
    subscribed_topic_regex: str | None
    assignment: tuple[TopicPartition, ...]
    """Partitions of the member. In a share group others may have them too. Empty in a classic group while it
    rebalances, or if its members are not consumers."""
    target_assignment: tuple[TopicPartition, ...] | None
    """Partitions that the member will have once other members have released theirs. None in a classic group, and in a
    share group, whose members wait for none."""
    is_classic: bool
    """True if the member speaks the classic protocol, in a group of either type."""
    tasks: MemberTasks | None = None
    """Tasks of a member of a streams group, whose partitions are those that its active tasks read; None in others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    """Everything that the coordinator knows of one group."""

    group_id: str
    group_type: str
    state: str
    protocol_type: str
    assignor: str
    """Name of the assignor; empty if none was agreed on."""
    epoch: int
    """Group epoch; the generation in a classic group."""
    assignment_epoch: int | None
    """Group epoch for which the target assignment was computed; None in a classic group."""
    leader: str
    """Member that computes the assignment; empty in the other groups, where the server computes it."""
    members: tuple[GroupMember, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingOffset:
    """An offset that is committed if its transaction commits."""

    transactional_id: str
    producer_id: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOffset:
    """The committed and pending offsets of a group in one partition."""

    partition: TopicPartition
    committed: OffsetAndMetadata | None
    """Committed offset; None if nothing is committed yet and a transaction holds the first offset."""
    commit_timestamp_ms: int | None
    """Time of the commit (Unix ms)."""
    pending: tuple[PendingOffset, ...]
    """Offsets of open transactions. Consumers that require stable offsets wait while there are any."""
    topic_id: bytes = field(default=b"", compare=False)
    """Id of the topic to which the offset belongs; empty if unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordCount:
    """Number of records between an offset and the ends of its partition. Markers are not counted."""

    to_last_stable_offset: int
    """Number of records that a read-committed reader can read now."""
    to_high_watermark: int
    """Number of all records, including those of open and aborted transactions."""
    log_start_offset: int
    last_stable_offset: int
    high_watermark: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLag:
    """The committed offset of a group in one partition, and the number of records from it on."""

    offset: GroupOffset
    lag: RecordCount | None
    """Number of records from the committed offset on; None if nothing is committed or the topic no longer exists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareGroupOffset:
    """The progress of a share group in one partition."""

    partition: TopicPartition
    start_offset: int | None
    """All records before it are done; None if the group has not fetched from the partition yet."""
    leader_epoch: int
    """Leader epoch of the newest records that were delivered."""
    lag: int | None
    """Number of records from `start_offset` on that are not done; None without a start offset."""
    topic_id: bytes = field(default=b"", compare=False)
    due_letters: int = 0
    """Number of records that the group has given up, and whose letters are not yet in its dead-letter topic. They
    are not delivered until then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionPositions:
    """The ends of a partition, and the offset that a group has committed in it."""

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
    """Offset from which the group would continue now; None if nothing is committed."""
    offset: int
    wanted_offset: int
    """Offset that the rule yields. `offset` differs if this lies outside the log, which goes from its start to the high
    watermark."""
    topic_id: bytes = field(default=b"", compare=False)
    """Id of the topic for which the plan was made."""
    is_behind_all: bool = field(default=False, compare=False)
    """True if the rule is a time and no record is that new. Then the offset is the last stable offset, after all
    readable records. Plans are compared without this remark."""


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


def share_group_offset(found: group.ShareGroupOffset) -> ShareGroupOffset:
    """Return the progress of a share group."""
    has_begun = found.start_offset >= 0
    return ShareGroupOffset(
        partition=TopicPartition(found.topic, found.partition),
        start_offset=found.start_offset if has_begun else None,
        leader_epoch=found.leader_epoch,
        lag=found.lag if has_begun else None,
        topic_id=found.topic_id,
        due_letters=found.due_letters,
    )


def described_share(found: group.ShareGroupDescription) -> GroupDescription:
    """Return the description of a share group."""
    return GroupDescription(
        group_id=found.group_id,
        group_type=SHARE,
        state=found.group_state,
        protocol_type=SHARE,
        assignor=found.assignor_name,
        epoch=found.group_epoch,
        assignment_epoch=found.assignment_epoch,
        leader="",
        members=tuple(
            GroupMember(
                member_id=member.member_id,
                instance_id=None,
                rack_id=member.rack_id if member.HasField("rack_id") else None,
                client_id=member.client_id,
                client_host=member.client_host,
                epoch=member.member_epoch,
                subscribed_topic_names=tuple(member.subscribed_topic_names),
                subscribed_topic_regex=None,
                assignment=_partitions(member.assignment),
                target_assignment=None,
                is_classic=False,
            )
            for member in found.members
        ),
    )


def described_classic(found: group.GroupDescription) -> GroupDescription:
    """Return the description of a classic group. Metadata and assignments of its members are opaque bytes; only those
    of consumers have a known format."""
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
    """Return the committed position from an answer that has one."""
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
    # A member with metadata in another format is still listed, without topics.
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
