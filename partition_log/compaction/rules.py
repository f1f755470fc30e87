"""Pure rules of compaction: which records and markers stay, and up to which offset a pass may go.

- A record stays if it is the newest of its key, or has none.
- A tombstone (a record without a value) goes once it is *retired*. A pass has been over it, and removed all that it
  deletes. Then `delete_retention_ms` went by, so that every reader of the older records had time to meet the tombstone.
- Records of aborted transactions go at once.
- A marker goes once it is retired, too, and no record of its transaction is left.
- A batch that cannot be decoded stays. It may hold older records of any key, so no tombstone behind it goes.
- The last row of a log stays, if need be without records: it marks the log end.

Source: spec log-and-runtime 1.8; KIP-534.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeAlias

from coordinator_protocol.batch import BatchHeader, decode_header, payload_of, split_row
from coordinator_protocol.kafka_records import PlacedRecord
from coordinator_protocol.marker import MarkerPayload, Outcome, control_batch, decode_marker_payload, marker_header
from partition_log.state import NO_OFFSET, Compaction, FinishedPass, LogTotals

PASSES_REMEMBERED_MAX: Final = 32
"""Largest number of finished passes that a partition remembers. With fewer, tombstones stay longer."""

NewestOffset: TypeAlias = Callable[[bytes], int]
"""Function of a key. Returns the newest offset of a record with it in the dirty part; less than any offset if there is
none."""


def live_records(
    records: Sequence[PlacedRecord], base_offset: int, newest: NewestOffset, *, retired_below: int
) -> list[PlacedRecord]:
    """Return the records of a batch that stay. `retired_below`: offset before which tombstones are retired."""
    return [
        record
        for record in records
        if record[2] is None
        or (
            newest(record[2]) <= base_offset + record[0]
            and (record[3] is not None or base_offset + record[0] >= retired_below)
        )
    ]


class CompactedRow(NamedTuple):
    """A row of the log, taken apart."""

    last_offset: int
    row: bytes
    header: BatchHeader
    """Header of its batch, which may be a marker."""
    batch: bytes
    marker: MarkerPayload | None
    """The marker in it: the whole row, or its tail."""
    tail: bytes | None

    @property
    def totals(self) -> LogTotals:
        """Return what the row adds to the totals of the log."""
        marker = self.marker
        is_abort = marker is not None and marker.outcome is Outcome.ABORT and marker.first_offset != NO_OFFSET
        record_count = 0 if self.header.is_control else self.header.record_count
        return LogTotals(len(self.row), record_count, int(marker is not None), int(is_abort))


def row_of(last_offset: int, row: bytes) -> CompactedRow:
    """Take a row of the log apart. Raises Refused for one that is damaged."""
    batch, tail = split_row(row)
    header = decode_header(batch)
    marker = None
    if header.is_control:
        marker = decode_marker_payload(payload_of(batch))
    elif tail is not None:
        marker = decode_marker_payload(payload_of(control_batch(marker_header(header, tail), tail)))
    return CompactedRow(last_offset, row, header, batch, marker, tail)


class Survivors:
    """Records of transactions that a pass has left, on its way over the log. They keep the markers behind them."""

    def __init__(self, retired_below: int) -> None:
        """`retired_below`: offset before which markers and tombstones are retired. It is 0 for a pass that goes on
        after a crash."""
        self.retired_below = retired_below
        self._last_offsets: dict[int, int] = {}
        """Last offset of a batch with records by producer, until the marker of its transaction."""

    def keep(self, header: BatchHeader) -> None:
        """Note a batch that keeps records."""
        if header.is_transactional:
            self._last_offsets[header.producer_id] = header.last_offset

    def keep_unreadable(self, header: BatchHeader) -> None:
        """Note a batch that cannot be decoded. It may hold older records of any key."""
        self.retired_below = min(self.retired_below, header.base_offset)
        self.keep(header)

    def needs(self, producer_id: int, marker: MarkerPayload, offset: int) -> bool:
        """True if the marker at this offset stays. Called once for each marker, in their order."""
        last_offset = self._last_offsets.pop(producer_id, NO_OFFSET)
        if offset >= self.retired_below:
            return True
        return marker.first_offset != NO_OFFSET and last_offset >= marker.first_offset


def row_left(row: CompactedRow, batch_left: bytes, *, keeps_marker: bool) -> bytes | None:
    """Return the row in place of one whose batch was changed or removed; None if nothing stays. `batch_left`: the batch
    after that; empty if no record of it stays."""
    if row.tail is None:
        return batch_left or None
    if batch_left:
        return batch_left + row.tail
    if not keeps_marker:
        return None
    # A marker keeps its offset, and so its row: without its batch it is one by itself.
    return bytes(control_batch(marker_header(row.header, row.tail), row.tail))


def retired_below(compaction: Compaction, now_ms: int, delete_retention_ms: int) -> int:
    """Return the offset before which tombstones and markers are retired: a pass over them ended long enough ago."""
    ended_ms = now_ms - delete_retention_ms
    return max((each.end_offset for each in compaction.finished if each.finished_ms <= ended_ms), default=0)


def finished(compaction: Compaction, now_ms: int, delete_retention_ms: int) -> Compaction:
    """Return the state after the end of the pass that is under way."""
    end_offset = compaction.end_offset
    passes = [*compaction.finished, FinishedPass(end_offset, now_ms)]
    # Of those that ended long ago, only the newest matters.
    old = [each for each in passes if each.finished_ms <= now_ms - delete_retention_ms]
    young = [each for each in passes if each.finished_ms > now_ms - delete_retention_ms]
    kept = old[-1:] + young
    if len(kept) > PASSES_REMEMBERED_MAX:
        # Without one in the middle, what it was over counts from the next one on.
        middle = len(kept) // 2
        del kept[middle]
    return Compaction(end_offset, end_offset, end_offset, tuple(kept))
