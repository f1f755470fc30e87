"""Batches of a topic on a running server, each with the result of its transaction."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import partial

import typer

from coordinator_client.encodings import FetchedBatch
from coordinator_client.errors import CorruptBatch
from coordinator_client.reading.batch_reader import AbortedTransaction, BatchReader, FetchOptions, Hidden
from coordinator_client.reading.reader import ReadPlan, list_offsets, plan_ranges
from coordinator_client.settings import EARLIEST_MS, LATEST_MS, RAISE, Skipped
from coordinator_client.transport.connection import Connection
from coordinator_client.values import TopicPartitionCount
from coordinator_protocol.batch import HEADER_BYTES
from coordinator_server.exits import CommandFailed, ExitStatus
from txnctl.commands.log_rows import Fate, LoggedBatch, Placed, chosen_partitions
from txnctl.commands.options import utc_moment
from txnctl.commands.remote import deadlines, topic_there

Position = str | int | datetime
"""Start of a read: `earliest`, `latest`, an offset in every partition, or a time."""


def parse_position(text: str) -> Position:
    """Parse the position to start at. Raises BadParameter with the allowed forms."""
    if text in ("earliest", "latest"):
        return text
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        return utc_moment(text)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is no position: write earliest, latest, an offset such as 42, or a time such as"
            " 2026-11-21T08:30 (UTC unless it says otherwise)",
            param_hint="--from",
        ) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Parameters of one read."""

    topic: str
    partitions: list[int] | None
    start: Position
    isolation: str
    is_raw: bool
    is_following: bool = False
    on_corrupt_batch: str = RAISE
    timeout_ms: int


