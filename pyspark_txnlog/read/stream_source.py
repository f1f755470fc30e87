"""Streaming reader of the format `txnlog`. Micro-batches end at last stable offsets, so that each is the same when
Spark repeats it.

A micro-batch is made only if there is a record to show. After markers and aborted records alone, a stream stays at its
position, and looks at them only once. An empty trigger costs the server two calls that look at no record.

This needs Spark 4.2 or newer, the first version whose Python sources support read limits and AvailableNow. Source:
docs/spark.md; Spark's KafkaMicroBatchStream.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from pyspark_txnlog.bounds import FROM_EARLIEST
from pyspark_txnlog.options import SourceOptions, TriggerLimits
from pyspark_txnlog.read.ranges import OffsetRange, Positions
from pyspark_txnlog.read.reading import PlannedPartition, RangeReader, check_dependencies, told_shortly
from pyspark_txnlog.read.splitting import SplitStep
from pyspark_txnlog.read.stream_limits import is_held_back, is_measured, limited
from pyspark_txnlog.read.stream_offsets import (
    Line,
    Vector,
    absent,
    as_positions,
    beginnings,
    behind_hidden,
    changed_incarnations,
    check_named,
    from_json,
    go_on,
    lose,
    standings,
    still_standing,
    to_initial_json,
    to_json,
)
from pyspark_txnlog.read.stream_snapshots import delta_ranges

if TYPE_CHECKING:
    import pyarrow as pa

WINDOW_OFFSETS: Final = 100_000
"""Number of offsets of a partition to look at before it is decided whether to look further."""

_NO_LIMITS: Final = TriggerLimits()

_Done = TypeVar("_Done")


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reader of a stream, micro-batch by micro-batch. Offsets are the JSON of `stream_offsets`.

    Its fields only save work. All lasting state is in the offsets, because Spark may make another reader at any time.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._ranges = RangeReader(options)
        self._target: list[Positions] | None = None
        self._missing: list[str] | None = None
        self._ends: dict[str, Any] | None = None
        self._hidden_to: dict[Line, int] = {}
        self._last_batch_ms: int | None = None
        self._published: Vector | None = None

    @told_shortly
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the start of a new stream, from `startingOffsets` and the options of times.

        Raises: UnknownTopic; InvalidOption, also for offsets beyond the end; DataLoss for offsets before the beginning;
        TransactionError if the server refuses or stays out of reach.
        """
        check_dependencies()
        from pyspark_txnlog.connections import shared_connection
        from pyspark_txnlog.read.planning import read_positions

        options = self._options
        # Spark asks again before it repeats a first micro-batch, and by then a topic may be gone.
        positions = read_positions(shared_connection(options), options, may_lack=not options.is_loss_fatal)
        self._miss(absent(options, {}, positions))
        return to_initial_json(options, positions)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return a limit if the options limit a micro-batch. Spark has no names for all of these limits, so only
        `latestOffset` applies them."""
        if self._options.limits == _NO_LIMITS:
            return ReadAllAvailable()
        return ReadMaxRows(self._options.limits.records_max or 2**63 - 1)

    @told_shortly
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Fix the end of this run: the present last stable offsets. Open transactions are not read."""
        check_dependencies()
        self._target, self._missing = self._positions(), None

    @told_shortly
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the end of the next micro-batch, or `start` itself if there is nothing to show yet.

        Raises DataLoss, InvalidCheckpoint and UnknownTopic. Raises InvalidOption if `startingOffsets` leaves out a
        partition that was there at the start. Raises TransactionError if the server refuses or stays out of reach for
        `rpcTimeoutMs`.
        """
        check_dependencies()
        check_named(start)
        before = from_json(start)
        found = self._positions() if self._target is None else self._target
        missing = absent(self._options, before, found)
        if missing != self._missing and (self._target is None or self._missing is None):
            self._miss(missing)
        self._missing = missing
        return self._while_topics_go(found, lambda left: self._end(start, before, left, limit))

    def _end(self, start: dict[str, Any], before: Vector, found: list[Positions], limit: ReadLimit) -> dict[str, Any]:
        """Return the end of the next micro-batch for the given partitions."""
        positions = self._compared(before, found)
        stands = behind_hidden(before, positions, self._hidden_to)
        ranges = go_on(self._options, stands, positions)
        begun = still_standing(stands, ranges)
        self._publish(begun)
        ends = standings(ranges, is_end=True)
        self._ends = to_json(ends)
        if self._options.is_snapshot:
            ranges = delta_ranges(self._options, before, positions, ranges)
        limits = _NO_LIMITS if isinstance(limit, ReadAllAvailable) else self._options.limits
        if self._target is None and is_held_back(limits, ranges, self._waited_ms()):
            return start
        if self._options.is_snapshot:
            return to_json(ends, begun) if self._shows_anything(ranges) else start
        ranges, steps = self._measured(limits, ranges)
        # If the log start has passed the stream, a micro-batch without a record stores that in the checkpoint.
        # Otherwise the next start could not tell that nothing was lost.
        if not any(steps) and stands == before:
            return start
        self._last_batch_ms = _now_ms()
        return to_json(standings(limited(limits, ranges, steps), is_end=True), begun)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """Return the ends that the last trigger saw, for the progress that Spark reports."""
        return self._ends

    @told_shortly
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the work of a micro-batch.

        It depends on its end alone, because a repetition must give the same: Spark asks again for the start of a first
        micro-batch.

        Raises: InvalidCheckpoint; TransactionError if the server refuses or stays out of reach.
        """
        check_dependencies()
        from pyspark_txnlog.connections import shared_connection
        from pyspark_txnlog.read.planning import gathered_read, split_read

        if start == end:
            # Another source of the query has records to show.
            return []
        before = beginnings(end)
        found = as_positions(from_json(end), is_snapshot=self._options.is_snapshot)

        def planned(left: list[Positions]) -> list[InputPartition]:
            places = {(each.topic, each.partition) for each in left}
            for gone in found:
                if (gone.topic, gone.partition) not in places:
                    lose(self._options, f"{gone.place} is gone, and the micro-batch was to read it up to {gone.end}")
            known = {place: at for place, at in before.items() if place in places}
            positions = self._compared(known, left)
            ranges = go_on(self._options, known, positions)
            if self._options.is_snapshot:
                ranges = delta_ranges(self._options, known, positions, ranges)
            connection = shared_connection(self._options)
            pieces = split_read(connection, self._options, ranges)
            gathered = gathered_read(connection, self._options, pieces)
            return [PlannedPartition(work, connection.known_servers) for work in gathered]

        return self._while_topics_go(found, planned)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the ranges in `partition.value`, one after the other, on an executor. Raises the errors of
        `RangeReader.read`."""
        self._ranges.prepare(partition)
        return chain.from_iterable(self._ranges.rows(found) for found in partition.value or ())

    def _publish(self, stands: Vector) -> None:
        """Set the offsets of the group `groupId` to the position of the stream.

        Spark asks for the next end only after everything before it is written. A failure is a warning, except the first
        time: then the option is wrong.

        Raises: Rejected if the group has members or may not be written.
        """
        if not self._options.group_id or stands == self._published:
            return
        from coordinator_client.errors import Rejected, TransactionError
        from pyspark_txnlog.connections import shared_connection
        from pyspark_txnlog.read.planning import publish_offsets

        try:
            publish_offsets(shared_connection(self._options), self._options, stands)
            self._published = stands
        except TransactionError as error:
            if isinstance(error, Rejected) and self._published is None:
                raise
            warnings.warn(f"the progress of the stream is not published: {error}", RuntimeWarning, stacklevel=2)

    def _positions(self) -> list[Positions]:
        from pyspark_txnlog.connections import shared_connection
        from pyspark_txnlog.read.planning import read_positions

        asked = replace(self._options, starting=FROM_EARLIEST)
        return read_positions(shared_connection(self._options), asked, may_lack=True)

    def _miss(self, names: list[str]) -> None:
        """Fail because of missing topics or partitions, or warn if the options say so. Raises: UnknownTopic."""
        from pyspark_txnlog.read.planning import UnknownTopic

        if not names:
            return
        what = f"the options name {', '.join(names)}, which is not there"
        if self._options.is_loss_fatal:
            raise UnknownTopic(f"{what}: create it, or set failOnDataLoss to false to go on without it")
        warnings.warn(f"{what}: the stream goes on without it", RuntimeWarning, stacklevel=2)

    def _while_topics_go(self, found: list[Positions], work: Callable[[list[Positions]], _Done]) -> _Done:
        """Run work on partitions, and repeat it without topics that are deleted meanwhile. The work finds their
        partitions missing."""
        from coordinator_client.errors import TransactionError
        from pyspark_txnlog.connections import shared_connection
        from pyspark_txnlog.read.deleted_topics import without_deleted

        while True:
            try:
                return work(found)
            except TransactionError as error:
                left = without_deleted(shared_connection(self._options), self._options, found, error)
                gone = {each.topic_id for each in found} - {each.topic_id for each in left}
                if self._target is not None:
                    self._target = [each for each in self._target if each.topic_id not in gone]
                found = left

    def _compared(self, before: Vector, positions: list[Positions]) -> list[Positions]:
        """Return the positions, with the server's comparison of logs whose leader epoch has changed."""
        from pyspark_txnlog.connections import shared_connection
        from pyspark_txnlog.read.planning import compare_incarnations

        asked = changed_incarnations(before, positions)
        return (
            compare_incarnations(shared_connection(self._options), self._options, positions, asked)
            if asked
            else positions
        )

    def _measured(
        self, limits: TriggerLimits, ranges: list[OffsetRange]
    ) -> tuple[list[OffsetRange], list[list[SplitStep]]]:
        """Return the ranges and their visible records, measured as far as needed.

        If records or bytes are limited, the measuring goes a little beyond the limit, and the ranges end there.
        Otherwise it ends with the first visible records, and the ranges stay whole."""
        from pyspark_txnlog.connections import shared_connection
        from pyspark_txnlog.read.planning import SPLIT_STEP_BYTES, measured_steps, refined_steps

        steps: list[list[SplitStep]] = [[] for _ in ranges]
        looked = [max(found.start_offset, self._hidden_to.get(_line(found), 0)) for found in ranges]
        is_whole = limits.records_max or limits.bytes_max
        while True:
            missing = [
                index
                for index, found in enumerate(ranges)
                if looked[index] < found.end_offset and not is_measured(limits, steps[index])
            ]
            if not missing or (any(steps) and not is_whole):
                break
            windows = [
                replace(
                    ranges[index],
                    start_offset=looked[index],
                    end_offset=min(ranges[index].end_offset, looked[index] + WINDOW_OFFSETS),
                )
                for index in missing
            ]
            connection = shared_connection(self._options)
            found_steps = measured_steps(connection, self._options, windows, step_bytes=SPLIT_STEP_BYTES)
            if limits.records_max:
                share = max(1, limits.records_max // len(ranges))
                found_steps = refined_steps(connection, self._options, windows, found_steps, records_max=share)
            for index, window, found in zip(missing, windows, found_steps, strict=True):
                steps[index] += found
                looked[index] = window.end_offset
        self._hidden_to = {
            _line(found): at for found, at, shown in zip(ranges, looked, steps, strict=True) if not shown
        }
        if not is_whole:
            return ranges, steps
        return [replace(found, end_offset=at) for found, at in zip(ranges, looked, strict=True)], steps

    def _shows_anything(self, ranges: list[OffsetRange]) -> bool:
        """True if a micro-batch of snapshots has a visible record. A later snapshot may show more in the same ranges,
        so a negative result is not remembered."""
        from pyspark_txnlog.connections import shared_connection
        from pyspark_txnlog.read.planning import measured_steps

        connection = shared_connection(self._options)
        if not any(measured_steps(connection, self._options, ranges, step_bytes=WINDOW_OFFSETS)):
            return False
        self._last_batch_ms = _now_ms()
        return True

    def _waited_ms(self) -> int | None:
        return None if self._last_batch_ms is None else _now_ms() - self._last_batch_ms


def _line(found: OffsetRange) -> Line:
    return Line(found.topic_id, found.partition, found.start_offset, found.leader_epoch)


def _now_ms() -> int:
    from coordinator_client.clock import SystemClock

    return SystemClock().monotonic_ms()
