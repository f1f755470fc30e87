"""Meter of the longest turn of the loop that a story runs on."""

from __future__ import annotations

import asyncio
from time import perf_counter, thread_time


class TurnMeter:
    """Measures the turns of the loop that it runs on, by a callback in each of them."""

    def __init__(self) -> None:
        self.took_ms = self.processor_ms = 0.0
        """Longest turn so far (ms)."""
        self._is_over = False
        self._last = perf_counter(), thread_time()
        self._loop = asyncio.get_running_loop()
        self._loop.call_soon(self._tick)

    def _tick(self) -> None:
        now = perf_counter(), thread_time()
        self.took_ms = max(self.took_ms, (now[0] - self._last[0]) * 1_000)
        self.processor_ms = max(self.processor_ms, (now[1] - self._last[1]) * 1_000)
        self._last = now
        if not self._is_over:
            self._loop.call_soon(self._tick)

    def end(self) -> None:
        self._is_over = True
