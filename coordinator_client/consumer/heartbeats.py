"""How often a member sends heartbeats, and which of them may wait on the server."""

from __future__ import annotations

from typing import Final

EARLY_PAUSE_MS_FIRST: Final = 100
_DOUBLINGS_MAX: Final = 10


class Pace:
    """The timing of heartbeats.

    Kafka sends one per interval. Where heartbeats may wait, one follows the other: each stays on the server until there
    is news, at most an interval long, so they are no more than with Kafka's timing.

    A server that does not hold them must not be asked in a tight circle: each answer that comes early and brings
    nothing doubles the pause before the next, up to the interval.
    """

    __slots__ = ("_early", "_interval_ms", "_sent_ms", "_wait_ms", "_wait_ms_max")

    def __init__(self, wait_ms_max: int, *, interval_ms: int) -> None:
        """`wait_ms_max` is how long a heartbeat may wait on the server; 0 = Kafka's timing."""
        self._wait_ms_max = wait_ms_max
        self._interval_ms = interval_ms
        self._sent_ms = 0
        self._wait_ms = 0
        self._early = 0

    def begin(self, now_ms: int, *, may_wait: bool) -> int:
        """Note that a heartbeat is sent; return how long it may wait on the server."""
        self._sent_ms = now_ms
        self._wait_ms = min(self._wait_ms_max, self._interval_ms) if may_wait else 0
        return self._wait_ms

    def answered(self, now_ms: int, *, interval_ms: int = 0, is_news: bool, may_wait: bool = True) -> int:
        """Return when the next heartbeat is due. `interval_ms` is what the server asks for, if it does. Without
        `may_wait` the next one will not wait, so it is not due before the interval."""
        self._interval_ms = interval_ms or self._interval_ms
        if self._wait_ms_max == 0 or not may_wait:
            return max(now_ms, self._sent_ms + self._interval_ms)
        if is_news or now_ms - self._sent_ms >= self._wait_ms // 2:
            self._early = 0
            return now_ms
        pause_ms = EARLY_PAUSE_MS_FIRST << min(self._early, _DOUBLINGS_MAX)
        self._early += 1
        return now_ms + min(self._interval_ms, pause_ms)
