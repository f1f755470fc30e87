"""How late the loop is: whatever holds it up holds up everybody."""

from __future__ import annotations

import asyncio
from typing import Final

from coordinator_runtime.clock import Clock
from coordinator_server.metrics.instruments import Distribution

_INTERVAL_MS: Final = 250
"""Rare enough to cost nothing, often enough to meet a stall that somebody feels."""


class LoopLag:
    """Asks to be called at regular times, for as long as the loop runs, and notes how much later it was."""

    def __init__(self, clock: Clock, lag: Distribution) -> None:
        self._clock = clock
        self._lag = lag
        self._due_us = 0

    def start(self) -> None:
        """Begin, on the running loop."""
        self._due_us = self._clock.monotonic_us() + _INTERVAL_MS * 1_000
        asyncio.get_running_loop().call_later(_INTERVAL_MS / 1_000, self._tick)

    def _tick(self) -> None:
        self._lag.observe(max(0, self._clock.monotonic_us() - self._due_us))
        self.start()
