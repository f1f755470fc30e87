"""Retired ranges of keys: those in which nothing is ever written again.

Every deleted range of a commit group is one (`CommitGroup.deleted_ranges`). SlateDB has no range deletes, so reads skip
retired ranges, however many rows in them are not removed yet.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from coordinator_runtime.store import Family, KeyRange


class RetiredRanges:
    """The retired ranges of all families, merged where they touch. One thread adds, and any thread may ask."""

    def __init__(self) -> None:
        self._ranges: list[tuple[Sequence[bytes], Sequence[bytes]]] = [((), ()) for _ in Family]
        """Starts and ends of the ranges by family, in ascending order. A pair is replaced, and never changed."""

    def add(self, family: Family, start: bytes, end: bytes) -> None:
        """Retire the keys in [start, end)."""
        if start >= end:
            return
        starts, ends = self._ranges[family]
        first = bisect_right(starts, start)
        if first and ends[first - 1] >= start:
            first -= 1
            start, end = starts[first], max(end, ends[first])
        last = bisect_right(starts, end)
        if first < last:
            end = max(end, ends[last - 1])
        self._ranges[family] = (
            [*starts[:first], start, *starts[last:]],
            [*ends[:first], end, *ends[last:]],
        )

    def end_of(self, family: Family, key: bytes) -> bytes | None:
        """Return the end of the retired range that has the key, which is the first key behind it; None if none has."""
        starts, ends = self._ranges[family]
        place = bisect_right(starts, key) - 1
        return ends[place] if place >= 0 and key < ends[place] else None

    def narrowed(self, family: Family, start: bytes, end: bytes) -> tuple[bytes, bytes]:
        """Return the range without the retired parts at its beginning and end."""
        start = self.end_of(family, start) or start
        starts, ends = self._ranges[family]
        place = bisect_left(starts, end) - 1
        return start, starts[place] if place >= 0 and end <= ends[place] else end

    def inside(self, family: Family, start: bytes, end: bytes) -> RetiredRanges:
        """Return the ranges of the family that begin in [start, end). Later additions do not change them."""
        starts, ends = self._ranges[family]
        first, last = bisect_left(starts, start), bisect_left(starts, end)
        found = RetiredRanges()
        found._ranges[family] = starts[first:last], ends[first:last]
        return found

    def all(self) -> list[KeyRange]:
        """Return all ranges."""
        return [
            (family, start, end)
            for family, (starts, ends) in zip(Family, self._ranges, strict=True)
            for start, end in zip(starts, ends, strict=True)
        ]
