"""Pauses after failures of a member of a group."""

from __future__ import annotations

from typing import Final

from coordinator_client.random_source import RandomSource

BACKOFF_MS_FIRST: Final = 100
BACKOFF_MS_MAX: Final = 1_000
_DOUBLINGS_MAX: Final = 10


class Backoff:
    """Pauses that grow with consecutive failures, from 100 ms to 1 s, jittered (spec groups 7.1)."""

    __slots__ = ("_failures", "_random_source")

    def __init__(self, random_source: RandomSource) -> None:
        self._random_source = random_source
        self._failures = 0

    def next_ms(self) -> int:
        """Return the pause after one more failure."""
        longest_ms = min(BACKOFF_MS_MAX, BACKOFF_MS_FIRST << min(self._failures, _DOUBLINGS_MAX))
        self._failures += 1
        return max(1, round(longest_ms * (1 + self._random_source.fraction()) / 2))

    def reset(self) -> None:
        """Note a success."""
        self._failures = 0
