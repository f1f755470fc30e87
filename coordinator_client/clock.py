"""Clock port. All other code of the client takes `now_ms` as an argument or uses this port, so that tests control
time."""

from __future__ import annotations

import time
from queue import Empty, SimpleQueue
from typing import Protocol, TypeVar

T = TypeVar("T")


class Clock(Protocol):
    """Source of time, and the only way to wait."""

    def wall_ms(self) -> int:
        """Return Unix milliseconds. Used only for timestamps of records, because the system clock may be set."""

    def monotonic_ms(self) -> int:
        """Return milliseconds since an arbitrary moment, which never decrease. Used for deadlines."""

    def take(self, inbox: SimpleQueue[T], wait_ms: int) -> T | None:
        """Return the oldest item, waiting up to `wait_ms` for one; None if none came."""

    def pause(self, wait_ms: int) -> None:
        """Return after `wait_ms`."""


class SystemClock:
    """The clocks of the machine."""

    __slots__ = ()

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def take(self, inbox: SimpleQueue[T], wait_ms: int) -> T | None:
        if wait_ms <= 0 and inbox.empty():
            # The common case: raising and catching `Empty` would cost several times as much.
            return None
        try:
            return inbox.get(timeout=wait_ms / 1_000) if wait_ms > 0 else inbox.get_nowait()
        except Empty:
            return None

    def pause(self, wait_ms: int) -> None:
        time.sleep(max(0, wait_ms) / 1_000)
