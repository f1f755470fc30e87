"""Number of records between an offset and the ends of a partition: those that a reader still has before it.

Markers are not records, and a committed reader gets none of an aborted transaction. The index entries hold the number
of records before their ends. So a count is a subtraction, and reads the headers of two index entries at most, however
far the ends are.

Before the newest abort, batches must be looked at one by one, because only the outcome of each batch shows whether it
is hidden. That is done within a budget, and the caller continues where the count ended, as with a fetch.

A header does not say which offsets of its batch are without a record. So an offset inside a compacted batch gives an
upper bound, too high by the batch's holes at most.

Source: docs/tour.md (lag never reaches zero; lag against the wrong end).
"""

from __future__ import annotations

from typing import Final, NamedTuple

from coordinator_protocol.batch import stored_bytes
from coordinator_protocol.wire import Buffer
from coordinator_runtime.store import StoreReads
from partition_log.batches import batches
from partition_log.reading import SEEK_COST_BATCHES, AbortedIndex, ReadBudget
from partition_log.state import PartitionHead
from partition_log.stretches import stretches


class Counted(NamedTuple):
    """Numbers of records from an offset up to `next_offset`, exclusive."""

    records: int = 0
    """All records, including those of aborted and open transactions."""
    committed_records: int = 0
    """Records that a read-committed reader gets: below the last stable offset, and of no aborted transaction."""
    next_offset: int = 0
    """High watermark, or less if the budget was spent."""


NOTHING_COUNTED: Final = Counted()


def count_records(
    store: StoreReads, ordinal: int, head: PartitionHead, start_offset: int, budget: ReadBudget
) -> Counted:
    """Count under the view, from the offset or the log start to the high watermark.

    Raises LogDamaged, StoreDamaged, StoreUnreadable."""
    start, stable, end = max(start_offset, head.log_start_offset), head.last_stable_offset, head.log_end_offset
    if start >= end:
        return Counted(next_offset=end)
    if budget.is_spent:
        return Counted(next_offset=start)
    budget.batches -= SEEK_COST_BATCHES
    # Aborted records lie before their marker, so there are none behind the newest one.
    read_end = min(head.last_abort_offset, stable)
    read = _count_each(store, ordinal, head, (start, read_end), budget)
    at = read.next_offset
    if at < read_end:
        return read
    before = _records_before(store, ordinal, head, at, budget)
    records, committed = head.totals.record_count - before, 0
    if at < stable:
        committed = _records_before(store, ordinal, head, stable, budget) - before
    return Counted(read.records + records, read.committed_records + committed, end)


def removed_totals(store: StoreReads, ordinal: int, head: PartitionHead) -> tuple[int, int]:
    """Return the bytes and records before the log start, as the totals of the log count them. Their difference to the
    totals is what the log holds now. Reads the headers of one index entry at most, under the view.

    Raises LogDamaged, StoreDamaged, StoreUnreadable."""
    start, end, totals = head.log_start_offset, head.log_end_offset, head.totals
    if not start and not head.compacted_to:
        return 0, 0
    stretch = next(stretches(store, ordinal, start), None)
    if stretch is not None:
        end, totals = stretch.last_offset + 1, stretch.totals
    size, records = totals.size_bytes, totals.record_count
    for header, encoded in batches(store, ordinal, start, end, headers_only=True):
        # A marker is never cut, and may be the tail of a row.
        size -= len(encoded) if header.is_control else stored_bytes(encoded)
        records -= 0 if header.is_control else header.records_between(start, end)
    return size, records


def _count_each(
    store: StoreReads, ordinal: int, head: PartitionHead, offsets: tuple[int, int], budget: ReadBudget
) -> Counted:
    """Count batch by batch, as far as the budget allows."""
    at, end = offsets
    if at >= end:
        return Counted(next_offset=at)
    aborted = AbortedIndex(store, ordinal, head, budget)
    records = committed = 0
    for header, encoded in batches(store, ordinal, at, head.log_end_offset, headers_only=True):
        if not header.is_control:
            passed = header.records_between(at, end)
            records += passed
            if header.base_offset < head.last_stable_offset and not (header.is_transactional and aborted.hides(header)):
                committed += passed
        at = min(header.last_offset + 1, end)
        _pay(budget, encoded)
        if at >= end or budget.is_spent:
            break
    return Counted(records, committed, at)


def _records_before(store: StoreReads, ordinal: int, head: PartitionHead, offset: int, budget: ReadBudget) -> int:
    """Return the number of records before an offset, to be compared with other such numbers. It counts backwards from
    the end of the offset's index entry, because removed records lie before all others."""
    if offset == head.log_end_offset:
        return head.totals.record_count
    end, records = head.log_end_offset, head.totals.record_count
    # An index entry that was finished after the view was taken is as good: the store holds all of it.
    stretch = next(stretches(store, ordinal, offset), None)
    if stretch is not None:
        end, records = stretch.last_offset + 1, stretch.totals.record_count
    for header, encoded in batches(store, ordinal, offset, end, headers_only=True):
        if not header.is_control:
            records -= header.records_between(offset, end)
        _pay(budget, encoded)
    return records


def _pay(budget: ReadBudget, encoded: Buffer) -> None:
    budget.batches -= 1
    budget.read_bytes -= len(encoded)
