"""Audit of the totals: recomputes from the rows of a log the counts that its index entries and its head store.

A log without its beginning, or a compacted one, only allows a check of differences between two ends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from coordinator_protocol.batch import NO_TIMESTAMP_MS
from partition_log.state import IndexEntry, IndexProgress, LogTotals
from txnctl.stopped.stored import RowPart, StoredBatch

NOTHING: Final = LogTotals()


@dataclass(slots=True)
class Columns:
    """Totals of the log up to an offset, counted row by row, for comparison with index entries and head."""

    stretches: Sequence[IndexEntry]
    """Stored index entries that end in the part of the log that is read, in order."""
    totals: LogTotals = NOTHING
    newest_ms: int = NO_TIMESTAMP_MS
    ends: dict[int, tuple[LogTotals, int]] = field(default_factory=dict)
    """Totals and largest timestamp at the end of each stored index entry that ends where a row does, or between two."""
    rows_unfinished: int = 0
    """Number of rows after the last of these ends."""
    _last_offsets: deque[int] = field(init=False)
    """Last offsets of the index entries that the audit has not reached yet."""

    def __post_init__(self) -> None:
        self._last_offsets = deque(stretch.last_offset for stretch in self.stretches)

    def take(self, batch: StoredBatch, *, ends_abort: bool) -> None:
        """Count a row or a part of one. `ends_abort` is True if it ends an aborted transaction."""
        header, totals = batch.header, self.totals
        self._end_stretches(header.base_offset)
        self.totals = LogTotals(
            size_bytes=totals.size_bytes + batch.stored_bytes,
            record_count=totals.record_count + (0 if header.is_control else header.record_count),
            marker_count=totals.marker_count + header.is_control,
            abort_count=totals.abort_count + ends_abort,
        )
        if not header.is_control:
            self.newest_ms = max(self.newest_ms, header.max_timestamp_ms)
        if batch.part is RowPart.BATCH:
            return
        self.rows_unfinished += 1
        while self._last_offsets and self._last_offsets[0] < header.last_offset:
            # The index entry ends within the row.
            self._last_offsets.popleft()
        self._end_stretches(header.last_offset + 1)

    def _end_stretches(self, offset: int) -> None:
        """Note the totals before an offset for all index entries that end before it."""
        while self._last_offsets and self._last_offsets[0] < offset:
            self.ends[self._last_offsets.popleft()] = self.totals, self.newest_ms
            self.rows_unfinished = 0

    def index(self) -> IndexProgress:
        """Return the state of the unfinished index entry at the end of the log."""
        if not self.ends:
            return IndexProgress(0, self.totals.size_bytes, self.rows_unfinished, self.newest_ms)
        last_offset, (totals, _newest_ms) = max(self.ends.items())
        size_bytes = self.totals.size_bytes - totals.size_bytes
        return IndexProgress(last_offset + 1, size_bytes, self.rows_unfinished, self.newest_ms)

    def differences(self) -> Iterator[str]:
        """Yield the differences between the stored index entries of a complete log and the rows of the log."""
        next_offset = 0
        for stretch in self.stretches:
            what = f"the stretch from offset {stretch.first_offset} to {stretch.last_offset}"
            if stretch.first_offset != next_offset:
                yield f"{what} does not follow, {next_offset} is next"
            next_offset = stretch.last_offset + 1
            found = self.ends.get(stretch.last_offset)
            if found is None:
                yield f"{what} ends where no row of the log does"
            elif (stretch.totals, stretch.max_timestamp_ms) != found:
                yield (
                    f"{what} says {totals_words(stretch.totals)} and newest time {stretch.max_timestamp_ms},"
                    f" the log says {totals_words(found[0])} and {found[1]}"
                )

    def differences_from_end(self, head: LogTotals) -> Iterator[str]:
        """Yield the index entries whose totals differ from the head by more or less than the rows in between.

        A log without its beginning does not show how much that was, nor what was aborted."""
        base = _without_aborts(head, self.totals)
        for stretch in self.stretches:
            totals, _newest_ms = self.ends.get(stretch.last_offset, (None, 0))
            what = f"the stretch from offset {stretch.first_offset} to {stretch.last_offset}"
            if totals is None:
                yield f"{what} ends where no row of the log does"
            elif _without_aborts(stretch.totals, totals) != base:
                yield (
                    f"{what} says {totals_words(stretch.totals)} and the head {totals_words(head)},"
                    f" and not what lies between them in the log"
                )


def _without_aborts(totals: LogTotals, less: LogTotals) -> tuple[int, int, int]:
    return (
        totals.size_bytes - less.size_bytes,
        totals.record_count - less.record_count,
        totals.marker_count - less.marker_count,
    )


def totals_words(totals: LogTotals) -> str:
    """Return totals as text for a message."""
    return (
        f"{totals.size_bytes} bytes, {totals.record_count} records, {totals.marker_count} markers and"
        f" {totals.abort_count} aborted transactions"
    )
