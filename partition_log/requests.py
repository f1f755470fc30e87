"""Commands of the log's services, named as the RPCs are, and the values that the services return.

In a refused result only the error has a meaning, unless its class says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from msgspec import Struct

from coordinator_protocol.batch import ENCODINGS_OF_OLD_READERS, NO_LEADER_EPOCH, BatchHeader, Encoding
from coordinator_protocol.errors import CoordinatorError
from coordinator_protocol.snapshots import SnapshotFilter
from coordinator_protocol.wire import Buffer
from coordinator_runtime.ports import ClientBatch, OpenInPartition, PartitionName, PartitionRef
from partition_log.catalog.settings import SettingValue
from partition_log.catalog.state import MorePartitions, NewTopic, TopicToAlter
from partition_log.counting import NOTHING_COUNTED, Counted
from partition_log.measuring import NO_COMMITS, NOTHING_MEASURED, Commits, Measured
from partition_log.state import NO_OFFSET, AbortedTransaction, Isolation, PartitionHead, ProducerEntry


class CreateTopics(Struct, frozen=True):
    """Topics to be created."""

    topics: Sequence[NewTopic]
    validate_only: bool = False
    """Check only; create nothing."""


class NamedPartition(Struct, frozen=True):
    """Base class of queries and results of one partition, under the name that the request has for it."""

    name: PartitionName


class TopicName(Struct, frozen=True):
    """A topic by name, by id, or by both."""

    name: str
    topic_id: bytes = b""


class DeleteTopics(Struct, frozen=True):
    """Topics to be deleted with their records."""

    topics: Sequence[TopicName]


class DescribeTopics(Struct, frozen=True):
    """Topics to be described; empty for all topics."""

    topics: Sequence[TopicName] = ()


class LookUpTopics(Struct, frozen=True):
    """Topics whose ids and partitions are asked for, and nothing else of them."""

    topics: Sequence[TopicName] | None = None
    """None for all topics that the caller may see."""


class CreatePartitions(Struct, frozen=True):
    """Topics that get more partitions."""

    topics: Sequence[MorePartitions]


class AlterTopicConfigs(Struct, frozen=True):
    """Topics whose settings change."""

    topics: Sequence[TopicToAlter]


class DescribeTopicConfigs(Struct, frozen=True):
    """Topics whose settings are asked for; empty for all topics."""

    topics: Sequence[TopicName] = ()


class TopicConfigs(TopicName, frozen=True):
    """All settings of a topic, including those that it inherits."""

    settings: Sequence[SettingValue] = ()
    error: CoordinatorError | None = None


class TopicResult(TopicName, frozen=True):
    """Result for one topic of a request."""

    partition_count: int = 0
    error: CoordinatorError | None = None


class DescribedTopic(TopicName, frozen=True):
    """A topic with the durable positions of its partitions, by partition number."""

    heads: tuple[PartitionHead, ...] = ()
    config: Mapping[str, str] = MappingProxyType({})
    """Value of every setting, including those that the topic inherits."""
    error: CoordinatorError | None = None


class FoundTopic(TopicName, frozen=True):
    """A topic with the current leader epoch of each partition, by partition number."""

    leader_epochs: Sequence[int | None] = ()
    """None for a partition whose shard does not serve at this moment."""
    error: CoordinatorError | None = None


class Produce(Struct, frozen=True):
    """Batches to be appended, one per partition."""

    transactional_id: str | None
    """Transactional id. Requests with transactional batches name it, and no others do."""
    batches: Sequence[ClientBatch]


class ProduceResult(NamedPartition, frozen=True):
    """Result for one batch."""

    base_offset: int = 0
    """Offset of the batch. -1 with DUPLICATE_SEQUENCE_NUMBER: the records are in the log, but their offset is no longer
    remembered."""
    log_start_offset: int = 0
    """First offset of the partition, also given with UNKNOWN_PRODUCER_ID. It tells the producer whether retention has
    removed its last records."""
    is_duplicate: bool = False
    error: CoordinatorError | None = None


class FetchItem(NamedPartition, frozen=True):
    """A reader's request for one partition."""

    fetch_offset: int
    end_offset: int | None = None
    """Offset to stop before; None if only the isolation level bounds the read."""
    partition_bytes_max: int = 0
    """Largest size of the batches from this partition; 0 for the limit of the whole answer."""
    current_leader_epoch: int | None = None
    """Leader epoch that the reader takes for the current one; None if it does not say."""
    last_read_epoch: int | None = None
    """Leader epoch of the last record that the reader has read before `fetch_offset`. None if it does not say; then it
    does not learn that the log differs from what it read."""
    end_epoch: int | None = None
    """Leader epoch in which `end_offset` was learned. None if the reader does not say; then it does not learn that the
    log before that offset has changed."""
    shown: SnapshotFilter | None = None
    """Snapshot filter for the range, which then has an end and its epoch; None to read the log as it is now."""


class Fetch(Struct, frozen=True):
    """A reader's request, and its longest wait."""

    items: Sequence[FetchItem]
    isolation: Isolation = Isolation.READ_COMMITTED
    wait_ms_max: int = 0
    bytes_min: int = 1
    bytes_max: int = 1 << 20
    is_raw: bool = False
    """True to hide nothing and list the aborted transactions."""
    accepted_encodings: frozenset[Encoding] = ENCODINGS_OF_OLD_READERS
    """Encodings of visible batches that the reader can decode."""


