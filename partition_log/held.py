"""Records and bytes that partitions hold, from their log starts on.

The totals before a log start do not change until it moves. So they are computed once for each log start, from the
headers of one index entry at most, and remembered.
"""

from __future__ import annotations

from coordinator_protocol.batch import stored_bytes
from coordinator_runtime.store import Store
from partition_log.batches import batches
from partition_log.state import LogTotals, PartitionHead
from partition_log.stretches import stretches


class HeldTotals:
    """Computes and remembers the totals. One small entry for each partition that has removed records."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._before: dict[int, tuple[int, LogTotals]] = {}
        """Log start and the totals before it, by ordinal."""
        self.computed = 0
        """Number of log starts that were looked up in the log, which takes up to two milliseconds each."""

    def of(self, ordinal: int, head: PartitionHead) -> LogTotals:
        """Return the totals of what a partition holds. Raises LogDamaged, StoreDamaged, StoreUnreadable."""
        start, totals = head.log_start_offset, head.totals
        if not start:
            self._before.pop(ordinal, None)
            return totals
        known = self._before.get(ordinal)
        if known is None or known[0] != start:
            self.computed += 1
            known = self._before[ordinal] = (start, self._totals_before(ordinal, head))
        before = known[1]
        return LogTotals(
            size_bytes=totals.size_bytes - before.size_bytes, record_count=totals.record_count - before.record_count
        )

    def _totals_before(self, ordinal: int, head: PartitionHead) -> LogTotals:
        """Count backwards from the end of the index entry that holds the log start."""
        start, end, totals = head.log_start_offset, head.log_end_offset, head.totals
        if start >= end:
            return totals
        stretch = next(stretches(self._store, ordinal, start), None)
        if stretch is not None and stretch.last_offset < end:
            end, totals = stretch.last_offset + 1, stretch.totals
        size_bytes, records = totals.size_bytes, totals.record_count
        for header, encoded in batches(self._store, ordinal, start, end, headers_only=True):
            size_bytes -= stored_bytes(encoded)
            records -= 0 if header.is_control else header.records_between(start, end)
        return LogTotals(size_bytes=size_bytes, record_count=records)
