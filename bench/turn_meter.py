"""Meter of the longest turn of the loop that a story runs on."""

from __future__ import annotations

import asyncio
from time import perf_counter, thread_time


class TurnMeter:
    """Measures the turns of the loop that it runs on, by a callback in each of them, or now and then."""

    def __init__(self, interval_s: float = 0.0) -> None:
        """`interval_s`: time between two looks. Without one the meter keeps the loop busy, and sees each turn. Else
        it costs next to nothing, and of a turn it sees what is behind the moment of a look."""
        self.took_ms = self.processor_ms = 0.0
        """Longest turn so far (ms)."""
        self._interval_s = interval_s
        self._is_over = False
        self._last = perf_counter(), thread_time()
        self._loop = asyncio.get_running_loop()
        self._look_again()

    def _look_again(self) -> None:
        if self._interval_s:
            self._loop.call_later(self._interval_s, self._tick)
        else:
            self._loop.call_soon(self._tick)

    def _tick(self) -> None:
        now = perf_counter(), thread_time()
        self.took_ms = max(self.took_ms, (now[0] - self._last[0] - self._interval_s) * 1_000)
        self.processor_ms = max(self.processor_ms, (now[1] - self._last[1]) * 1_000)
        self._last = now
        if not self._is_over:
            self._look_again()

    def end(self) -> None:
        self._is_over = True
