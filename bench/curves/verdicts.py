"""Verdicts on the growth of a cost. Pure.

A cost has a part that is there without any work: an idle server has memory and takes time to start. So growth is that
of the cost above its first value, as soon as there is a clear difference, against the work above the first point. For a
cost `a + b n` the exponent is 1 then, and for `a + b n^2` it is near 2, although both cost next to nothing at first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

LINEAR_MAX: Final = 1.2
"""Largest exponent that is called linear. It leaves room for noise, and for a factor that grows like a logarithm."""
CLEAR: Final = 0.25
"""Share of the first cost from which on a difference to it is no noise."""

Place = tuple[float, float]
"""Amount of work, and cost at that amount. Both above 0."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Verdict on one figure."""

    exponents: Sequence[float]
    """Growth exponent of each step from one point to the next."""
    is_level: bool
    """True if no later cost is clearly above the first one."""
    worse_from: float | None
    """Amount of work from which on the cost grows faster than the work; None = at most linear."""

    @property
    def words(self) -> str:
        if self.worse_from is not None:
            return f"worse than linear from {amount(self.worse_from)} on"
        if not self.exponents:
            return "too few points"
        return "level" if self.is_level else "at most linear"


def judge(places: Sequence[Place]) -> Verdict:
    """Judge costs at ascending amounts of work.

    One point that is too high says nothing if later ones are not. So a step is worse than linear only if it and the
    whole way from there to the last point are."""
    steps = range(len(places) - 1)
    worse = (
        places[at][0]
        for at in steps
        if min(exponent(places, at, at + 1), exponent(places, at, len(places) - 1)) > LINEAR_MAX
    )
    return Verdict(
        exponents=[exponent(places, at, at + 1) for at in steps],
        is_level=all(cost < places[0][1] * (1 + CLEAR) for _, cost in places[1:]),
        worse_from=next(worse, None),
    )


def exponent(places: Sequence[Place], one: int, other: int) -> float:
    """Return the growth exponent between two places, by their numbers: 1 = as fast as the work."""
    (first_work, first_cost), (low_work, low_cost), (high_work, high_cost) = places[0], places[one], places[other]
    if low_cost - first_cost >= CLEAR * first_cost and high_cost > first_cost:
        low_work, high_work = low_work - first_work, high_work - first_work
        low_cost, high_cost = low_cost - first_cost, high_cost - first_cost
    return math.log(high_cost / low_cost) / math.log(high_work / low_work)


def amount(value: float) -> str:
    """Return an amount in few characters: 320, 32 k, 1 M."""
    for size, letter in ((1e6, " M"), (1e3, " k")):
        if value >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"
