"""Counting on the hot path: plain integers, no locks, no label objects.

The library's counters cost 0.4 to 1.3 us an increment and its histograms 0.8 us; a plain `+=` costs 0.05 us. Everything
here is touched by the loop thread only. A scrape copies it on the loop and renders the copy elsewhere.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass
from typing import Final

Labels = tuple[str, ...]

SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Buckets for what should take milliseconds."""

AGES_SECONDS: Final = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0)
"""Buckets for the life of a transaction."""

SIZES: Final = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 5000.0)
"""Buckets for numbers of things."""


class Counts:
    """A number per combination of labels."""

    __slots__ = ("_numbers",)

    def __init__(self) -> None:
        self._numbers: defaultdict[Labels, int] = defaultdict(int)

    def add(self, labels: Labels, amount: int = 1) -> None:
        self._numbers[labels] += amount

    def get(self, labels: Labels) -> int:
        """0 for what never happened; asking does not create it."""
        return self._numbers.get(labels, 0)

    def copy(self) -> dict[Labels, float]:
        return {labels: float(number) for labels, number in self._numbers.items()}


@dataclass(frozen=True, slots=True)
class Histogram:
    """A copy of one distribution, as it is published: how many values were at most each bound, and their sum."""

    cumulative: tuple[tuple[str, int], ...]
    total: float


class Distribution:
    """Values counted into buckets, per combination of labels."""

    __slots__ = ("_bounds", "_buckets", "_totals")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._buckets: dict[Labels, list[int]] = {}
        self._totals: defaultdict[Labels, float] = defaultdict(float)

    def observe(self, value: float, labels: Labels = ()) -> None:
        buckets = self._buckets.get(labels)
        if buckets is None:
            buckets = self._buckets[labels] = [0] * (len(self._bounds) + 1)
        buckets[bisect_left(self._bounds, value)] += 1
        self._totals[labels] += value

    def copy(self) -> dict[Labels, Histogram]:
        return {labels: self._one(buckets, self._totals[labels]) for labels, buckets in self._buckets.items()}

    def _one(self, buckets: list[int], total: float) -> Histogram:
        cumulative = []
        reached = 0
        for bound, number in zip((*map(str, self._bounds), "+Inf"), buckets, strict=True):
            reached += number
            cumulative.append((bound, reached))
        return Histogram(tuple(cumulative), total)
