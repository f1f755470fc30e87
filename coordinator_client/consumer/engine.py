"""Runs the core of one consumer: starts its requests, brings it the answers, wakes it in time, and gives the
application's thread its turn.

The core belongs to whoever holds the lock, which is held for moments only: never while the application's code runs, and
never while anything is waited for.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from coordinator_client.calls import Reply
from coordinator_client.connection import Connection
from coordinator_client.consumer.core import ConsumerCore
from coordinator_client.errors import Loss
from coordinator_client.loops import Loop, Timer
from coordinator_client.transport import Call, Transport


class Engine:
    """The engine of one consumer."""

    def __init__(
        self, core: ConsumerCore, connection: Connection, open_loop: Callable[[], Loop], wake_user: Callable[[], None]
    ) -> None:
        """`wake_user` is called on the loop whenever the core may have something for the application. The loop is
        opened with the first turn."""
        self._core = core
        self._connection = connection
        self._open_loop = open_loop
        self._wake_user = wake_user
        self._lock = threading.Lock()
        self._loop: Loop | None = None
        self._calls: dict[int, Call] = {}
        self._timer: Timer | None = None
        self._timer_ms = 0
        self._defect: BaseException | None = None

    @property
    def now_ms(self) -> int:
        """The time by the clock that the core uses."""
        return self._connection.clock.monotonic_ms()

    @contextmanager
    def turn(self) -> Iterator[ConsumerCore]:
        """Lend the core to the caller, then start what follows from what it did.

        Raises: Misconfigured in a fork of the process that used the consumer first; Rejected after `close` of the
        connection; whatever went wrong on the loop meanwhile.
        """
        # Before the lock is taken: in a fork it may be held for ever by a thread that does not exist there.
        transport = self._connection.transport_on(self._open_loop)
        with self._lock:
            if self._defect is not None:
                raise self._defect
            if self._loop is None and not self._core.is_closed:
                self._loop = self._open_loop()
            try:
                yield self._core
            finally:
                self._go_on(transport)

    def wake_after(self, wait_ms: int) -> Timer:
        """Wake the application after this time, unless something else does before. Only after a turn."""
        assert self._loop is not None, "whoever waits has had a turn"
        return self._loop.call_after(wait_ms, self._wake_user)

    def stop(self) -> None:
        """Close the core and release the loop. In a fork it does nothing: both are the parent's."""
        if self._connection.is_of_a_parent:
            return
        with self._lock:
            if not self._core.is_closed:
                self._core.close(self.now_ms)
            self._cancel_given_up()
            if self._timer is not None:
                self._timer.cancel()
            loop, self._loop = self._loop, None
        if loop is not None:
            loop.release()

    def _go_on(self, transport: Transport) -> None:
        for due in self._core.transmissions(self.now_ms):
            self._calls[due.flight] = transport.start(
                due.rpc, due.request, timeout_ms=due.timeout_ms, on_done=partial(self._report, due.flight, due.attempt)
            )
        self._cancel_given_up()
        self._set_timer()

    def _cancel_given_up(self) -> None:
        for flight in self._core.take_cancelled():
            call = self._calls.pop(flight, None)
            if call is not None:
                call.cancel()

    def _set_timer(self) -> None:
        wake_ms = self._core.wake_ms()
        if wake_ms is None or self._loop is None or (self._timer is not None and self._timer_ms <= wake_ms):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = wake_ms
        self._timer = self._loop.call_after(max(0, wake_ms - self.now_ms), self._on_time)

    def _report(self, flight: int, attempt: int, answer: Reply | Loss) -> None:
        """Pass an answer to the loop, whichever thread it comes on."""
        loop = self._loop
        if loop is not None:
            loop.call_soon(partial(self._in_loop, partial(self._deliver, flight, attempt, answer)))

    def _on_time(self) -> None:
        def due() -> None:
            self._timer = None

        self._in_loop(due)

    def _deliver(self, flight: int, attempt: int, answer: Reply | Loss) -> None:
        self._calls.pop(flight, None)
        self._core.on_answer(flight, attempt, answer, self.now_ms)

    def _in_loop(self, call: Callable[[], None]) -> None:
        """Let `call` change the core on the loop, and wake the application, which may wait for the consequences."""
        with self._lock:
            if self._core.is_closed or self._defect is not None:
                return
            try:
                call()
                self._go_on(self._connection.transport_on(self._open_loop))
            except BaseException as error:  # noqa: BLE001  nobody is here to see it: the next turn raises it
                self._defect = error
        self._wake_user()