class RemoteLog:
    """Iterator over the batches of a topic, each partition in order.

    Unless it follows the topic, it ends at the end that the log had when the read began."""

    def __init__(self, connection: Connection, wanted: Wanted) -> None:
        """Raises CommandFailed for a topic, partition or position that does not exist, and TransactionError."""
        self._connection = connection
        self._wanted = wanted
        self._deadlines = deadlines(wanted.timeout_ms)
        self.is_behind_all = False
        """True if the read starts at a time and no record is that new. It then starts at the end."""
        found = topic_there(connection, wanted.topic, wanted.timeout_ms)
        self._topic = TopicPartitionCount(
            name=found.name, topic_id=found.topic_id, partition_count=len(found.partitions)
        )
        self._partitions = chosen_partitions(found.name, len(found.partitions), wanted.partitions)
        plan = ReadPlan(
            isolation=wanted.isolation,
            partitions=self._partitions,
            start=self._start(),
            follow=wanted.is_following,
            raw=wanted.is_raw,
            patience_ms=wanted.timeout_ms,
        )
        self._stable = self._offsets(LATEST_MS, "read_committed")
        ranges = plan_ranges(connection, wanted.topic, plan)
        options = FetchOptions(
            isolation=wanted.isolation,
            is_raw=wanted.is_raw,
            on_corrupt_batch=wanted.on_corrupt_batch,
            patience_ms=wanted.timeout_ms,
        )
        self.starts = {each.partition: each.start_offset for each in ranges}
        """First offset to read of each partition."""
        ends = [each.end_offset - each.start_offset for each in ranges if each.end_offset is not None]
        self.offset_count = sum(ends) if len(ends) == len(ranges) else None
        """Number of offsets to read; None for a reader that follows."""
        self._reader = BatchReader(connection, ranges, options)
        self._aborted: defaultdict[tuple[int, int], list[AbortedTransaction]] = defaultdict(list)
        self._aborted_count = 0

    @property
    def skipped(self) -> Skipped:
        """Counts of the places that were skipped so far because they cannot be read."""
        return self._reader.skipped

    @property
    def hidden(self) -> Hidden:
        """Numbers of records and markers that were hidden so far."""
        return self._reader.hidden

    def with_what_is_corrupt(self) -> Iterator[LoggedBatch | CorruptBatch]:
        """Yield the batches, and in place of each unreadable one its error.

        The records of a batch are decoded only on demand, which may raise CorruptBatch, too."""
        left_out: list[CorruptBatch] = []
        self._reader.skipped.on_skip = left_out.append
        for batch in self._reader:
            yield from left_out
            left_out.clear()
            yield self._logged(batch, batch.placed)
        yield from left_out

    def __iter__(self) -> Iterator[LoggedBatch]:
        if not self._reader.skips:
            yield from (self._logged(batch, batch.placed) for batch in self._reader)
            return
        for batch, records in self._reader.decoded(FetchedBatch.placed):
            yield self._logged(batch, partial(_found, records))

    def _logged(self, batch: FetchedBatch, records: Callable[[], Placed]) -> LoggedBatch:
        return LoggedBatch(
            topic=batch.topic,
            partition=batch.partition,
            header=batch.header,
            marker=batch.marker,
            fate=self._fate(batch),
            size_bytes=HEADER_BYTES + len(batch.content),
            first_offset=batch.first_offset,
            records=records,
        )

    def _start(self) -> str | dict[int, int]:
        start = self._wanted.start
        if isinstance(start, str):
            return start
        earliest, latest = self._offsets(EARLIEST_MS), self._offsets(LATEST_MS)
        if isinstance(start, datetime):
            return self._since(max(0, round(start.timestamp() * 1000)), latest)
        if all(start > end for end in latest.values()):
            raise CommandFailed(
                ExitStatus.PROBLEM,
                f"--from {start} lies beyond the end of {self._wanted.topic}, which is at"
                f" {max(latest.values())} for {self._wanted.isolation}",
            )
        return {partition: min(max(start, earliest[partition]), latest[partition]) for partition in self._partitions}

    def _since(self, time_ms: int, latest: dict[int, int]) -> dict[int, int]:
        """Return the offset of the first record of a time or later in each partition, or else the end of the
        partition."""
        is_raw = self._wanted.is_raw
        # A raw read shows aborted records, so it searches uncommitted ones: a committed search would skip them. It
        # still ends where the isolation level does.
        found = self._offsets(time_ms, "read_uncommitted" if is_raw else None)
        there = {
            partition: offset
            for partition, offset in found.items()
            if offset >= 0 and (not is_raw or offset < latest[partition])
        }
        self.is_behind_all = not there
        return latest | there

    def _offsets(self, time_ms: int, isolation: str | None = None) -> dict[int, int]:
        wanted = dict.fromkeys(self._partitions, time_ms)
        level = isolation or self._wanted.isolation
        return list_offsets(self._connection, self._topic, wanted, isolation=level, deadlines=self._deadlines)

    def _fate(self, batch: FetchedBatch) -> Fate:
        header = batch.header
        if not header.is_transactional:
            return Fate.PLAIN
        if not self._wanted.is_raw:
            return Fate.UNDECIDED if self._is_unstable(batch) else Fate.COMMITTED
        for ended in self._aborted_of(batch.partition, header.producer_id):
            if ended.first_offset <= header.base_offset < ended.marker_offset:
                return Fate.ABORTED
        return Fate.UNDECIDED if self._is_unstable(batch) else Fate.COMMITTED

    def _aborted_of(self, partition: int, producer_id: int) -> list[AbortedTransaction]:
        """Return the aborted transactions of a producer in a partition that are known so far."""
        known = self._reader.aborted_transactions
        if len(known) != self._aborted_count:
            self._aborted_count = len(known)
            self._aborted.clear()
            for ended in known:
                self._aborted[ended.partition, ended.producer_id].append(ended)
        return self._aborted[partition, producer_id]

    def _is_unstable(self, batch: FetchedBatch) -> bool:
        # A follower sees records beyond the end that was stable at the start. A committed reader gets decided records
        # only.
        if self._wanted.isolation == "read_committed":
            return False
        return batch.header.base_offset >= self._stable[batch.partition]


def _found(records: Placed) -> Placed:
    return records
