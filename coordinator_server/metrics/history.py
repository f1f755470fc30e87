"""Rates and levels of the last hour, for a server whose metrics no other system stores.

One sample of a dozen numbers is taken every ten seconds. The oldest is dropped, so the memory is bounded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from coordinator_core.observed import Rates
from coordinator_runtime.runtime import Runtime
from coordinator_server.metrics.instruments import MS

INTERVAL_MS: Final = 10_000
POINTS_MAX: Final = 360
"""Number of values of a series: an hour."""
RATES_TIMER: Final = "rates"
"""Kind of the timer of the next sample."""


class RateMemory:
    """Takes samples on the loop, and turns them into rates when asked."""

    def __init__(
        self,
        runtime: Runtime,
        counters: Callable[[], Mapping[str, float]],
        levels: Callable[[int], Mapping[str, float]],
    ) -> None:
        """`counters` returns numbers that only grow, and `levels` those of a moment, which it is given in ms."""
        self._runtime = runtime
        self._counters = counters
        self._levels = levels
        self._counted: Mapping[str, float] = {}
        self._counted_ms = 0
        """Counters of the newest sample, and their time on the monotonic clock."""
        self._points: deque[Mapping[str, float]] = deque(maxlen=POINTS_MAX)
        self._end_ms = 0

    def start(self) -> None:
        """Begin to take samples."""
        self._counted, self._counted_ms = self._counters(), self._runtime.clock.monotonic_ms()
        self._end_ms = self._runtime.clock.wall_ms()
        self._runtime.arm((RATES_TIMER,), INTERVAL_MS, self._sample)

    def rates(self) -> Rates:
        """Return all series."""
        names = self._points[-1] if self._points else ()
        series = {name: [point.get(name, 0.0) for point in self._points] for name in names}
        return Rates(INTERVAL_MS, self._end_ms, series)

    def _sample(self) -> None:
        clock = self._runtime.clock
        counted, counted_ms = self._counters(), clock.monotonic_ms()
        seconds = max(1, counted_ms - self._counted_ms) / MS
        # A deleted topic takes its counts along.
        rates = {name: max(0.0, number - self._counted.get(name, number)) / seconds for name, number in counted.items()}
        self._end_ms = clock.wall_ms()
        self._points.append({**rates, **self._levels(self._end_ms)})
        self._counted, self._counted_ms = counted, counted_ms
        self._runtime.arm((RATES_TIMER,), INTERVAL_MS, self._sample)
