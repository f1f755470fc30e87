"""Records and bytes that partitions hold, from their log starts on.

The totals before a log start do not change until it moves, or compaction takes records away behind it. So they are
computed once for each log start and each step of a pass. This takes the headers of one index entry at most. A thread
computes them where reads may wait.
"""

from __future__ import annotations

from collections.abc import Generator
from functools import partial
from typing import Any

from coordinator_runtime.pending import Pending
from coordinator_runtime.rounds import awaited
from coordinator_runtime.store import StoreReads
from coordinator_runtime.store_readers import StoreReader
from partition_log.counting import removed_totals
from partition_log.state import Compaction, LogTotals, PartitionHead


class HeldTotals:
    """Computes and remembers the totals. One small entry for each partition that has removed or compacted records."""

    def __init__(self, reader: StoreReader) -> None:
        self._reader = reader
        self._removed: dict[int, tuple[int, Compaction, int, int]] = {}
        """Log start, progress of compaction, and the bytes and records before that start, by ordinal."""
        self.computed = 0
        """Number of log starts that were looked up in the log, which takes up to two milliseconds each."""

    def of(self, ordinal: int, head: PartitionHead) -> Generator[Pending[Any] | None, None, LogTotals]:
        """Return the totals of what a partition holds. Raises LogDamaged, StoreDamaged, StoreUnreadable."""
        start, totals = head.log_start_offset, head.totals
        if not start and not head.compacted_to:
            self._removed.pop(ordinal, None)
            return totals
        known = self._removed.get(ordinal)
        if known is None or known[:2] != (start, head.compaction):
            self.computed += 1
            found = yield from awaited(self._reader.read(partial(_removed, ordinal, head)))
            known = self._removed[ordinal] = (start, head.compaction, *found)
        *_place, size_bytes, record_count = known
        return LogTotals(size_bytes=totals.size_bytes - size_bytes, record_count=totals.record_count - record_count)


def _removed(ordinal: int, head: PartitionHead, rows: StoreReads) -> tuple[int, int]:
    return removed_totals(rows, ordinal, head)
