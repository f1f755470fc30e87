"""Aborted transactions of a partition that a reader of a range of offsets must know.

Such a transaction may have begun long before the range, and may end long behind it. It has a row under the offset of
its marker, and one under every multiple of the stride between its first record and its marker. Let `bound` be the least
multiple at or beyond the end of the range [start, end). A transaction that overlaps the range has its marker in [start,
bound], or it lies across the bound and has a row there. So one scan from the start to the bound finds them all. However
long a transaction was open, the scan meets only the markers in between and the transactions that lie across one
offset.
"""

from __future__ import annotations

from collections.abc import Iterator

from coordinator_runtime.store import Family
from partition_log import index_rows
from partition_log.batches import LogReads
from partition_log.state import AbortedTransaction


def aborted_between(
    store: LogReads, ordinal: int, start: int, end: int, last_abort_offset: int
) -> Iterator[AbortedTransaction]:
    """Yield the aborted transactions that overlap [start, end), each once, those of one producer in their order.
    `last_abort_offset`: newest abort marker of the reader's view; transactions that were aborted later are left out.

    Raises StoreDamaged, StoreUnreadable."""
    bound = _multiple_from(end)
    # In a view, no transaction lies across the bound unless the newest abort marker is beyond it.
    last_offset = min(bound, last_abort_offset)
    first_key, end_key = index_rows.aborted_key(ordinal, start, 0), index_rows.aborted_key(ordinal, last_offset + 1, 0)
    for key, value in store.scan(Family.ABORTED, first_key, end_key):
        offset, aborted = index_rows.decode_aborted(key, value)
        # A transaction across an earlier multiple comes again, at its marker or at the bound.
        is_last_row = offset == aborted.marker_offset or offset == bound
        if is_last_row and aborted.first_offset < end and aborted.marker_offset <= last_abort_offset:
            yield aborted


def next_multiple(offset: int) -> int:
    """Return the least multiple of the stride behind the offset. A search for the aborted transactions of the offsets
    up to there looks only at markers that it needs."""
    return _multiple_from(offset + 1)


def _multiple_from(offset: int) -> int:
    return -(-offset // index_rows.ABORTED_STRIDE) * index_rows.ABORTED_STRIDE
