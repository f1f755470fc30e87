"""Counting on the hot path: plain integers, no locks, no label objects.

The library's counters cost 0.4 to 1.3 us an increment and its histograms 0.8 us; a plain `+=` costs 0.05 us. Only one
thread changes these values. A scrape copies them on the loop and renders the copy elsewhere.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

KeyT = TypeVar("KeyT", bound=Hashable)

Labels = tuple[str, ...]

SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Buckets for durations that should be milliseconds."""

AGES_SECONDS: Final = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0)
"""Buckets for the life of a transaction."""

SIZES: Final = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 5000.0)
"""Buckets for counts."""

MS: Final = 1_000
US: Final = 1_000_000
"""Number of counted units per second."""


def counts(*known: KeyT) -> defaultdict[KeyT, int]:
    """Return a count per key. Known keys start at 0, so that a count of zero differs from one that is not measured.
    Then the first event is an increase that a query sees."""
    return defaultdict(int, dict.fromkeys(known, 0))


@dataclass(frozen=True, slots=True)
class Histogram:
    """A copy of one distribution for publication: for each bound the number of values up to it, and the sum of all
    values."""

    cumulative: tuple[tuple[str, int], ...]
    total: float

    @property
    def count(self) -> int:
        """Number of values."""
        return self.cumulative[-1][1]


class Distribution:
    """Whole numbers counted into buckets. Bounds are in the published unit, which has `per_unit` of the counted units
    (`MS`, `US`)."""

    __slots__ = ("_bounds", "_buckets", "_labels", "_per_unit", "_total")

    def __init__(self, bounds: tuple[float, ...], per_unit: int = 1) -> None:
        self._bounds = tuple(bound * per_unit for bound in bounds)
        self._labels = (*map(str, bounds), "+Inf")
        self._per_unit = per_unit
        self._buckets = [0] * len(self._labels)
        self._total = 0

    def observe(self, value: int, times: int = 1) -> None:
        self._buckets[bisect_left(self._bounds, value)] += times
        self._total += value * times

    def copy(self) -> Histogram:
        """Return the current numbers. Another thread may observe meanwhile: then at most that one value is half
        counted."""
        cumulative = []
        reached = 0
        for bound, number in zip(self._labels, self._buckets, strict=True):
            reached += number
            cumulative.append((bound, reached))
        return Histogram(tuple(cumulative), self._total / self._per_unit)


def copies(distributions: Mapping[Labels, Distribution]) -> dict[Labels, Histogram]:
    """Return copies of all distributions of one metric, by their labels."""
    return {labels: distribution.copy() for labels, distribution in distributions.items()}


Sample = float | Histogram
Values = Mapping[Labels, Sample]
"""Samples of one metric by the values of its labels."""

Readings = Mapping[str, Values]
"""Values by metric name, all of one moment. A metric that is missing is published without samples."""


def single(sample: Sample) -> Values:
    """Return the values of a metric without labels."""
    return {(): sample}


def by_label(numbers: Mapping[Any, int]) -> Values:
    """Return the values of a metric with one label."""
    return {(str(key),): number for key, number in numbers.items()}
