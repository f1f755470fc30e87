"""Chunks of a pass: the changes of rows of the log and of its index that become durable together.

The totals in an index row have a meaning only by comparison. So what a chunk takes away is added to all index rows
before it, and those behind it stay. Small stretches are joined, or an index would grow for ever beside a log that does
not. Every change is a row by its key. Only long runs of deleted rows become ranges, because readers pass over single
deletions one by one. Nothing is ever written into such a range again: what is left of a log only becomes less.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from partition_log import index_rows
from partition_log.compaction.payloads import CompactedBatch, emptied
from partition_log.compaction.rules import CompactedRow, Survivors, row_left, row_of
from partition_log.compaction_steps import CompactionStep
from partition_log.state import AbortedTransaction, Compaction, IndexEntry, LogTotals, PartitionConfig

RUN_ROWS_MIN: Final = 64
"""Least number of rows one behind the other that are deleted as a range."""
CHUNK_READ_BYTES: Final = 16 << 20
CHUNK_ROWS_MAX: Final = 4_096
CHUNK_WRITTEN_BYTES: Final = 2 << 20
"""A chunk ends with the stretch that reaches one of these: bytes and rows that were read, or bytes to be written. Other
commits wait for the write of a chunk, and each one corrects all index rows before it."""


MOVED_BYTES_MIN: Final = 32 * 1024
"""Least size of a row that is written again although it stays as it is, if something beside it goes. Its value may lie
in a file with values that go, and only a file without a used value is deleted."""


class Chunk:
    """A chunk, stretch by stretch."""

    def __init__(self, index: LeftIndex, survivors: Survivors, log_end_offset: int) -> None:
        self._index = index
        self._survivors = survivors
        self._last_of_log = log_end_offset - 1
        self._rows: list[tuple[CompactedRow, CompactedRow | None]] = []
        """All rows, and what is left of each."""
        self._old: list[IndexEntry] = []
        self._read_bytes = 0
        self._written_bytes = 0

    @property
    def is_full(self) -> bool:
        """True if the chunk is to be written."""
        return (
            self._read_bytes >= CHUNK_READ_BYTES
            or len(self._rows) >= CHUNK_ROWS_MAX
            or self._written_bytes >= CHUNK_WRITTEN_BYTES
        )

    def take(
        self, stretch: IndexEntry, rows: Sequence[CompactedRow], hidden: Sequence[bool], left: Sequence[CompactedBatch]
    ) -> None:
        """Take the rows of a stretch. `hidden`: True for a batch of an aborted transaction. `left`: what is
        left of all other batches that are no markers, in their order."""
        compacted = iter(left)
        for row, is_hidden in zip(rows, hidden, strict=True):
            after = self._after(row, None if is_hidden or row.header.is_control else next(compacted))
            self._rows.append((row, after))
            self._read_bytes += len(row.row)
            if after is not None and (after is not row or len(row.row) >= MOVED_BYTES_MIN):
                self._written_bytes += len(after.row)
        self._old.append(stretch)

    def _after(self, row: CompactedRow, left: CompactedBatch | None) -> CompactedRow | None:
        """Return what is left of a row. `left` is None if its batch is a marker, or hidden."""
        is_last = row.last_offset == self._last_of_log
        batch_left: bytes | None = None if row.header.is_control else b""
        if left is not None:
            batch_left = left.batch
            if not left.is_readable:
                self._survivors.keep_unreadable(row.header)
            elif left.record_count:
                self._survivors.keep(row.header)
            else:
                batch_left = b""
        keeps_marker = False
        if row.marker is not None:
            keeps_marker = self._survivors.needs(row.header.producer_id, row.marker, row.last_offset) or is_last
        if row.header.is_control:
            return row if keeps_marker else None
        if batch_left is None:
            return row
        if is_last and not batch_left and row.tail is None:
            batch_left = emptied(row.batch)
        after = row_left(row, batch_left, keeps_marker=keeps_marker)
        return None if after is None else row_of(row.last_offset, after)

    def step(self, compaction: Compaction) -> CompactionStep:
        """Return the whole change, and take it over into the index. Call once."""
        gone = [row for row, after in self._rows if after is None]
        less = LogTotals()
        for row, after in self._rows:
            if after is not row:
                less = _plus(less, row.totals, 1)
                if after is not None:
                    less = _plus(less, after.totals, -1)
        changes_any = less != LogTotals()
        kept = [after for _row, after in self._rows if after is not None]
        rows: list[tuple[int, bytes | None]] = []
        ranges: list[tuple[int, int]] = []
        for run in _runs(self._rows):
            if len(run) >= RUN_ROWS_MIN:
                ranges.append((run[0], run[-1]))
            else:
                rows += ((offset, None) for offset in run)
        for row, after in self._rows:
            if after is not None and (after is not row or (changes_any and len(row.row) >= MOVED_BYTES_MIN)):
                rows.append((row.last_offset, after.row))
        aborted = [found for row in gone if (found := _aborted_in(row)) is not None]
        stretches = self._index.replace(self._old, kept, less) if changes_any else self._index.keep(self._old)
        end_offset = self._old[-1].last_offset + 1
        return CompactionStep(compaction, end_offset, rows, stretches, aborted, ranges, less)


class LeftIndex:
    """Index of the part of the log that a pass has been over."""

    def __init__(self, config: PartitionConfig) -> None:
        self._config = config
        self._entries: list[IndexEntry] = []
        """Index entries before the present chunk, without those that are known not to exist any more."""
        self._open_rows = 0
        self._open_bytes = 0
        """Rows and bytes in the last entry, if it may be joined with the next."""
        self._joins_last = False

    def keep(self, old: Sequence[IndexEntry]) -> list[tuple[int, bytes | None]]:
        """Go over stretches in which nothing changes."""
        self._entries += old
        self._joins_last = False
        return []

    def replace(
        self, old: Sequence[IndexEntry], kept: Sequence[CompactedRow], less: LogTotals
    ) -> list[tuple[int, bytes | None]]:
        """Replace the entries of a chunk by those of its kept rows. Return the changes of index rows by last offset."""
        changed: dict[int, bytes | None] = {entry.last_offset: None for entry in old}
        first_offset, rows, size_bytes = old[0].first_offset, 0, 0
        if self._joins_last:
            joined = self._entries.pop()
            changed[joined.last_offset] = None
            first_offset, rows, size_bytes = joined.first_offset, self._open_rows, self._open_bytes
        self._entries = [replace(each, totals=_plus(each.totals, less, 1)) for each in self._entries]
        entries: list[IndexEntry] = []
        totals = old[-1].totals
        for row in kept:
            totals = _plus(totals, row.totals, -1)
        at = 0
        for row in kept:
            totals = _plus(totals, row.totals, 1)
            rows, size_bytes = rows + 1, size_bytes + len(row.row)
            if rows >= self._config.index_interval_batches or size_bytes >= self._config.index_interval_bytes:
                while old[at].last_offset < row.last_offset:
                    at += 1
                # Times and largest timestamps never fall. Those of the old entry there are at least as large.
                covering = old[at]
                entries.append(replace(covering, first_offset=first_offset, last_offset=row.last_offset, totals=totals))
                first_offset, rows, size_bytes = row.last_offset + 1, 0, 0
        last = old[-1]
        self._joins_last = rows * 2 < self._config.index_interval_batches and (
            size_bytes * 2 < self._config.index_interval_bytes
        )
        self._open_rows, self._open_bytes = rows, size_bytes
        if rows == 0 and entries:
            # No kept row is left for an entry of its own.
            last_entry = entries.pop()
            first_offset, self._joins_last = last_entry.first_offset, False
        entries.append(replace(last, first_offset=first_offset))
        self._entries += entries
        changed |= {entry.last_offset: index_rows.encode_stretch(entry) for entry in self._entries}
        return list(changed.items())


def _runs(rows: Sequence[tuple[CompactedRow, CompactedRow | None]]) -> Iterator[list[int]]:
    """Yield the last offsets of rows that are deleted one behind the other."""
    run: list[int] = []
    for row, after in rows:
        if after is None:
            run.append(row.last_offset)
        elif run:
            yield run
            run = []
    if run:
        yield run


def _aborted_in(row: CompactedRow) -> AbortedTransaction | None:
    marker = row.marker
    if marker is None or not row.totals.abort_count:
        return None
    ended = row.header.producer_id, marker.txn_epoch, marker.first_offset, row.last_offset
    return AbortedTransaction(*ended, marker.coordinator_shard, marker.csn)


def _plus(totals: LogTotals, other: LogTotals, sign: int) -> LogTotals:
    return LogTotals(
        totals.size_bytes + sign * other.size_bytes,
        totals.record_count + sign * other.record_count,
        totals.marker_count + sign * other.marker_count,
        totals.abort_count + sign * other.abort_count,
    )
