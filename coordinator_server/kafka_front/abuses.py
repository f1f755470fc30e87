"""Counts of connections that do not speak as they must, with at most one log line per kind and second."""

from __future__ import annotations

from collections import Counter
from typing import Final

from coordinator_runtime.clock import Clock
from coordinator_server.listening import log_abuse

LOG_MS: Final = 1_000
"""Interval of the log lines of one kind. A line has the number of connections since the last one."""


class Abuses:
    """The counts of one listener."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.counts: Counter[str] = Counter()
        self._logged: dict[str, tuple[int, int]] = {}
        """Time of the last line of each kind, and the count in it."""

    def count(self, kind: str, host: str, details: str) -> None:
        """Count one connection, and log it unless a line of this kind was logged a moment ago."""
        self.counts[kind] += 1
        now_ms = self._clock.monotonic_ms()
        logged_ms, count = self._logged.get(kind, (None, 0))
        if logged_ms is None or now_ms - logged_ms >= LOG_MS:
            log_abuse(kind, host=host, details=details, number=self.counts[kind] - count)
            self._logged[kind] = now_ms, self.counts[kind]
