"""The asyncio producer as its loop sees it: waiting tasks, arrived answers, and the timer of the core.

One task at a time works towards a goal of the core. Tasks that send may wait beside it for buffer space.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, Final, Unpack

from coordinator_client.calls import Patience, Reply
from coordinator_client.errors import Loss, rejected
from coordinator_client.loops import AsyncioLoop, Loop, Timer
from coordinator_client.producer.config import ProducerOptions
from coordinator_client.producer.dropped import DROPPED
from coordinator_client.producer.progress import FAILURE
from coordinator_client.producer.shell import STEP, ProducerShell
from coordinator_client.producer.state import Goal
from coordinator_client.transport.connection import Connection
from coordinator_protocol.errors import ErrorCode

_CALLS: Final = {
    Goal.INIT: "init",
    Goal.RECOVER: "recover",
    Goal.LEARN: "send",
    Goal.BEGIN: "begin a transaction",
    Goal.FLUSH: "flush",
    Goal.PREPARE: "prepare",
    Goal.COMMIT: "commit",
    Goal.ABORT: "abort",
    Goal.RESOLVE: "resolve_outcome",
}
"""Name of the call that works towards each goal."""


class AsyncioProducerShell(ProducerShell):
    """Base of `AsyncProducer`; not for applications."""

    def __init__(self, endpoint: str | Connection, **options: Unpack[ProducerOptions]) -> None:
        super().__init__(endpoint, **options)
        self._open_loop = self._connection.open_loop or AsyncioLoop
        self._loop: Loop
        self._has_loop = False
        self._waiters: set[asyncio.Future[None]] = set()
        self._user: asyncio.Task[Any] | None = None
        """Task that waits for a goal, or has not resumed since it was reached."""
        self._doing: Goal | None = None
        """Goal that the task waits for."""
        self._timer: Timer | None = None
        self._timer_ms = 0
        self._patience: Patience | None = None
        """Time limit for the goal; None = until the core ends it."""

    def _stop(self) -> None:
        """Close the core, and end the calls in which tasks wait."""
        self._core.close()
        self._core.transmissions(self._clock.monotonic_ms())
        self._wake()
        self._cancel_given_up()
        if self._timer is not None:
            self._timer.cancel()

    @property
    def _is_in_use(self) -> bool:
        """True if another task is in the middle of a call."""
        user = self._user
        return user is not None and user is not asyncio.current_task() and not user.done()

    @property
    def _is_learning(self) -> bool:
        """True if a send of another task waits for the partitions of a topic."""
        return self._doing is Goal.LEARN and self._is_in_use

    def _clear_up(self) -> None:
        if self._is_in_use and self._doing is not None:
            raise rejected(
                ErrorCode.INVALID_REQUEST,
                f"another task waits for this producer to {_CALLS[self._doing]}: an AsyncProducer does one thing "
                "at a time but for sends; await one call before the next, or make a producer for each task",
            )
        super()._clear_up()

    async def _reach_goal(self) -> None:
        """Work until the core's goal is reached. Raises: the failure that it ended with."""
        core = self._core
        self._user, self._doing = asyncio.current_task(), core.goal
        try:
            self._turn()
            while core.goal is not None:
                await self._news()
        except BaseException:
            self._clear_up()
            raise
        finally:
            self._user = None
            # Sends of other tasks may have to look up their topics themselves.
            self._wake()
        if core.flights.cancelled:
            self._cancel_given_up()
        result = core.take_result()
        if result is not None:
            # A single expression: a plain producer raises each failure once, and an interruption must not lose it.
            raise result if core.is_transactional else core.told.setdefault(FAILURE, result)

    async def _news(self) -> None:
        """Return once the goal is reached or the buffer takes more records; may return earlier. Raises: an error of the
        loop's callbacks."""
        if self._patience is not None:
            self._wake_at(self._until_ms(self._patience))
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            await waiter
        finally:
            self._waiters.discard(waiter)

    def _turn(self) -> None:
        """Hand the arrived answers to the core, start the attempts that are due, and set the timer for the others. Does
        not wait."""
        # Read before the core notes that an attempt starts: this raises in a forked child, where no attempt can start.
        transport = self._connection.transport_on(self._open_loop)
        if not self._has_loop or self._loop.is_over:
            self._loop, self._has_loop, self._timer = self._open_loop(), True, None
            if isinstance(self._loop, AsyncioLoop):
                DROPPED.look_on(self._loop)
        self._step = STEP
        core = self._core
        while True:
            self._deliver()
            for due in core.transmissions(self._clock.monotonic_ms()):
                self._calls[due.flight] = transport.start(
                    due.rpc,
                    due.request,
                    timeout_ms=due.timeout_ms,
                    on_done=partial(self._report, due.flight, due.attempt),
                )
            if core.flights.cancelled:
                self._cancel_given_up()
            if not self._reports:
                break
        wake_ms = core.flights.wake_ms()
        if wake_ms is not None:
            self._wake_at(wake_ms)
        self._step = None

    def _wake_at(self, wake_ms: int) -> None:
        """Set the timer so that the core is asked again by then."""
        if self._timer is None or wake_ms < self._timer_ms:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_ms = wake_ms
            self._timer = self._loop.call_after(max(0, wake_ms - self._clock.monotonic_ms()), self._on_time)

    def _report(self, flight: int, attempt: int, answer: Reply | Loss) -> None:
        """Receive an answer: directly if it arrives on this loop, as the answers of a session do."""
        self._reports.append((flight, attempt, answer))
        if self._loop.is_here:
            self._go_on()
        else:
            self._loop.call_soon(self._go_on)

    def _on_time(self) -> None:
        self._timer = None
        self._go_on()

    def _go_on(self) -> None:
        """Hand the answers to the core, start the attempts that follow, and wake waiting tasks."""
        if self._step is not None:
            # The current step takes them. If a step was interrupted, the next call repairs its effects.
            return
        try:
            self._change(self._deliver)
            if not self._core.is_idle:
                self._turn()
        except BaseException as error:
            # Raised in the waiting tasks. If there is none, the next call finds the interrupted step.
            if not self._wake(error) and not isinstance(error, Exception):
                raise
        else:
            self._wake()

    def _wake(self, error: BaseException | None = None) -> bool:
        """Wake the waiting tasks if their wait may be over; return True if there are any."""
        waiters = [waiter for waiter in self._waiters if not waiter.done()]
        if error is not None:
            for waiter in waiters:
                waiter.set_exception(error)
        elif self._core.goal is None or self._patience is not None or not self._core.is_full:
            for waiter in waiters:
                waiter.set_result(None)
        return bool(waiters)
