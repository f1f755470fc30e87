"""How many records lie between an offset and the ends of a partition: what a reader still has before it.

Markers are no records, and of aborted transactions a committed reader gets none. Offsets follow each other without
gaps, and the store holds how many markers lie before the end of every stretch of the log. So a count is a subtraction,
and reads the headers of two stretches at most, however far the ends are.

Two parts of a log must be looked at batch by batch: what lies before the newest abort, because only the outcome of each
batch says whether it is hidden; and what was written before markers were counted. That is done within a budget, and the
caller goes on where it ended, as with a fetch.

Source: spec ecosystem 8, rows 30 and 31 (lag never reaches zero; lag against the wrong end).
"""

from __future__ import annotations

from typing import Final, NamedTuple

from coordinator_protocol.batch import BatchHeader
from coordinator_runtime.store import Family, Store
from partition_log import codec
from partition_log.batches import batches
from partition_log.reading import SEEK_COST_BATCHES, AbortedIndex, Budget
from partition_log.state import PartitionHead


class Counted(NamedTuple):
    """Records from an offset up to, not including, `next_offset`."""

    records: int = 0
    """All records, those of aborted and open transactions too."""
    committed_records: int = 0
    """The records that a read-committed reader gets: below the last stable offset, and of no aborted transaction."""
    next_offset: int = 0
    """The high watermark, or less where the budget was spent."""


NOTHING_COUNTED: Final = Counted()


def count_records(store: Store, ordinal: int, head: PartitionHead, start_offset: int, budget: Budget) -> Counted:
    """Count under the view, from the offset or the log start to the high watermark.

    Raises LogDamaged, StoreDamaged, StoreUnreadable."""
    start, stable, end = max(start_offset, head.log_start_offset), head.last_stable_offset, head.log_end_offset
    if start >= end:
        return Counted(next_offset=end)
    if budget.is_spent:
        return Counted(next_offset=start)
    budget.batches -= SEEK_COST_BATCHES
    # Aborted records lie before their marker, so behind the newest one there are none.
    read_end = min(max(head.counted.from_offset, min(head.last_abort_offset, stable)), end)
    read = _count_each(store, ordinal, head, (start, read_end), budget)
    at = read.next_offset
    if at < read_end:
        return read
    markers = _markers_before(store, ordinal, head, at, budget)
    records = end - at - (head.counted.markers - markers)
    committed = 0
    if at < stable:
        committed = stable - at - (_markers_before(store, ordinal, head, stable, budget) - markers)
    return Counted(read.records + records, read.committed_records + committed, end)


def _count_each(store: Store, ordinal: int, head: PartitionHead, offsets: tuple[int, int], budget: Budget) -> Counted:
    """Count batch by batch, as far as the budget allows."""
    at, end = offsets
    if at >= end:
        return Counted(next_offset=at)
    aborted = AbortedIndex(store, ordinal, head, budget)
    records = committed = 0
    for header, encoded in batches(store, ordinal, at, head.log_end_offset):
        passed = _overlap(header, at, end)
        if not header.is_control:
            records += passed
            if header.base_offset < head.last_stable_offset and not (header.is_transactional and aborted.hides(header)):
                committed += passed
        at = min(header.last_offset + 1, end)
        _pay(budget, encoded)
        if at >= end or budget.is_spent:
            break
    return Counted(records, committed, at)


def _markers_before(store: Store, ordinal: int, head: PartitionHead, offset: int, budget: Budget) -> int:
    """Markers that were counted before an offset. From the end of its stretch backwards, because retention takes rows
    away from the front."""
    if offset == head.log_end_offset:
        return head.counted.markers
    end, markers = head.log_end_offset, head.counted.markers
    # A stretch that was finished after the view was taken is as good: the store holds all of it.
    for key, value in store.scan(
        Family.PARTITIONS, codec.stretch_key(ordinal, offset), codec.partition_key(ordinal + 1)
    ):
        end, markers = codec.stretch_end(key) + 1, codec.decode_marker_count(value)
        break
    for header, encoded in batches(store, ordinal, offset, end):
        markers -= header.is_control
        _pay(budget, encoded)
    return markers


def _overlap(header: BatchHeader, start: int, end: int) -> int:
    """How many offsets of the batch lie in the range."""
    return max(0, min(header.last_offset + 1, end) - max(header.base_offset, start))


def _pay(budget: Budget, encoded: bytes) -> None:
    budget.batches -= 1
    budget.read_bytes -= len(encoded)
