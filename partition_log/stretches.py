"""Finished index entries of a partition's log (stretches), and the search for them. They are the only index of
positions.

An index entry describes everything before its end: bytes, records, markers, aborts, and the largest timestamp. None of
these falls from one entry to the next. A binary search over offsets therefore finds "the first entry that reaches a
time", "the first that leaves fewer bytes behind it" and the like. It takes one seek for each binary digit of the number
of entries, and about two more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from coordinator_runtime.store import Family
from partition_log import codec, index_rows
from partition_log.state import IndexEntry


class StretchReads(Protocol):
    """The part of a store that is used here, as `coordinator_runtime.store.Store` describes it."""

    def scan(self, family: Family, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]: ...


def stretches(store: StretchReads, ordinal: int, offset: int) -> Iterator[IndexEntry]:
    """Yield the finished index entries of a partition, from the one that holds the offset on. Raises StoreDamaged,
    StoreUnreadable, UnknownRow."""
    start, end = index_rows.stretch_key(ordinal, offset), codec.partition_key(ordinal + 1)
    for key, value in store.scan(Family.STRETCHES, start, end):
        yield index_rows.decode_stretch(key, value)


def first_that(
    store: StretchReads, ordinal: int, offsets: tuple[int, int], holds: Callable[[IndexEntry], bool]
) -> IndexEntry | None:
    """Return the first index entry with an offset in the half-open range for which `holds` is true; None if there is
    none. If it is true for an entry, it must be true for all later ones. Raises as `stretches`."""
    low, high = offsets
    found: IndexEntry | None = None
    while low < high:
        middle = (low + high) // 2
        stretch = next(stretches(store, ordinal, middle), None)
        if stretch is None:
            high = middle
        elif holds(stretch):
            found, high = stretch, min(stretch.first_offset, middle)
        else:
            low = stretch.last_offset + 1
    return found
