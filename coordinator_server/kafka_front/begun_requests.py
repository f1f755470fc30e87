"""Requests of one listener that have begun and are not answered.

Their number and their bytes are bounded. Beyond, connections are not read, and the clients wait: the back-pressure of
the protocol itself. A client repeats a refusal, and then the batches of a producer without sequences change their
order. One request may begin whatever its size. Calls that wait for records or members count by their bytes alone.
"""

from __future__ import annotations

from collections.abc import Callable

Later = Callable[[int, Callable[[], None]], object]
"""Calls a function after so many milliseconds, in a turn of its own."""


class BegunRequests:
    """The count of all of them, and the connections that wait for less."""

    def __init__(self, bytes_max: int, calls_max: int, later: Later) -> None:
        self._bytes_max = bytes_max
        self._calls_max = calls_max
        self._later = later
        self._waiting: dict[Callable[[], None], None] = {}
        """An ordered set of functions that go on."""
        self._is_due = False
        self.held_bytes = 0
        self.calls_in_work = 0

    def may_begin(self, size_bytes: int) -> bool:
        """Return True if a request of this size may begin now. Not while others wait."""
        if self._waiting:
            return False
        is_small = self.held_bytes + size_bytes <= self._bytes_max and self.calls_in_work < self._calls_max
        return is_small or not self.held_bytes

    def begin(self, size_bytes: int, *, is_work: bool) -> None:
        """Count a request that begins. `is_work` is False for one that may wait without work."""
        self.held_bytes += size_bytes
        self.calls_in_work += is_work

    def end(self, size_bytes: int, *, is_work: bool) -> None:
        """Take a request off the count. Connections that wait go on in a later turn of the loop."""
        self.held_bytes -= size_bytes
        self.calls_in_work -= is_work
        if self._waiting and not self._is_due:
            self._is_due = True
            self._later(0, self._go_on)

    def wait(self, go_on: Callable[[], None]) -> None:
        """Call a function once there may be fewer bytes, in order of the calls of this one."""
        self._waiting[go_on] = None

    def _go_on(self) -> None:
        self._is_due = False
        waiting, self._waiting = self._waiting, {}
        for go_on in waiting:
            go_on()
