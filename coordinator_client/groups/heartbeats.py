"""Heartbeats of a member whose group assigns partitions on the server: one at a time, at once or after a pause.

A heartbeat with nothing to report waits on the server for changes, so the member learns of them at once. If the member
has something to report meanwhile, it gives up the waiting heartbeat. The answer may be lost with it, so the next
heartbeat reports everything, and the server then repeats everything.

Source: spec groups 3.2, 6.1, 7.7; KIP-848, KIP-932.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from coordinator_client.calls import ReplyT, RequestT, RetryingCall, Rpc
from coordinator_client.errors import TransactionError
from coordinator_client.groups.backoff import Backoff
from coordinator_client.groups.context import MemberContext

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
INTERVAL_MS_FIRST: Final = 5_000
"""Heartbeat interval until the server has specified one (ms)."""

EARLY_PAUSE_MS_FIRST: Final = 100
_DOUBLINGS_MAX: Final = 10


class Pace:
    """The timing of heartbeats.

    Kafka sends one per interval. If heartbeats may wait, one follows the other: each stays on the server until
    something changes, for an interval at most. So there are no more of them than with Kafka's timing.

    A server that does not hold them must not be asked in a tight loop. Each early answer without a change doubles the
    pause before the next heartbeat, up to the interval.
    """

    __slots__ = ("_early", "_interval_ms", "_sent_ms", "_wait_ms", "_wait_ms_max")

    def __init__(self, wait_ms_max: int, *, interval_ms: int) -> None:
        """Start with an interval. `wait_ms_max` is the time that a heartbeat may wait on the server; 0 = Kafka's
        timing."""
        self._wait_ms_max = wait_ms_max
        self._interval_ms = interval_ms
        self._sent_ms = 0
        self._wait_ms = 0
        self._early = 0

    def begin(self, now_ms: int, *, may_wait: bool) -> int:
        """Note that a heartbeat is sent; return the time that it may wait on the server."""
        self._sent_ms = now_ms
        self._wait_ms = min(self._wait_ms_max, self._interval_ms) if may_wait else 0
        return self._wait_ms

    def answered(self, now_ms: int, *, interval_ms: int = 0, is_news: bool, may_wait: bool = True) -> int:
        """Return the time of the next heartbeat. `interval_ms` is the interval requested by the server, if any. Without
        `may_wait` the next heartbeat will not wait, so it is not due before the interval."""
        self._interval_ms = interval_ms or self._interval_ms
        if self._wait_ms_max == 0 or not may_wait:
            return max(now_ms, self._sent_ms + self._interval_ms)
        if is_news or now_ms - self._sent_ms >= self._wait_ms // 2:
            self._early = 0
            return now_ms
        pause_ms = EARLY_PAUSE_MS_FIRST << min(self._early, _DOUBLINGS_MAX)
        self._early += 1
        return now_ms + min(self._interval_ms, pause_ms)


class HeartbeatSender:
    """The heartbeats of one member."""

    def __init__(self, context: MemberContext) -> None:
        self.due_ms = 0
        """Time of the next heartbeat (ms), if none is in flight."""
        self.is_full_due = True
        """True if the next heartbeat must report everything."""
        self._context = context
        self._pace = Pace(context.config.heartbeat_wait_ms, interval_ms=INTERVAL_MS_FIRST)
        self._backoff = Backoff(context.random_source)
        self._flight: int | None = None
        self._is_waiting = False
        """True if the heartbeat in flight may wait on the server."""

    @property
    def is_idle(self) -> bool:
        """True if no heartbeat is in flight."""
        return self._flight is None

    def speak(self, now_ms: int) -> None:
        """Send a heartbeat now, in place of one that waits on the server."""
        if self._flight is not None and self._is_waiting:
            self.cancel()
        self.due_ms = now_ms

    def cancel(self) -> None:
        """Give up the heartbeat in flight, if there is one."""
        if self._flight is not None:
            self._context.flights.cancel(self._flight)
            self._flight, self.is_full_due = None, True

    def begin(self, now_ms: int, *, may_wait: bool) -> int:
        """Note that a heartbeat is about to be sent; return the time that it may wait on the server."""
        wait_ms = self._pace.begin(now_ms, may_wait=may_wait)
        self._is_waiting = wait_ms > 0
        return wait_ms

    def send(
        self,
        rpc: Rpc[RequestT, ReplyT],
        request: RequestT,
        wait_ms: int,
        on_end: Callable[[ReplyT | TransactionError, int], None],
        now_ms: int,
    ) -> None:
        """Send a heartbeat that has begun; `on_end` is called with its answer or failure, and the time."""

        def ended(end: ReplyT | TransactionError, at_ms: int) -> None:
            self._flight = None
            on_end(end, at_ms)

        call = RetryingCall(rpc, request, deadlines=self._context.once(wait_ms=wait_ms), now_ms=now_ms)
        self._flight = self._context.flights.start(call, ended)

    def answered(self, now_ms: int, *, interval_ms: int, is_news: bool) -> None:
        """Note an answer. `interval_ms` is the interval requested by the server."""
        self._backoff.reset()
        self.is_full_due = False
        self.due_ms = self._pace.answered(now_ms, interval_ms=interval_ms, is_news=is_news)

    def repeat(self, now_ms: int) -> None:
        """Send the next heartbeat after a pause, because this one failed."""
        self.due_ms = now_ms + self._backoff.next_ms()
