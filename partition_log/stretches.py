"""Finished stretches of a partition's log, and how they are found: the only index of positions that there is.

A stretch says how everything before its end stands: bytes, records, markers, aborts, the largest timestamp. None of
these falls from one stretch to the next. So "the first stretch that reaches a time", "the first that leaves fewer bytes
behind it", and the like are found by halving the offsets, one seek a time: as many as the number of stretches has
binary digits, and about two more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from coordinator_runtime.store import Family
from partition_log import codec, index_rows
from partition_log.state import IndexEntry


class StretchReads(Protocol):
    """What is asked of a store here: `coordinator_runtime.store.Store` says what it promises."""

    def scan(self, family: Family, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]: ...


def stretches(store: StretchReads, ordinal: int, offset: int) -> Iterator[IndexEntry]:
    """The finished stretches of a partition, from the one that holds the offset on. Raises StoreDamaged,
    StoreUnreadable, UnknownRow."""
    start, end = index_rows.stretch_key(ordinal, offset), codec.partition_key(ordinal + 1)
    for key, value in store.scan(Family.STRETCHES, start, end):
        yield index_rows.decode_stretch(key, value)


def first_that(
    store: StretchReads, ordinal: int, offsets: tuple[int, int], holds: Callable[[IndexEntry], bool]
) -> IndexEntry | None:
    """The first stretch with an offset in the half-open range of which something holds that, once it holds, holds of
    all later ones; None where it holds of none. Raises as `stretches`."""
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
