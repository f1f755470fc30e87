"""Retired ranges of keys: those in which nothing is ever written again.

Every deleted range of a commit group is one (`CommitGroup.deleted_ranges`). The memory store holds all callers to that
promise, on which engines without range deletes rest.
"""

from __future__ import annotations

from bisect import bisect_right

from coordinator_runtime.store import Family, KeyRange


class RetiredRanges:
    """The retired ranges of all families, merged where they touch."""

    def __init__(self) -> None:
        self._starts: list[list[bytes]] = [[] for _ in Family]
        """Starts of the ranges by family, in ascending order."""
        self._ends: list[list[bytes]] = [[] for _ in Family]
        """Ends of the ranges, each at the place of its start."""

    def add(self, family: Family, start: bytes, end: bytes) -> None:
        """Retire the keys in [start, end)."""
        if start >= end:
            return
        starts, ends = self._starts[family], self._ends[family]
        first = bisect_right(starts, start)
        if first and ends[first - 1] >= start:
            first -= 1
            start, end = starts[first], max(end, ends[first])
        last = bisect_right(starts, end)
        if first < last:
            end = max(end, ends[last - 1])
        starts[first:last], ends[first:last] = [start], [end]

    def end_of(self, family: Family, key: bytes) -> bytes | None:
        """Return the end of the retired range that has the key, which is the first key behind it; None if none has."""
        starts = self._starts[family]
        if not starts:
            return None
        place = bisect_right(starts, key) - 1
        return self._ends[family][place] if place >= 0 and key < self._ends[family][place] else None

    def start_of(self, family: Family, key: bytes) -> bytes | None:
        """Return the start of the retired range that has the key; None if none has."""
        if self.end_of(family, key) is None:
            return None
        starts = self._starts[family]
        return starts[bisect_right(starts, key) - 1]

    def all(self) -> list[KeyRange]:
        """Return all ranges."""
        return [
            (family, start, end)
            for family in Family
            for start, end in zip(self._starts[family], self._ends[family], strict=True)
        ]
