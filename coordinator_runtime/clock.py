"""The one door to time: everybody else takes `now_ms` as an argument, or this port."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Two clocks that are never compared with each other."""

    def wall_ms(self) -> int:
        """Unix milliseconds, for stored times only: the clock may be set, so it can jump in both directions."""

    def monotonic_ms(self) -> int:
        """Milliseconds since an arbitrary moment, never going back: for deadlines, worthless after a restart."""

    def monotonic_us(self) -> int:
        """Monotonic time in microseconds: for measuring how long things take."""


class SystemClock:
    """The clocks of the machine."""

    __slots__ = ()

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def monotonic_us(self) -> int:
        return time.monotonic_ns() // 1_000
