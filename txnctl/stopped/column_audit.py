"""The audit of what is counted: what stretches and head say of the log before an offset, counted once more, row by row.

Of a log that lost its beginning, or was compacted, only the differences can be counted: what lies between two ends.
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
    """What stretches and head say of the log before an offset, counted here row by row."""

    stretches: Sequence[IndexEntry]
    """The stored ones that end in the part of the log that is read, in order."""
    totals: LogTotals = NOTHING
    newest_ms: int = NO_TIMESTAMP_MS
    ends: dict[int, tuple[LogTotals, int]] = field(default_factory=dict)
    """Totals and largest timestamp at the end of each stored stretch that ends where a row does, or between two."""
    rows_unfinished: int = 0
    """Rows behind the last one of those."""
    _last_offsets: deque[int] = field(init=False)
    """Where the stretches end that were not come to."""

    def __post_init__(self) -> None:
        self._last_offsets = deque(stretch.last_offset for stretch in self.stretches)

    def take(self, batch: StoredBatch, *, ends_abort: bool) -> None:
        """Count a row or a part of one, and whether it ends an aborted transaction."""
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
            # It ends within the row.
            self._last_offsets.popleft()
        self._end_stretches(header.last_offset + 1)

    def _end_stretches(self, offset: int) -> None:
        """Note what lies before the ends that were passed."""
        while self._last_offsets and self._last_offsets[0] < offset:
            self.ends[self._last_offsets.popleft()] = self.totals, self.newest_ms
            self.rows_unfinished = 0

    def index(self) -> IndexProgress:
        """The end of the log, as it follows from the last stored stretch."""
        if not self.ends:
            return IndexProgress(0, self.totals.size_bytes, self.rows_unfinished, self.newest_ms)
        last_offset, (totals, _newest_ms) = max(self.ends.items())
        size_bytes = self.totals.size_bytes - totals.size_bytes
        return IndexProgress(last_offset + 1, size_bytes, self.rows_unfinished, self.newest_ms)

    def differences(self) -> Iterator[str]:
        """Yield where stored stretches of a whole log are not what the log says."""
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
        """Yield where stored stretches and head differ from each other by something else than what lies between them. A
        log without its beginning says nothing of how much that was, nor of what was aborted."""
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
    """What totals say, for a message."""
    return (
        f"{totals.size_bytes} bytes, {totals.record_count} records, {totals.marker_count} markers and"
        f" {totals.abort_count} aborted transactions"
    )
