"""Planning of a read: asks the server for positions once, and fixes the ranges."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from typing import Final

from coordinator_api.v1 import common_pb2 as common
from coordinator_api.v1 import group_pb2 as group
from coordinator_api.v1 import log_pb2 as log
from coordinator_client.admin.admin import Admin, TopicDescription
from coordinator_client.calls import FETCH, LIST_OFFSETS, MEASURE_RECORDS, OFFSET_FETCH, Deadlines
from coordinator_client.encodings import FetchedBatch
from coordinator_client.errors import TOPIC_GONE, Rejected, TransactionError
from coordinator_client.reading.batch_reader import BatchReader, FetchOptions, PartitionRange, filter_message
from coordinator_client.reading.snapshots import take_snapshot_of
from coordinator_client.settings import EARLIEST_MS, LATEST_MS, isolation_level
from coordinator_client.transport.connection import Connection
from coordinator_client.values import OffsetAndMetadata, TopicPartition
from coordinator_protocol.batch import TimestampType
from coordinator_protocol.errors import ErrorCode
from coordinator_protocol.limits import MEBI
from pyspark_txnlog.bounds import COMMITTED, AtTime, Position
from pyspark_txnlog.options import SourceOptions, Topics
from pyspark_txnlog.read.deleted_topics import existing_topics
from pyspark_txnlog.read.ranges import OffsetRange, Positions, places_of, plan_ranges
from pyspark_txnlog.read.splitting import SplitStep, gathered, is_thin, split_ranges
from pyspark_txnlog.read.stream_offsets import Vector

SPLIT_STEP_BYTES: Final = 256 * 1024
"""Step size for measuring ranges before a split (bytes). Also the size up to which small ranges share a task."""

_SHARED_OFFSETS_MAX: Final = 10_000
"""Largest number of offsets of a range that may share a task. Longer ranges are not measured for that."""

_MEASURED_AT_ONCE_MAX: Final = 200
"""Largest number of ranges measured by one call, because each costs the server a look-up and its work is limited."""

FETCH_BYTES: Final = 4 * MEBI
"""Largest size of one reply to a task (bytes)."""


class UnknownTopic(LookupError):
    """A topic or partition of the read does not exist, or was replaced by another one."""


def plan_read(connection: Connection, options: SourceOptions, *, may_lack: bool = False) -> list[OffsetRange]:
    """Return the range of each partition to read, including empty ones; all ends are of one moment. `may_lack` is
    passed to `read_positions`.

    Raises: UnknownTopic, InvalidOption, DataLoss; TransactionError if the server refuses or stays out of reach.
    """
    return plan_ranges(options, read_positions(connection, options, lease_ms=options.lease_ms, may_lack=may_lack))


def split_read(connection: Connection, options: SourceOptions, planned: Sequence[OffsetRange]) -> list[OffsetRange]:
    """Return the work of each task: the ranges that have offsets, split according to the options.

    Raises: TransactionError if the server refuses or stays out of reach.
    """
    filled = [found for found in planned if found.offset_count > 0]
    if len(filled) >= options.min_partitions and not options.partition_records_max:
        return filled
    steps = measured_steps(connection, options, filled, step_bytes=SPLIT_STEP_BYTES)
    if options.partition_records_max:
        steps = refined_steps(connection, options, filled, steps, records_max=options.partition_records_max)
    return split_ranges(filled, steps, options.min_partitions, options.partition_records_max)


def gathered_read(
    connection: Connection, options: SourceOptions, pieces: Sequence[OffsetRange]
) -> list[tuple[OffsetRange, ...]]:
    """Return the work of each task of a micro-batch.

    Small pieces share a task, unless the options define the split. A task keeps Python workers of Spark busy for a
    while, however little it reads.

    Raises: TransactionError if the server refuses or stays out of reach.
    """
    short = [index for index, piece in enumerate(pieces) if piece.offset_count <= _SHARED_OFFSETS_MAX]
    if len(short) < 2 or options.min_partitions or options.partition_records_max:
        return [(piece,) for piece in pieces]
    measured = measured_steps(connection, options, [pieces[index] for index in short], step_bytes=SPLIT_STEP_BYTES)
    sizes: list[int | None] = [None] * len(pieces)
    for index, steps in zip(short, measured, strict=True):
        sizes[index] = sum(step.size_bytes for step in steps)
    return gathered(pieces, sizes, SPLIT_STEP_BYTES)


def measured_steps(
    connection: Connection, options: SourceOptions, ranges: Sequence[OffsetRange], *, step_bytes: int
) -> list[list[SplitStep]]:
    """Return the visible records of each range, in steps of about `step_bytes` bytes.

    Raises: TransactionError if the server refuses or stays out of reach.
    """
    steps: list[list[SplitStep]] = [[] for _ in ranges]
    missing = {index: found.start_offset for index, found in enumerate(ranges) if found.offset_count > 0}
    while missing:
        asked = list(islice(missing, _MEASURED_AT_ONCE_MAX))
        request = log.MeasureRecordsRequest(
            header=connection.header(), isolation_level=isolation_level(options.fetch_isolation), step_bytes=step_bytes
        )
        for index in asked:
            found = ranges[index]
            request.partitions.add(
                topic=found.topic,
                topic_id=found.topic_id,
                partition=found.partition,
                start_offset=missing[index],
                end_offset=found.end_offset,
                snapshot=filter_message(found.shown),
            )
        reply = connection.ask(
            MEASURE_RECORDS,
            request,
            deadlines=Deadlines(total_ms=options.rpc_timeout_ms),
            items=lambda reply: reply.results,
        )
        for index, result in zip(asked, reply.results, strict=True):
            steps[index] += [
                SplitStep(one.first_offset, one.end_offset, one.records, one.size_bytes) for one in result.steps
            ]
            # The result ends before the range if the rest cannot be read any more. The task will report it.
            is_over = result.next_offset >= ranges[index].end_offset
            if is_over or (index == asked[0] and result.next_offset <= missing[index]):
                del missing[index]
            else:
                missing[index] = result.next_offset
    return steps


def refined_steps(
    connection: Connection,
    options: SourceOptions,
    ranges: Sequence[OffsetRange],
    steps: Sequence[Sequence[SplitStep]],
    *,
    records_max: int,
) -> list[list[SplitStep]]:
    """Return the steps of each range, with thin ones of more records than `records_max` divided into their batches.

    In a compacted log, a step may have few records at many offsets. Cuts inside it would be blind.

    Raises: TransactionError if the server refuses or stays out of reach.
    """
    wide = [
        (index, step)
        for index, found in enumerate(steps)
        for step in found
        if step.records > records_max and is_thin(step)
    ]
    windows = [
        replace(ranges[index], start_offset=step.first_offset, end_offset=step.end_offset) for index, step in wide
    ]
    measured = measured_steps(connection, options, windows, step_bytes=1)
    divided = {place: found for place, found in zip(wide, measured, strict=True) if len(found) > 1}
    finer = [[one for step in found for one in divided.get((index, step), [step])] for index, found in enumerate(steps)]
    # The server measures the first index entry of a window by its batches, and others as a whole.
    return refined_steps(connection, options, ranges, finer, records_max=records_max) if divided else finer


def first_offsets_since(
    connection: Connection, options: SourceOptions, ranges: Sequence[OffsetRange], time_ms: int
) -> dict[tuple[str, int], int]:
    """Return the first offset of the time or later in each range, or the end of the range. Servers of version 1.0.0
    return the start of the batch instead."""
    places = [(found, time_ms) for found in ranges]
    results = _list_offsets(connection, options, places)
    return {
        (found.topic, found.partition): found.end_offset if result.offset < 0 else result.offset
        for (found, _), result in zip(places, results, strict=True)
    }


def read_positions(
    connection: Connection, options: SourceOptions, *, lease_ms: int = 0, may_lack: bool = False
) -> list[Positions]:
    """Return start and end of each partition to read, and the offsets of the places that the options name.

    The server takes starts, ends and times at the same moment. For a snapshot, which is held for `lease_ms`, it takes
    the times before it. With `may_lack`, missing topics and partitions are left out, and the caller decides if that
    matters.

    Raises: UnknownTopic; TransactionError if the server refuses or stays out of reach.
    """
    chosen = _chosen_partitions(connection, options, may_lack=may_lack)
    while chosen:
        try:
            return _positions(connection, options, chosen, lease_ms)
        except TransactionError as error:
            # A topic may be deleted after the first request, which found it by its name.
            if error.code not in TOPIC_GONE:
                raise
            before, chosen = chosen, _chosen_partitions(connection, options, may_lack=may_lack)
            if _ids_of(chosen) == _ids_of(before):
                raise
    return []


def _ids_of(chosen: Sequence[tuple[TopicDescription, int]]) -> set[bytes]:
    return {topic.topic_id for topic, _ in chosen}


def _positions(
    connection: Connection, options: SourceOptions, chosen: Sequence[tuple[TopicDescription, int]], lease_ms: int
) -> list[Positions]:
    committed = _committed(connection, options)
    bare = [
        Positions(
            topic=topic.name,
            topic_id=topic.topic_id,
            partition=partition,
            earliest=0,
            end=0,
            committed=committed.get((topic.name, partition)),
        )
        for topic, partition in chosen
    ]
    placed = _placed(connection, options, bare)
    if options.is_snapshot:
        placed = _in_snapshot(connection, options, placed, lease_ms)
    timed = [_exactly(connection, options, found) for found in placed]
    return _compared(connection, options, timed)


def _placed(connection: Connection, options: SourceOptions, bare: list[Positions]) -> list[Positions]:
    """Return the partitions with their ends, and with the offsets of times according to the index."""
    times = [[place for place in places_of(options, found) if isinstance(place, AtTime)] for found in bare]
    asked_for = [
        (found, time_ms)
        for found, asked in zip(bare, times, strict=True)
        for time_ms in (EARLIEST_MS, LATEST_MS, *(place.timestamp_ms for place in asked))
    ]
    results = iter(_list_offsets(connection, options, asked_for))
    placed: list[Positions] = []
    for found, asked in zip(bare, times, strict=True):
        first, end = next(results), next(results)
        offsets = [next(results).offset for _ in asked]
        placed.append(
            replace(
                found,
                earliest=first.offset,
                end=end.offset,
                leader_epoch=end.leader_epoch if end.HasField("leader_epoch") else None,
                offset_at={place: None if at < 0 else at for place, at in zip(asked, offsets, strict=True)},
            )
        )
    return placed


def _in_snapshot(
    connection: Connection, options: SourceOptions, placed: list[Positions], lease_ms: int
) -> list[Positions]:
    """Return the partitions with the positions of a snapshot taken now."""
    numbers: dict[tuple[str, bytes], list[int]] = {}
    for found in placed:
        numbers.setdefault((found.topic, found.topic_id), []).append(found.partition)
    places = [
        common.TopicPartitions(topic=topic, topic_id=topic_id, partitions=partitions)
        for (topic, topic_id), partitions in numbers.items()
    ]
    deadlines = Deadlines(total_ms=options.rpc_timeout_ms)
    taken = take_snapshot_of(connection, places, lease_ms=lease_ms, deadlines=deadlines)
    views = [taken.views[found.topic, found.partition] for found in placed]
    return [
        replace(
            found,
            earliest=view.start_offset,
            end=view.end_offset,
            leader_epoch=view.leader_epoch,
            # Nothing is shown before the start, and a delta to a later snapshot need not look there.
            excluded={each: max(first, view.start_offset) for each, first in view.excluded.items()},
            compaction=view.compaction,
            snapshot_id=taken.snapshot_id,
        )
        for found, view in zip(placed, views, strict=True)
    ]


def _list_offsets(
    connection: Connection, options: SourceOptions, asked: Sequence[tuple[Positions | OffsetRange, int]]
) -> Sequence[log.OffsetResult]:
    """Return the offsets of times in partitions, all of one moment."""
    # Records of a snapshot may lie beyond the last stable offset.
    isolation = "read_uncommitted" if options.is_snapshot else options.isolation
    request = log.ListOffsetsRequest(header=connection.header(), isolation_level=isolation_level(isolation))
    for found, time_ms in asked:
        request.partitions.add(
            topic=found.topic, topic_id=found.topic_id, partition=found.partition, timestamp_ms=time_ms
        )
    reply = connection.ask(
        LIST_OFFSETS,
        request,
        deadlines=Deadlines(total_ms=options.rpc_timeout_ms),
        items=lambda reply: reply.results,
    )
    return reply.results


def _exactly(connection: Connection, options: SourceOptions, found: Positions) -> Positions:
    """Return the partition with the exact offset of the first record of each time.

    A server of version 1.0.0 returns the batch of that record, aborted or not. A later server has returned the record
    already, unless it could not open the batch.
    """
    offset_at = dict(found.offset_at)
    for place, offset in found.offset_at.items():
        if offset is None:
            continue
        asked = replace(options, isolation="read_uncommitted")
        whole = OffsetRange(
            topic=found.topic,
            topic_id=found.topic_id,
            partition=found.partition,
            start_offset=offset,
            end_offset=found.end,
        )
        for batch in open_range(connection, asked, whole, max_bytes=1):
            offset_at[place] = _first_from(batch, place)
            break
    return replace(found, offset_at=offset_at)


def _first_from(batch: FetchedBatch, time: AtTime) -> int:
    """Return the offset of the first record of the batch with the time or later."""
    if batch.header.timestamp_type is not TimestampType.CREATE_TIME:
        return batch.first_offset
    offsets, rows = batch.placed()
    found = zip(offsets, rows, strict=True)
    return next((offset for offset, row in found if row[2] >= time.timestamp_ms), batch.end_offset)


def _committed(connection: Connection, options: SourceOptions) -> dict[tuple[str, int], Position]:
    """Return the committed offsets of the group, if the options begin there. Waits for offsets that transactions
    hold."""
    if options.starting != Position(COMMITTED):
        return {}
    request = group.OffsetFetchRequest(
        header=connection.header(),
        groups=[group.OffsetFetchGroup(group_id=options.group_id)],
        require_stable=True,
    )
    reply = connection.ask(
        OFFSET_FETCH,
        request,
        deadlines=Deadlines(total_ms=options.rpc_timeout_ms),
        items=lambda reply: [*reply.groups, *(each for found in reply.groups for each in found.offsets)],
    )
    return {
        (each.topic, each.partition): Position(
            each.committed_offset, each.committed_leader_epoch if each.HasField("committed_leader_epoch") else None
        )
        for each in reply.groups[0].offsets
        if each.committed_offset >= 0
    }


def publish_offsets(connection: Connection, options: SourceOptions, stands: Vector) -> None:
    """Set the offsets of the group `groupId` to the position of a stream, so that tools that show groups show its lag.

    No offset is set in a topic that is gone or was created again. The stream decides if that is a loss.

    Raises: Rejected if the group has members or may not be written; TransactionError.
    """
    offsets = {
        TopicPartition(*place): OffsetAndMetadata(at.offset, leader_epoch=at.leader_epoch)
        for place, at in stands.items()
    }
    topic_ids = {TopicPartition(*place): at.topic_id for place, at in stands.items()}
    admin = Admin(connection, deadline_ms=options.rpc_timeout_ms)
    try:
        admin.alter_group_offsets(options.group_id, offsets, topic_ids=topic_ids)
    except Rejected as error:
        if error.code not in TOPIC_GONE:
            raise


def _compared(connection: Connection, options: SourceOptions, positions: list[Positions]) -> list[Positions]:
    """Return the positions, compared with the server for every start or end with a leader epoch.

    The comparison follows the request for the ends. If the log changes only then, the tasks notice it by the ends.
    """
    asked = [
        (found, place)
        for found in positions
        for place in places_of(options, found)
        if isinstance(place, Position) and place.leader_epoch is not None
    ]
    return compare_incarnations(connection, options, positions, asked) if asked else positions


def compare_incarnations(
    connection: Connection,
    options: SourceOptions,
    positions: list[Positions],
    asked: Sequence[tuple[Positions, Position]],
) -> list[Positions]:
    """Return the positions with the offset at which the log diverged, for each position in `asked` of a different log.

    The server compares the leader epochs.

    Raises: TransactionError if the server refuses or stays out of reach.
    """
    request = log.FetchRequest(header=connection.header(), isolation_level=isolation_level(options.fetch_isolation))
    for found, position in asked:
        # Fetch an empty range that ends where it begins: nothing is read, and the log before it is compared.
        request.partitions.add(
            topic=found.topic,
            topic_id=found.topic_id,
            partition=found.partition,
            fetch_offset=position.offset,
            end_offset=position.offset,
            last_read_epoch=position.leader_epoch,
        )
    reply = connection.ask(
        FETCH,
        request,
        deadlines=Deadlines(total_ms=options.rpc_timeout_ms),
        items=lambda reply: [
            result.fields for result in reply.results if result.fields.error_code != ErrorCode.OFFSET_OUT_OF_RANGE.value
        ],
    )
    parted: dict[tuple[str, int], dict[Position, int]] = {}
    for (found, position), result in zip(asked, reply.results, strict=True):
        if result.fields.HasField("diverging"):
            parted.setdefault((found.topic, found.partition), {})[position] = result.fields.diverging.end_offset
    return [replace(found, parted_at=parted.get((found.topic, found.partition), {})) for found in positions]


def _chosen_partitions(
    connection: Connection, options: SourceOptions, *, may_lack: bool
) -> list[tuple[TopicDescription, int]]:
    chosen: list[tuple[TopicDescription, int]] = []
    for topic in _described(connection, options, may_lack=may_lack):
        wanted_id = options.topic_ids.get(topic.name, topic.topic_id)
        if wanted_id != topic.topic_id:
            raise UnknownTopic(
                f"the topic {topic.name} with the id {wanted_id.hex()} is gone; another one of that name was created"
            )
        numbers: Sequence[int] = [found.partition for found in topic.partitions]
        if options.topics.assigned is not None:
            wanted = options.topics.assigned[topic.name]
            unknown = sorted(set(wanted) - set(numbers))
            if may_lack:
                wanted = tuple(number for number in wanted if number not in unknown)
            elif unknown:
                raise UnknownTopic(f"{topic.name} has {len(numbers)} partitions, counted from 0, and no {unknown[0]}")
            numbers = wanted
        chosen += [(topic, number) for number in numbers]
    return chosen


def _described(connection: Connection, options: SourceOptions, *, may_lack: bool) -> list[TopicDescription]:
    admin = Admin(connection, deadline_ms=options.rpc_timeout_ms)
    topics: Topics = options.topics
    if not topics.pattern:
        names = topics.names or tuple(topics.assigned or ())
        return existing_topics(connection, options, names) if may_lack else admin.describe_topics(names)
    pattern = re.compile(topics.pattern)
    found = [topic for topic in admin.describe_topics() if pattern.fullmatch(topic.name)]
    if not found:
        # As in the Kafka source, the first topic may be created later. But a typing error looks the same.
        warnings.warn(
            f"subscribePattern {topics.pattern!r} matches no topic of the server", RuntimeWarning, stacklevel=2
        )
    return found


def what_is_left(
    connection: Connection, options: SourceOptions, scanned: OffsetRange, position: int, error: TransactionError
) -> OffsetRange | None:
    """Return the rest of a range whose oldest records were deleted during the read, if the options allow that.

    `position` is the offset that the read has reached. The result is None if the error has another cause, or if a loss
    is fatal.

    Raises: TransactionError if the server refuses or stays out of reach.
    """
    if options.is_loss_fatal or error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
        return None
    earliest = _list_offsets(connection, options, [(scanned, EARLIEST_MS)])[0].offset
    if earliest <= position:
        return None
    warnings.warn(
        f"{scanned.topic}-{scanned.partition} begins at {earliest} by now and the read was at {position}: records "
        "before it are gone",
        RuntimeWarning,
        stacklevel=2,
    )
    return replace(scanned, start_offset=min(earliest, scanned.end_offset))


def open_range(
    connection: Connection, options: SourceOptions, scanned: OffsetRange, *, max_bytes: int = FETCH_BYTES
) -> BatchReader:
    """Return a reader of exactly this range, with `max_bytes` or one batch at a time. Nothing is fetched yet."""
    asked = PartitionRange(
        topic=scanned.topic,
        topic_id=scanned.topic_id,
        partition=scanned.partition,
        start_offset=scanned.start_offset,
        end_offset=scanned.end_offset,
        end_epoch=scanned.leader_epoch,
        shown=scanned.shown,
    )
    fetching = FetchOptions(
        isolation=options.fetch_isolation,
        max_bytes=max_bytes,
        on_corrupt_batch=options.on_corrupt_batch,
        patience_ms=options.rpc_timeout_ms,
    )
    return BatchReader(connection, [asked], fetching)
