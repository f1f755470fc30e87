"""Offsets and lag of groups, from the messages of the server."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from coordinator_api.v1 import group_pb2 as group
from coordinator_api.v1.common_pb2 import TopicPartitions
from coordinator_client.values import OffsetAndMetadata, TopicPartition


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
