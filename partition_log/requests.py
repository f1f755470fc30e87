"""The commands that the services of the log take, named as the RPCs are, and the values that they give.

A result that is a refusal carries its error and nothing else that means anything, unless its class says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from msgspec import Struct

from coordinator_protocol.batch import BatchHeader
from coordinator_protocol.errors import CoordinatorError
from coordinator_protocol.snapshots import SnapshotFilter
from coordinator_protocol.wire import Buffer
from coordinator_runtime.ports import ClientBatch, OpenInPartition, PartitionName, PartitionRef
from partition_log.catalog.settings import SettingValue
from partition_log.catalog.state import MorePartitions, NewTopic, TopicToAlter
from partition_log.counting import NOTHING_COUNTED, Counted
from partition_log.measuring import NO_COMMITS, NOTHING_MEASURED, Commits, Measured
from partition_log.state import AbortedTransaction, Isolation, PartitionHead, ProducerEntry


class CreateTopics(Struct, frozen=True):
    """Topics to be created."""

    topics: Sequence[NewTopic]
    validate_only: bool = False
    """Check only; create nothing."""


class NamedPartition(Struct, frozen=True):
    """What is asked of one partition or told of it, by the name that the request has for it."""

    name: PartitionName


class TopicName(Struct, frozen=True):
    """A topic by name, by id, or by both."""

    name: str
    topic_id: bytes = b""


class DeleteTopics(Struct, frozen=True):
    """Topics to be deleted with their records."""

    topics: Sequence[TopicName]


class DescribeTopics(Struct, frozen=True):
    """Topics to be described; none: all of them."""

    topics: Sequence[TopicName] = ()


class CreatePartitions(Struct, frozen=True):
    """Topics that shall have more partitions."""

    topics: Sequence[MorePartitions]


class AlterTopicConfigs(Struct, frozen=True):
    """Topics whose settings shall change."""

    topics: Sequence[TopicToAlter]


class DescribeTopicConfigs(Struct, frozen=True):
    """Topics whose settings are asked for; none: those of all topics."""

    topics: Sequence[TopicName] = ()


class TopicConfigs(TopicName, frozen=True):
    """All settings of a topic, also those that it does not have itself."""

    settings: Sequence[SettingValue] = ()
    error: CoordinatorError | None = None


class TopicResult(TopicName, frozen=True):
    """What became of one topic of a request."""

    partition_count: int = 0
    error: CoordinatorError | None = None


class DescribedTopic(TopicName, frozen=True):
    """A topic with the durable positions of its partitions, by partition number."""

    heads: tuple[PartitionHead, ...] = ()
    config: Mapping[str, str] = MappingProxyType({})
    """The value of every setting, also of those that the topic does not have itself."""
    error: CoordinatorError | None = None


class Produce(Struct, frozen=True):
    """Batches to be appended, one per partition."""

    transactional_id: str | None
    """The transactional id, which transactional batches name and no others."""
    batches: Sequence[ClientBatch]


class ProduceResult(NamedPartition, frozen=True):
    """What became of one batch."""

    base_offset: int = 0
    """-1 with DUPLICATE_SEQUENCE_NUMBER: the records are in the log, where is not remembered."""
    log_start_offset: int = 0
    """The partition's first offset, given with UNKNOWN_PRODUCER_ID, too: it tells the producer whether retention has
    removed what it wrote last."""
    is_duplicate: bool = False
    error: CoordinatorError | None = None


class FetchItem(NamedPartition, frozen=True):
    """What a reader wants of one partition."""

    fetch_offset: int
    end_offset: int | None = None
    """Stop before this offset; None: only the isolation level bounds the read."""
    partition_bytes_max: int = 0
    """0: as much as the whole answer may have."""
    current_leader_epoch: int | None = None
    """The leader epoch that the reader takes for the present one; None: it does not say."""
    last_read_epoch: int | None = None
    """The leader epoch of what it has read before `fetch_offset`; None: it does not say, and is not told where the log
    is another one than it read."""
    end_epoch: int | None = None
    """The leader epoch in which `end_offset` was learned; None: it does not say, and is not told where the log before
    that is another one by now."""
    shown: SnapshotFilter | None = None
    """What a snapshot shows of the range, which has an end and its epoch then; None: it is read as it is now."""


class Fetch(Struct, frozen=True):
    """What a reader wants, and how long it waits for it."""

    items: Sequence[FetchItem]
    isolation: Isolation = Isolation.READ_COMMITTED
    wait_ms_max: int = 0
    bytes_min: int = 1
    bytes_max: int = 1 << 20
    is_raw: bool = False
    """Hide nothing, and list the aborted transactions."""


class FetchResult(NamedPartition, frozen=True):
    """What was found in one partition. With OFFSET_OUT_OF_RANGE the head is there too, so that the reader knows what is
    in range; the error is a `leadership.Diverged` where the log is another one than it read."""

    next_offset: int
    """Offset from which the log goes on behind the damage, with CORRUPT_MESSAGE."""
    head: PartitionHead | None = None
    batches: tuple[tuple[BatchHeader, Buffer], ...] = ()
    """Headers and stored forms."""
    aborted_records_hidden: int = 0
    control_records_hidden: int = 0
    aborted: tuple[AbortedTransaction, ...] = ()
    error: CoordinatorError | None = None
    last_read_epoch: int | None = None
    """The leader epoch of what lies before `next_offset`, to be named with it; None: unknown, nothing was read."""


EARLIEST_TIMESTAMP = -2
LATEST_TIMESTAMP = -1


class OffsetQuery(NamedPartition, frozen=True):
    """A position asked for by end or by time."""

    timestamp_ms: int
    """LATEST_TIMESTAMP, EARLIEST_TIMESTAMP, or Unix milliseconds."""
    current_leader_epoch: int | None = None
    """The leader epoch that the caller takes for the present one; None: it does not say."""


class ListOffsets(Struct, frozen=True):
    """Positions asked for; all are taken at the same moment."""

    queries: Sequence[OffsetQuery]
    isolation: Isolation = Isolation.READ_COMMITTED


class OffsetResult(NamedPartition, frozen=True):
    """A position. -1 for both numbers: no record is that new."""

    offset: int = 0
    timestamp_ms: int = 0
    error: CoordinatorError | None = None
    leader_epoch: int | None = None
    """The epoch of the offset; None without one."""


class CountQuery(NamedPartition, frozen=True):
    """Asks how many records lie from an offset on."""

    start_offset: int


class CountRecords(Struct, frozen=True):
    """Counts asked for; all are taken at the same moment."""

    queries: Sequence[CountQuery]


class CountResult(NamedPartition, frozen=True):
    """Records from an offset on, as far as one call counts, and the positions under which they were counted."""

    counted: Counted = NOTHING_COUNTED
    head: PartitionHead | None = None
    error: CoordinatorError | None = None


class AskedRange(NamedPartition, frozen=True):
    """A range of a partition, its end not included."""

    start_offset: int
    end_offset: int


class MeasureQuery(AskedRange, frozen=True):
    """Asks where the visible records of a range lie."""

    shown: SnapshotFilter | None = None
    """What a snapshot shows of it; None: it is measured as it is now."""


class MeasureRecords(Struct, frozen=True):
    """Ranges to be measured; all are at the same moment."""

    queries: Sequence[MeasureQuery]
    step_bytes: int = 0
    isolation: Isolation = Isolation.READ_COMMITTED


class MeasureResult(NamedPartition, frozen=True):
    """Where the visible records of a range lie, as far as one call measures."""

    measured: Measured = NOTHING_MEASURED
    error: CoordinatorError | None = None


class ListCommitted(Struct, frozen=True):
    """Ranges whose committed transactions are asked for; all are looked at at the same moment."""

    ranges: Sequence[AskedRange]


class CommittedResult(NamedPartition, frozen=True):
    """What was committed in a range, as far as one call reads."""

    commits: Commits = NO_COMMITS
    error: CoordinatorError | None = None


class RecordsToDelete(NamedPartition, frozen=True):
    """Asks that a partition begins at an offset."""

    offset: int
    """The first offset that stays; `state.HIGH_WATERMARK`: all that there is goes."""


class DeleteRecords(Struct, frozen=True):
    """Records to be deleted; no partition twice."""

    partitions: Sequence[RecordsToDelete]


class DeleteRecordsResult(NamedPartition, frozen=True):
    """Where the log of a partition begins now, and what kept it from beginning further on."""

    low_watermark: int = 0
    held_back: str = ""
    """Empty: nothing did."""
    error: CoordinatorError | None = None


class DescribeProducers(Struct, frozen=True):
    """Partitions whose producers are asked for."""

    names: Sequence[PartitionName]


class PartitionStanding(Struct, frozen=True):
    """Where a partition stands at one moment, durable state."""

    ref: PartitionRef
    head: PartitionHead
    oldest_open: OpenInPartition | None
    """The transaction that committed readers wait for."""


class ProducersDescription(NamedPartition, frozen=True):
    """The producers that a partition remembers, durable state, by producer id."""

    producers: tuple[tuple[int, ProducerEntry], ...] = ()
    error: CoordinatorError | None = None
