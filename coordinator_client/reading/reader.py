"""`read`: the records of a topic, one by one; by default only committed ones."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias, TypedDict, Unpack

from coordinator_api.v1 import log_pb2 as log
from coordinator_client.calls import DESCRIBE_TOPICS, LIST_OFFSETS, Deadlines
from coordinator_client.encodings import FetchedBatch
from coordinator_client.errors import check_here, rejected, wrong_argument
from coordinator_client.reading.batch_reader import BatchReader, FetchOptions, PartitionRange
from coordinator_client.reading.snapshots import Snapshot
from coordinator_client.settings import (
    EARLIEST_MS,
    LATEST_MS,
    RAISE,
    Skipped,
    check_durations,
    check_on_corrupt_batch,
    isolation_level,
)
from coordinator_client.tls import Tls
from coordinator_client.transport.connection import Connection, connection_to
from coordinator_client.transport.first_contact import GIVE_UP_MS
from coordinator_client.values import Headers, TopicPartitionCount
from coordinator_protocol.errors import ErrorCode
from coordinator_protocol.marker import Marker
from coordinator_protocol.methods import Method
from coordinator_protocol.names import check_topic_name

EARLIEST: Final = "earliest"
LATEST: Final = "latest"

Position: TypeAlias = str | Mapping[int, int]
"""`earliest`, `latest`, or an offset for each partition."""


class ReadRecord(NamedTuple):
    """A record and its place in the log. With `marker` it is the end of a transaction, which only raw reads show."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    marker: Marker | None = None


class ReadOptions(TypedDict, total=False):
    """The keyword arguments of `read`; `ReadPlan` documents each."""

    isolation: str
    partitions: Collection[int] | None
    start: Position
    end: Position | None
    follow: bool
    raw: bool
    on_corrupt_batch: str
    patience_ms: int
    wait_ms: int | None
    tls: Tls | None
    snapshot: Snapshot | None
    since: Snapshot | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPlan:
    """The options of a read. Raises at construction: Rejected or Misconfigured for impossible or contradictory
    settings."""

    isolation: str = "read_committed"
    """Isolation level. `read_committed` (default): up to the last stable offset, no records of open or aborted
    transactions. `read_uncommitted`: every durable record."""

    partitions: Collection[int] | None = None
    """Numbers of partitions. Default: all of the topic."""

    start: Position = EARLIEST
    """Start position: `earliest`, `latest`, or the first offset for each partition; partitions without one begin at the
    earliest."""

    end: Position | None = LATEST
    """End position. `latest` = the end at the start of the read, taken once for all partitions; or an excluded end
    offset for each partition. Ignored with `follow` if it is `latest`; None only with `follow`."""

    follow: bool = False
    """True to wait for new records at the end, forever unless `end` gives offsets."""

    raw: bool = False
    """True to return aborted records and the markers that end transactions too, for auditors."""

    on_corrupt_batch: str = RAISE
    """Reaction to a batch that cannot be read. `raise` (default): raise CorruptBatch. `skip`: continue after it, and
    count it in `RecordReader.skipped` of the returned reader."""

    patience_ms: int = 60_000
    """Time for which the server may be unreachable, once it was reached, before `Retriable` is raised (ms)."""

    wait_ms: int | None = GIVE_UP_MS
    """Time for which a read that was never connected tries to reach the server before it raises Unreachable (ms).
    Default 1,500. None: as long as each call may take. Used only if `read` makes its own connection (see
    `Connection`)."""

    tls: Tls | None = None
    """TLS settings: how to verify the server and which credentials to present, as in `Tls(ca_file="ca.pem")`. Default:
    no TLS. See `Connection`."""

    snapshot: Snapshot | None = None
    """Snapshot to read (`Admin.take_snapshot`), which has its own start and end. Not with `start`, `end`, `follow`,
    `raw` or another isolation. Default: each partition is read independently."""

    since: Snapshot | None = None
    """Earlier snapshot, with `snapshot`: read only the records that it did not show, each once."""

    def __post_init__(self) -> None:
        for name, position in (("start", self.start), ("end", self.end)):
            _check_position(name, position)
        check_on_corrupt_batch(self.on_corrupt_batch)
        check_durations(self, wrong_argument, may_be_zero=("wait_ms",))
        settings = (self.isolation, self.start, self.end, self.follow, self.raw)
        if self.snapshot is not None and settings != ("read_committed", EARLIEST, LATEST, False, False):
            raise rejected(
                ErrorCode.INVALID_REQUEST,
                "a snapshot says itself where it begins and ends, and shows committed records: leave out isolation, "
                "start, end, follow and raw",
            )
        if self.since is not None and self.snapshot is None:
            raise rejected(ErrorCode.INVALID_REQUEST, "since is compared with a snapshot: give that too")
        if self.end is None and not self.follow:
            raise rejected(ErrorCode.INVALID_REQUEST, "a read without an end never stops: say so with follow=True")
        if self.end == EARLIEST:
            raise rejected(
                ErrorCode.INVALID_REQUEST, "a read that ends at 'earliest' is empty; say 'latest' or offsets"
            )

    @property
    def fetch_options(self) -> FetchOptions:
        """Options for fetching the batches."""
        return FetchOptions(
            isolation=self.isolation,
            is_raw=self.raw,
            on_corrupt_batch=self.on_corrupt_batch,
            patience_ms=self.patience_ms,
        )


