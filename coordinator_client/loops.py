"""Event loops on which short callbacks run one at a time, soon or at a given time.

Sessions and consumers live on a loop, which carries requests, heartbeats and fetches regardless of the application. It
is the application's asyncio loop, or one in a thread of the SDK.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Final, Protocol, TypeAlias

from coordinator_client.process import THIS_PROCESS

THREAD_NAME: Final = "coordinator-client-loop"

_END_SECONDS: Final = 10.0

_Call: TypeAlias = Callable[[], None]

LOOK_MS: Final = 1_000
"""Time between two looks at things that no event reports (ms)."""
LOOKS: Final[list[_Call]] = []
"""Looks of the loop thread of this process; none of them may raise."""


class Timer(Protocol):
    """A callback that is due later."""

    def cancel(self) -> object:
        """Cancel the callback; a late cancellation is no error."""


class Loop(Protocol):
    """Runs callbacks one at a time. A callback must be short and must not raise."""

    @property
    def is_here(self) -> bool:
        """True if this thread runs the loop."""

    @property
    def is_over(self) -> bool:
        """True if the loop has ended and runs no more callbacks."""

    def call_soon(self, call: _Call) -> None:
        """Run `call` soon, after those passed earlier; usable from any thread."""

    def call_after(self, wait_ms: int, call: _Call) -> Timer:
        """Run `call` after this time; usable from any thread that may use the loop."""

    def release(self) -> None:
        """Release the loop; every user of the loop calls this once."""


class AsyncioLoop:
    """The asyncio loop that is running at the creation of this object."""

    def __init__(self) -> None:
        self.asyncio_loop = asyncio.get_running_loop()
        self._thread_id = threading.get_ident()

    @property
    def is_here(self) -> bool:
        """True if this thread runs the loop."""
        return threading.get_ident() == self._thread_id

    @property
    def is_over(self) -> bool:
        """True if the loop has ended and runs no more callbacks."""
        return self.asyncio_loop.is_closed()

    def call_soon(self, call: _Call) -> None:
        # An answer may come after the application has ended its loop; then no caller waits for it.
        with contextlib.suppress(RuntimeError):
            if self.is_here:
                self.asyncio_loop.call_soon(call)
            else:
                self.asyncio_loop.call_soon_threadsafe(call)

    def call_after(self, wait_ms: int, call: _Call) -> Timer:
        return self.asyncio_loop.call_later(wait_ms / 1_000, call)

    def release(self) -> None:
        """Do nothing: the loop is the application's."""


class _ThreadTimer:
    """A callback that is due later on the loop of another thread."""

    __slots__ = ("_call", "_is_cancelled")

    def __init__(self, call: _Call) -> None:
        self._call = call
        self._is_cancelled = False

    def cancel(self) -> None:
        self._is_cancelled = True

    def fire(self) -> None:
        if not self._is_cancelled:
            self._call()


class BackgroundLoop(AsyncioLoop):
    """A loop in its own daemon thread, with a recognisable name for stack dumps."""

    def __init__(self) -> None:
        self.asyncio_loop = _new_asyncio_loop()
        self._is_over = False
        # The only thread of the SDK: a blocking application has no loop for heartbeats.
        self._thread = threading.Thread(target=self._run, name=THREAD_NAME, daemon=True)  # noqa: TID251
        self._thread.start()

    @property
    def is_here(self) -> bool:
        return threading.current_thread() is self._thread

    @property
    def is_over(self) -> bool:
        return self._is_over

    def call_after(self, wait_ms: int, call: _Call) -> Timer:
        timer = _ThreadTimer(call)
        self.call_soon(lambda: self._start(wait_ms, timer))
        return timer

    def _start(self, wait_ms: int, timer: _ThreadTimer) -> None:
        self.asyncio_loop.call_later(wait_ms / 1_000, timer.fire)

    def release(self) -> None:
        _SHARED.release(self)

    def stop(self) -> None:
        """End the thread after the callbacks passed so far, and wait for that; without waiting if called on that
        thread."""
        self.call_soon(self.asyncio_loop.stop)
        if not self.is_here:
            self._thread.join(_END_SECONDS)

    def close(self) -> None:
        """Release the system resources of an ended thread's loop. A thread that does not end keeps them."""
        self._thread.join(_END_SECONDS)
        if self._is_over:
            self.asyncio_loop.close()

    def _run(self) -> None:
        asyncio.set_event_loop(self.asyncio_loop)
        self._look_later()
        self.asyncio_loop.run_forever()
        tasks = asyncio.all_tasks(self.asyncio_loop)
        for task in tasks:
            task.cancel()
        self.asyncio_loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        # The loop would keep it, and with it this object, until the collector comes.
        self._next_look.cancel()
        self._is_over = True

    def _look_later(self) -> None:
        self._next_look = self.asyncio_loop.call_later(LOOK_MS / 1_000, self._look)

    def _look(self) -> None:
        self._look_later()
        for look in LOOKS:
            look()


def _new_asyncio_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


class _SharedLoop:
    """Counts the users of the loop thread of this process, which runs while it has any. A forked child begins without
    one: threads do not survive a fork.

    A loop is closed only after the next one has ended. grpc.aio reports its cancelled calls to their loop a little
    later. If that loop were closed by then, another loop of the process would get an exception from it.
    """

    def __init__(self) -> None:
        self._ended: BackgroundLoop | None = None
        self._lock = threading.RLock()
        self._process_id = 0
        self._loop: BackgroundLoop | None = None
        self._users = 0

    def acquire(self) -> BackgroundLoop:
        with self._lock:
            if self._loop is None or self._process_id != THIS_PROCESS.process_id:
                self._loop, self._process_id, self._users = BackgroundLoop(), THIS_PROCESS.process_id, 0
            self._users += 1
            return self._loop

    def release(self, loop: BackgroundLoop) -> None:
        with self._lock:
            if loop is not self._loop:
                return
            self._users -= 1
            if self._users:
                return
            self._loop = None
            before, self._ended = self._ended, loop
        loop.stop()
        if before is not None:
            before.close()


_SHARED: Final = _SharedLoop()


def background_loop() -> Loop:
    """Return the loop thread of this process, started now if it has no user. Call `release` on it at the end."""
    return _SHARED.acquire()
