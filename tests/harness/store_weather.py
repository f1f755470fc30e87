"""Bad weather of an object store: answers that are late, doubled, wrong or lost, at rates, by a seed.

with ObjectServer() as objects:
    objects.weather = Weather(seed=7)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from random import Random
from typing import Final


class Fault(StrEnum):
    """Fault of one request."""

    LATE = "late"
    """The request waits before it is done."""
    TWICE = "twice"
    """The request is done twice, and the second answer arrives, as after a repetition on the way."""
    CONFLICT = "409"
    """Nothing is done. Only a conditional write is answered so."""
    ERROR = "500"
    """Nothing is done."""
    LOST = "lost"
    """The request is done, and the connection ends without an answer."""


RATES: Final[Mapping[Fault, float]] = {
    Fault.LATE: 0.01,
    Fault.TWICE: 0.005,
    Fault.CONFLICT: 0.001,
    Fault.ERROR: 0.01,
    Fault.LOST: 0.005,
}
"""Share of the requests by fault. Clients repeat after most of them; so many that a store works on slowly."""

_LATE_SECONDS: Final = (0.2, 2.0)


class Weather:
    """The fault of each request. On the loop of the store only."""

    def __init__(self, seed: int, rates: Mapping[Fault, float] = RATES) -> None:
        self._rng = Random(seed)
        self._faults = list(rates)
        self._weights = [rates[each] for each in self._faults]
        self.counts: Counter[Fault] = Counter()
        """Number of faults so far."""

    def fault(self, *, is_conditional: bool) -> Fault | None:
        """Return the fault of the next request; None for most."""
        (found,) = self._rng.choices([*self._faults, None], [*self._weights, 1 - sum(self._weights)])
        if found is None or (found is Fault.CONFLICT and not is_conditional):
            return None
        self.counts[found] += 1
        return found

    def late_seconds(self) -> float:
        """Return the delay of a late request."""
        return self._rng.uniform(*_LATE_SECONDS)