class FetchResult(NamedPartition, frozen=True):
    """Result for one partition. With OFFSET_OUT_OF_RANGE it has the head, too, so that the reader learns the valid
    range. The error is a `leadership.Diverged` if the log differs from what the reader has read."""

    next_offset: int
    """Offset to read on from. With CORRUPT_MESSAGE, the offset at which the log continues behind the damage. With
    UNSUPPORTED_FOR_MESSAGE_FORMAT, the offset behind the batch that the reader cannot decode."""
    head: PartitionHead | None = None
    batches: tuple[tuple[BatchHeader, Buffer], ...] = ()
    """Headers and stored forms of batches."""
    aborted_records_hidden: int = 0
    control_records_hidden: int = 0
    aborted: tuple[AbortedTransaction, ...] = ()
    error: CoordinatorError | None = None
    last_read_epoch: int | None = None
    """Leader epoch of the records before `next_offset`, to be named with it; None if it is unknown because nothing was
    read."""


LATEST_TIMESTAMP = -1
EARLIEST_TIMESTAMP = -2
NEWEST_TIMESTAMP = -3
"""Kafka's `MAX_TIMESTAMP`."""
EARLIEST_LOCAL_TIMESTAMP = -4
"""The same as EARLIEST_TIMESTAMP, because all of a log lies on this server."""


class OffsetQuery(NamedPartition, frozen=True):
    """A query for a position: an end, the newest record, or a time."""

    timestamp_ms: int
    """One of the four positions above, or Unix milliseconds."""
    current_leader_epoch: int | None = None
    """Leader epoch that the caller takes for the current one; None if it does not say."""


class ListOffsets(Struct, frozen=True):
    """Queries for positions. All are taken at the same moment."""

    queries: Sequence[OffsetQuery]
    isolation: Isolation = Isolation.READ_COMMITTED


class OffsetResult(NamedPartition, frozen=True):
    """A position. Both numbers are -1 if no record is that new."""

    offset: int = 0
    timestamp_ms: int = 0
    error: CoordinatorError | None = None
    leader_epoch: int | None = None
    """Leader epoch of the offset; None without an offset."""


class EpochQuery(NamedPartition, frozen=True):
    """A query for the end of a leader epoch in this log."""

    epoch: int
    current_leader_epoch: int | None = None
    """Leader epoch that the caller takes for the current one; None if it does not say."""


class OffsetForLeaderEpoch(Struct, frozen=True):
    """Queries for ends of leader epochs. All are taken at the same moment."""

    queries: Sequence[EpochQuery]


class EpochEndResult(NamedPartition, frozen=True):
    """The end of a leader epoch. Both numbers are -1 if the log knows no such epoch."""

    epoch: int = NO_LEADER_EPOCH
    end_offset: int = NO_OFFSET
    error: CoordinatorError | None = None


class CountQuery(NamedPartition, frozen=True):
    """A query for the number of records from an offset on."""

    start_offset: int


class CountRecords(Struct, frozen=True):
    """Queries for counts. All are taken at the same moment."""

    queries: Sequence[CountQuery]


class CountResult(NamedPartition, frozen=True):
    """Number of records from an offset on, as far as one call counts, and the positions under which they were
    counted."""

    counted: Counted = NOTHING_COUNTED
    head: PartitionHead | None = None
    error: CoordinatorError | None = None


class AskedRange(NamedPartition, frozen=True):
    """A range of a partition, with an exclusive end."""

    start_offset: int
    end_offset: int


class MeasureQuery(AskedRange, frozen=True):
    """A query for the positions of the visible records in a range."""

    shown: SnapshotFilter | None = None
    """Snapshot filter for the range; None to measure the log as it is now."""


class MeasureRecords(Struct, frozen=True):
    """Ranges to be measured, all at the same moment."""

    queries: Sequence[MeasureQuery]
    step_bytes: int = 0
    isolation: Isolation = Isolation.READ_COMMITTED


class MeasureResult(NamedPartition, frozen=True):
    """Positions of the visible records in a range, as far as one call measures."""

    measured: Measured = NOTHING_MEASURED
    error: CoordinatorError | None = None


class ListCommitted(Struct, frozen=True):
    """Ranges whose committed transactions are asked for, all at the same moment."""

    ranges: Sequence[AskedRange]


class CommittedResult(NamedPartition, frozen=True):
    """Transactions that were committed in a range, as far as one call reads."""

    commits: Commits = NO_COMMITS
    error: CoordinatorError | None = None


class RecordsToDelete(NamedPartition, frozen=True):
    """A request to begin a partition's log at an offset."""

    offset: int
    """First offset that stays. `state.HIGH_WATERMARK` deletes all records."""


class DeleteRecords(Struct, frozen=True):
    """Records to be deleted. No partition occurs twice."""

    partitions: Sequence[RecordsToDelete]


class DeleteRecordsResult(NamedPartition, frozen=True):
    """New log start of a partition."""

    low_watermark: int = 0
    held_back: str = ""
    """Reason why the log start is before the requested offset; empty if nothing held it back."""
    error: CoordinatorError | None = None


class DescribeProducers(Struct, frozen=True):
    """Partitions whose producers are asked for."""

    names: Sequence[PartitionName]


class PartitionStanding(Struct, frozen=True):
    """Durable state of a partition at one moment."""

    ref: PartitionRef
    head: PartitionHead
    oldest_open: OpenInPartition | None
    """Transaction that committed readers wait for."""


class ProducersDescription(NamedPartition, frozen=True):
    """Producers that a partition remembers in durable state, by producer id."""

    producers: tuple[tuple[int, ProducerEntry], ...] = ()
    error: CoordinatorError | None = None
