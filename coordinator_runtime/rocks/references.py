"""Search for the segments that rows of the log still refer to, on the reclaim thread.

Rows that are replaced or deleted by key leave values without a reference behind. A segment is released for a partition
once none of its rows refers to it. New values only go to the newest segment. So one look at the rows is enough for all
older ones.
"""

from __future__ import annotations

import threading
from typing import Final

from rocksdict import Rdict, ReadOptions

from coordinator_runtime.rocks.reads import after_prefix
from coordinator_runtime.rocks.segments import SegmentWriter, reference_of

_ROWS_PER_STEP: Final = 64
_PAUSE_SECONDS: Final = 0.001
"""Rows that are looked at without a pause, and the pause, in which the loop has the interpreter."""
_PARTITION_BYTES: Final = 4


def is_whole_partition(start: bytes, end: bytes) -> bool:
    """Return True for the range of all rows of one partition."""
    return len(start) == _PARTITION_BYTES and end == after_prefix(start)


def release_unreferenced(log: Rdict, large: SegmentWriter, first: bytes, closing: threading.Event) -> None:
    """Release the older segments that no row of a partition refers to. `first`: the beginning of all its keys. Does
    nothing once the store is closing. Raises any error of RocksDB."""
    partition, end = int.from_bytes(first, "big"), after_prefix(first)
    # Asked before the rows are read: what is in these segments was written before.
    older = large.older_segments(partition)
    if not older:
        return
    referenced = set[int]()
    bounds = ReadOptions()
    if end is not None:
        bounds.set_iterate_upper_bound(end)
    bounds.fill_cache(False)  # type: ignore[call-arg]  # its stub forgot the argument
    rows = log.iter(bounds)
    rows.seek(first)
    looked = 0
    while rows.valid():
        reference = reference_of(rows.value())
        if reference is not None:
            referenced.add(reference.segment)
        rows.next()
        looked += 1
        if looked % _ROWS_PER_STEP == 0 and closing.wait(_PAUSE_SECONDS):
            return
    rows.status()
    large.release(partition, tuple(segment for segment in older if segment not in referenced))