class RecordReader(Iterator[ReadRecord]):
    """Iterator returned by `read`, with counts of the skipped batches."""

    def __init__(self, records: Iterator[ReadRecord], skipped: Skipped) -> None:
        self._records = records
        self.skipped = skipped
        """Batches that could not be read, with `on_corrupt_batch="skip"`; grows while iterating."""

    def __next__(self) -> ReadRecord:
        return next(self._records)

    def close(self) -> None:
        """End the iteration early, and close the connection if it was made for it."""
        if isinstance(self._records, Generator):
            self._records.close()


def read(topic: str, endpoint: str | Connection, **options: Unpack[ReadOptions]) -> RecordReader:
    """Return the records of a topic: each partition in the order of its offsets, partitions in turn.

    Options by name: `isolation`, `partitions`, `start`, `end`, `follow`, `raw`, `on_corrupt_batch`, `patience_ms`,
    `wait_ms`, `tls`, `snapshot`, `since` (see `ReadPlan`). Without `follow` the end is taken once, so the iteration
    ends even during concurrent writes. A connection made here is closed with the iterator.

    Raises at the call: Rejected for wrong arguments. Raises while iterating: Rejected for a topic or offset that does
    not exist, CorruptBatch for damaged stored bytes; Retriable if the server stays unreachable.
    """
    plan = ReadPlan(**options)
    fetching = plan.fetch_options
    check_here(check_topic_name, topic, Method.FETCH)
    connection, is_own = connection_to(endpoint, wait_ms=plan.wait_ms, tls=plan.tls)
    skipped = Skipped()

    def records() -> Iterator[ReadRecord]:
        try:
            for ranges in _ranges(connection, topic, plan):
                reader = BatchReader(connection, ranges, fetching)
                reader.skipped = skipped
                for _, found in reader.decoded(_records):
                    yield from found
        finally:
            if is_own:
                connection.close()

    return RecordReader(records(), skipped)


def _ranges(connection: Connection, topic: str, plan: ReadPlan) -> list[list[PartitionRange]]:
    if plan.snapshot is not None:
        return plan.snapshot.ranges(topic, plan.partitions, since=plan.since)
    return [plan_ranges(connection, topic, plan)]


def plan_ranges(connection: Connection, topic: str, plan: ReadPlan) -> list[PartitionRange]:
    """Return the exact range of every partition that the plan asks for; the ends are the current ones.

    Raises: Rejected if the topic, a partition or an end does not exist; Retriable at the deadline.
    """
    deadlines = Deadlines(total_ms=plan.patience_ms)
    described = topic_of(connection, topic, deadlines=deadlines)
    partitions = _chosen(described, plan.partitions)

    def offsets(time_ms: int) -> dict[int, int]:
        wanted = dict.fromkeys(partitions, time_ms)
        return list_offsets(connection, described, wanted, isolation=plan.isolation, deadlines=deadlines)

    earliest = offsets(EARLIEST_MS)
    latest = offsets(LATEST_MS)
    starts = _positions(plan.start, partitions, earliest=earliest, latest=latest)
    if plan.end is None or (plan.follow and plan.end == LATEST):
        ends: dict[int, int | None] = dict.fromkeys(partitions)
    else:
        ends = dict(_positions(plan.end, partitions, earliest=latest, latest=latest))
    for partition, end in ends.items():
        if end is not None and end > latest[partition] and not plan.follow:
            raise rejected(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{topic}-{partition} ends at {latest[partition]} for {plan.isolation} and the read should go up "
                f"to {end}; ask for less, or wait for it with follow=True",
            )
    return [
        PartitionRange(
            topic=topic,
            topic_id=described.topic_id,
            partition=partition,
            start_offset=starts[partition],
            end_offset=ends[partition],
        )
        for partition in partitions
    ]


