"""Where short calls run one after the other, soon or at a time: a thread of this process, or an asyncio loop.

Consumers live on a loop: it carries their heartbeats and fetches, whatever the application does meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
import os
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final, Protocol, TypeAlias

from coordinator_client.clock import Clock, SystemClock

THREAD_NAME: Final = "coordinator-client-loop"

_LONGEST_LOOK_MS: Final = 3_600_000

_Call: TypeAlias = Callable[[], None]


class Timer(Protocol):
    """A call that is to come."""

    def cancel(self) -> object:
        """Let it not come; too late is no error."""
        ...


class Loop(Protocol):
    """Runs calls one at a time. A call must be short and must not raise."""

    def call_soon(self, call: _Call) -> None:
        """Run it soon, after those before it; from any thread."""
        ...

    def call_after(self, wait_ms: int, call: _Call) -> Timer:
        """Run it after this time; from any thread that may use the loop."""
        ...

    def release(self) -> None:
        """It is not used any more by whoever got it."""
        ...


class _ThreadTimer:
    """A call in the heap of the thread."""

    __slots__ = ("call", "is_cancelled")

    def __init__(self, call: _Call) -> None:
        self.call = call
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class BackgroundLoop:
    """A daemon thread, named so that a stack dump tells what it is."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._inbox: SimpleQueue[_Call] = SimpleQueue()
        self._timers: list[tuple[int, int, _ThreadTimer]] = []
        self._numbers = itertools.count()
        self._is_stopped = False
        # The one thread of the SDK: a blocking application has no loop that heartbeats could run on.
        threading.Thread(target=self._run, name=THREAD_NAME, daemon=True).start()  # noqa: TID251

    def call_soon(self, call: _Call) -> None:
        self._inbox.put(call)

    def call_after(self, wait_ms: int, call: _Call) -> Timer:
        timer = _ThreadTimer(call)
        due_ms = self._clock.monotonic_ms() + wait_ms
        self._inbox.put(lambda: heapq.heappush(self._timers, (due_ms, next(self._numbers), timer)))
        return timer

    def release(self) -> None:
        _SHARED.release(self)

    def stop(self) -> None:
        """Let the thread end after what it was given."""
        self._inbox.put(self._stop)

    def _stop(self) -> None:
        self._is_stopped = True

    def _run(self) -> None:
        while not self._is_stopped:
            call = self._clock.take(self._inbox, self._wait_ms())
            if call is not None:
                call()
            self._run_due()

    def _wait_ms(self) -> int:
        if not self._timers:
            return _LONGEST_LOOK_MS
        return max(0, self._timers[0][0] - self._clock.monotonic_ms())

    def _run_due(self) -> None:
        now_ms = self._clock.monotonic_ms()
        while self._timers and self._timers[0][0] <= now_ms:
            timer = heapq.heappop(self._timers)[2]
            if not timer.is_cancelled:
                timer.call()


class AsyncioLoop:
    """The asyncio loop that runs when this is made."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()

    def call_soon(self, call: _Call) -> None:
        # An answer may come after the application has ended its loop; then nobody waits for it.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(call)

    def call_after(self, wait_ms: int, call: _Call) -> Timer:
        return self._loop.call_later(wait_ms / 1_000, call)

    def release(self) -> None:
        """Nothing: the loop is the application's."""


class _SharedLoop:
    """The loop thread of this process, as long as somebody uses it. A fork starts without: threads do not cross it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process_id = 0
        self._loop: BackgroundLoop | None = None
        self._users = 0

    def acquire(self) -> BackgroundLoop:
        with self._lock:
            if self._loop is None or self._process_id != os.getpid():
                self._loop, self._process_id, self._users = BackgroundLoop(SystemClock()), os.getpid(), 0
            self._users += 1
            return self._loop

    def release(self, loop: BackgroundLoop) -> None:
        with self._lock:
            if loop is not self._loop:
                return
            self._users -= 1
            if self._users == 0:
                loop.stop()
                self._loop = None


_SHARED: Final = _SharedLoop()


def background_loop() -> Loop:
    """Return the loop thread of this process, started now if nobody uses it; `release` it at the end."""
    return _SHARED.acquire()
