"""A clock that only a test moves."""

from __future__ import annotations

import asyncio


class ManualClock:
    """The Clock port, moved by hand. The two clocks start far apart, so that code that mixes them up is found out."""

    __slots__ = ("_monotonic_ms", "_took_us", "_wall_ms")

    def __init__(self, *, wall_ms: int = 1_700_000_000_000, monotonic_ms: int = 1_000_000) -> None:
        self._wall_ms = wall_ms
        self._monotonic_ms = monotonic_ms
        self._took_us = 0

    def wall_ms(self) -> int:
        return self._wall_ms

    def monotonic_ms(self) -> int:
        return self._monotonic_ms

    def monotonic_us(self) -> int:
        return self._monotonic_ms * 1_000 + self._took_us

    def advance(self, elapsed_ms: int) -> None:
        """Let time pass, on both clocks."""
        assert elapsed_ms >= 0, "time does not go back; to set the wall clock back use step_wall"
        self._wall_ms += elapsed_ms
        self._monotonic_ms += elapsed_ms

    def take_us(self, elapsed_us: int) -> None:
        """Let a piece of work take some microseconds, without any deadline coming nearer."""
        self._took_us += elapsed_us

    def step_wall(self, difference_ms: int) -> None:
        """Set the wall clock forward or back, as an operator or NTP does; no time passes."""
        self._wall_ms += difference_ms


class LoopOnClock(asyncio.SelectorEventLoop):
    """A real loop whose timers run by a manual clock: what is to happen later happens once the test says that it is
    later. Everything else happens as it comes, sockets and threads included."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        super().__init__()

    def time(self) -> float:
        return self._clock.monotonic_ms() / 1_000