def topic_of(connection: Connection, topic: str, *, deadlines: Deadlines) -> TopicPartitionCount:
    """Return the topic's UUID and number of partitions.

    Raises: Rejected (UNKNOWN_TOPIC_OR_PARTITION) if it does not exist; Retriable at the deadline.
    """
    request = log.DescribeTopicsRequest(header=connection.header(), topics=[log.TopicName(name=topic)])
    reply = connection.ask(DESCRIBE_TOPICS, request, deadlines=deadlines, items=lambda reply: reply.topics)
    (found,) = reply.topics
    return TopicPartitionCount(name=topic, topic_id=found.topic_id, partition_count=len(found.partitions))


def list_offsets(
    connection: Connection,
    topic: TopicPartitionCount,
    times_ms: dict[int, int],
    *,
    isolation: str,
    deadlines: Deadlines,
) -> dict[int, int]:
    """Return the offset of each partition at a time, or at `EARLIEST_MS` or `LATEST_MS`; all are taken at the same
    moment.

    -1 if no record is that new. Raises: the TransactionError of the first partition that failed; Retriable at the
    deadline.
    """
    request = log.ListOffsetsRequest(header=connection.header(), isolation_level=isolation_level(isolation))
    for partition, time_ms in times_ms.items():
        request.partitions.add(topic=topic.name, topic_id=topic.topic_id, partition=partition, timestamp_ms=time_ms)
    reply = connection.ask(LIST_OFFSETS, request, deadlines=deadlines, items=lambda reply: reply.results)
    return {partition: result.offset for partition, result in zip(times_ms, reply.results, strict=True)}


def _records(batch: FetchedBatch) -> Iterator[ReadRecord]:
    """Return the records of a batch. Raises: CorruptBatch, at the call and not while iterating."""
    topic, partition = batch.topic, batch.partition
    if batch.marker is not None:
        times = batch.header.base_timestamp_ms
        return iter((ReadRecord(topic, partition, batch.first_offset, times, None, None, (), batch.marker),))
    return (
        ReadRecord(topic, partition, offset, timestamp_ms, key, value, headers)
        for offset, (key, value, timestamp_ms, headers) in zip(*batch.placed(), strict=True)
    )


def _chosen(topic: TopicPartitionCount, asked: Collection[int] | None) -> list[int]:
    if asked is None:
        return list(range(topic.partition_count))
    for partition in asked:
        if not 0 <= partition < topic.partition_count:
            raise rejected(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"{topic.name} has the partitions 0 to {topic.partition_count - 1}, and {partition} was asked for",
            )
    return sorted(set(asked))


def _positions(
    position: Position, partitions: list[int], *, earliest: dict[int, int], latest: dict[int, int]
) -> dict[int, int]:
    if isinstance(position, str):
        return earliest if position == EARLIEST else latest
    strangers = sorted(set(position) - set(partitions))
    if strangers:
        raise rejected(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"offsets are given for partitions that are not read: {strangers}"
        )
    return {partition: position.get(partition, earliest[partition]) for partition in partitions}


def _check_position(name: str, position: Position | None) -> None:
    if position is None or position in (EARLIEST, LATEST):
        return
    if isinstance(position, str):
        raise rejected(
            ErrorCode.INVALID_REQUEST,
            f"{name} is {position!r} and must be 'earliest', 'latest' or a mapping from partitions to offsets",
        )
    wrong = {partition: offset for partition, offset in position.items() if offset < 0}
    if wrong:
        raise rejected(ErrorCode.INVALID_REQUEST, f"{name} has offsets below 0: {wrong}")
