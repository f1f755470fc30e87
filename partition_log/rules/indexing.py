"""Rules for the index of a log: its progress at the end, and the entries that are finished."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from coordinator_protocol.batch import (
    NO_TIMESTAMP_MS,
    decode_header,
    split_row,
)
from partition_log.state import (
    IndexEntry,
    IndexProgress,
    LogTotals,
    PartitionConfig,
    PartitionHead,
)


def index_after(
    head: PartitionHead,
    rows: Sequence[tuple[int, bytes]],
    totals: LogTotals,
    newest_ms: int,
    config: PartitionConfig,
    now_ms: int,
) -> tuple[IndexProgress, Sequence[IndexEntry]]:
    """Return the progress at the end of the log after several rows, each with its last offset, and the index entries
    that they finished. `totals` and `newest_ms`, the largest timestamp of a record, are those of the log with all of
    these rows."""
    index = head.index
    size_bytes = index.size_bytes + totals.size_bytes - head.totals.size_bytes
    batch_count = index.batch_count + len(rows)
    if size_bytes < config.index_interval_bytes and batch_count < config.index_interval_batches:
        return IndexProgress(index.first_offset, size_bytes, batch_count, newest_ms), ()
    return stretches_after(head, rows, totals=totals, config=config, now_ms=now_ms)


def stretches_after(
    head: PartitionHead,
    rows: Iterable[tuple[int, bytes]],
    *,
    totals: LogTotals,
    config: PartitionConfig,
    now_ms: int,
) -> tuple[IndexProgress, list[IndexEntry]]:
    """Do the work of `index_after` row by row, for rows that finish one or more index entries."""
    index, counted, aborts = head.index, head.totals, totals.abort_count - head.totals.abort_count
    finished: list[IndexEntry] = []
    for last_offset, row in rows:
        batch, tail = split_row(row)
        header = decode_header(batch)
        newest_ms, is_marker = index.max_timestamp_ms, header.is_control
        marker_count = 1 if is_marker or tail is not None else 0
        # Markers are not records: a search by time must not end at one.
        if not is_marker and newest_ms < header.max_timestamp_ms:
            newest_ms = header.max_timestamp_ms
        counted = LogTotals(
            counted.size_bytes + len(row),
            counted.record_count + (0 if is_marker else header.record_count),
            counted.marker_count + marker_count,
            counted.abort_count + aborts * marker_count,
        )
        size_bytes, batch_count = index.size_bytes + len(row), index.batch_count + 1
        if size_bytes < config.index_interval_bytes and batch_count < config.index_interval_batches:
            index = IndexProgress(index.first_offset, size_bytes, batch_count, newest_ms)
        else:
            finished.append(IndexEntry(index.first_offset, last_offset, newest_ms, now_ms, counted))
            index = IndexProgress(last_offset + 1, 0, 0, newest_ms)
    assert counted == totals, "the rows are what the totals count"
    return index, finished


def finish_ahead_of_time(head: PartitionHead, now_ms: int) -> tuple[PartitionHead, IndexEntry] | None:
    """Finish the index entry at the end of a log, if only the clock can tell how old the end is. That is so if there
    are rows, and the newest timestamp lies ahead of the clock or is missing. Return the new head and the entry, or None
    if nothing changes."""
    if NO_TIMESTAMP_MS < head.index.max_timestamp_ms <= now_ms:
        return None
    return finish_unfinished(head, now_ms)


def finish_unfinished(head: PartitionHead, now_ms: int) -> tuple[PartitionHead, IndexEntry] | None:
    """Finish the index entry at the end of a log. Return the new head and the entry. None if there are no rows, or all
    of them lie before the log start. No index row is ever written there again."""
    index = head.index
    if not index.batch_count or head.log_start_offset >= head.log_end_offset:
        return None
    end_offset = head.log_end_offset
    stretch = IndexEntry(index.first_offset, end_offset - 1, index.max_timestamp_ms, now_ms, head.totals)
    return replace(head, index=IndexProgress(end_offset, 0, 0, index.max_timestamp_ms)), stretch
