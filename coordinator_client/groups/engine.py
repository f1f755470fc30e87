"""Engine of one consumer, of a share group or not. It starts the requests of the core, passes it the answers, wakes it
in time, and carries out the application's steps.

All of that happens on one loop, one step at a time. The loop of a blocking consumer is a separate thread, on which no
signal handler runs. So an exception in the application's thread interrupts the wait for a step, but never a step. On an
application's own asyncio loop an exception may come in the middle of a step. Then the consumer closes itself, and every
later call says so (decision 53).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Generic, Protocol, TypeVar

from coordinator_client.calls import Reply
from coordinator_client.errors import Loss, TransactionError, rejected
from coordinator_client.flights import Transmission
from coordinator_client.loops import Loop, Timer
from coordinator_client.transport.connection import Connection
from coordinator_client.transport.transport import Attempt, Transport
from coordinator_protocol.errors import ErrorCode


class EngineCore(Protocol):
    """The part of a core that its engine drives."""

    is_closed: bool

    def transmissions(self, now_ms: int) -> list[Transmission]: ...
    def on_answer(self, flight: int, attempt: int, answer: Reply | Loss, now_ms: int) -> None: ...
    def take_cancelled(self) -> list[int]: ...
    def wake_ms(self) -> int | None: ...
    def close(self, now_ms: int) -> None: ...


T = TypeVar("T")
CoreT = TypeVar("CoreT", bound=EngineCore)


class AskedStep(Generic[T]):
    """A step that the application asked for, and its result once the loop has carried it out."""

    __slots__ = ("_error", "_value", "inbox", "is_done")

    def __init__(self) -> None:
        self.inbox: SimpleQueue[bool] = SimpleQueue()
        """Gets an item once the step is done."""
        self.is_done = False
        self._value: T
        self._error: BaseException | None = None

    def succeed(self, value: T) -> None:
        """Store the result of the step."""
        self._value = value

    def fail(self, error: BaseException) -> None:
        """Store the exception of the step, or the reason why it was not carried out."""
        self._error = error

    def end(self) -> None:
        """Wake the application."""
        self.is_done = True
        self.inbox.put(True)

    def result(self) -> T:
        """Return the result of the step. Raises: the exception of the step."""
        if self._error is not None:
            raise self._error
        return self._value


class Engine(Generic[CoreT]):
    """Runs the core of one consumer."""

    def __init__(
        self, core: CoreT, connection: Connection, open_loop: Callable[[], Loop], wake_user: Callable[[], None]
    ) -> None:
        """Create an engine without a loop, which is opened with the first step. `wake_user` is called on the loop
        whenever the core may have something for the application."""
        self._core = core
        self._connection = connection
        self._open_loop = open_loop
        self._wake_user = wake_user
        self._loop: Loop | None = None
        self._calls: dict[int, Attempt] = {}
        self._timer: Timer | None = None
        self._timer_ms = 0
        self._is_stepping = False
        """True if a step is under way, or was interrupted."""
        self._interruption: BaseException | None = None
        """Exception that interrupted a step, if known."""

    @property
    def now_ms(self) -> int:
        """Current time of the clock that the core uses (ms)."""
        return self._connection.clock.monotonic_ms()

    def ask(self, step: Callable[[CoreT], T]) -> AskedStep[T]:
        """Carry out a step on the loop, and then send the requests that follow. On the loop itself it is done at once.

        Raises: Misconfigured in a fork of the process that used the consumer first; Rejected after `close` of the
        connection. The result raises Rejected once a step was interrupted.
        """
        # Checked here as well: in a forked child there is no thread that could carry out a step.
        self._connection.transport_on(self._open_loop)
        if self._loop is None and not self._core.is_closed:
            self._loop = self._open_loop()
        asked: AskedStep[T] = AskedStep()
        self._pass(partial(self._carry_out, step, asked))
        return asked

    def stop(self) -> AskedStep[None]:
        """Close the core, after which nothing happens on the loop. Call `release` afterwards."""
        asked: AskedStep[None] = AskedStep()

        def close() -> None:
            if not self._core.is_closed:
                self._core.close(self.now_ms)
            self._cancel_given_up()
            if self._timer is not None:
                self._timer.cancel()
            asked.succeed(None)
            asked.end()

        self._pass(close)
        return asked

    def release(self) -> None:
        """Release the loop."""
        loop, self._loop = self._loop, None
        if loop is not None:
            loop.release()

    def wake_after(self, wait_ms: int) -> Timer:
        """Wake the application after this time, unless it is woken before. Only legal after a step."""
        assert self._loop is not None, "a wait comes behind a step"
        return self._loop.call_after(wait_ms, self._wake_user)

    def _pass(self, call: Callable[[], None]) -> None:
        """Call it on the loop; directly if this is the loop, or the consumer was closed and has none."""
        loop = self._loop
        if loop is None or loop.is_here or loop.is_over:
            call()
        else:
            loop.call_soon(call)

    def _carry_out(self, step: Callable[[CoreT], T], asked: AskedStep[T]) -> None:
        if self._is_stepping:
            asked.fail(self._torn())
            asked.end()
            return
        self._is_stepping = True
        try:
            try:
                asked.succeed(step(self._core))
            except TransactionError as error:
                # A step that raises TransactionError has changed nothing.
                asked.fail(error)
            self._go_on(self._connection.transport_on(self._open_loop))
        except BaseException as error:  # noqa: BLE001  raised where the step was asked for
            self._interruption = error
            asked.fail(error)
        else:
            self._is_stepping = False
        asked.end()

    def _torn(self) -> TransactionError:
        """Close the consumer, because a step was interrupted; return the failure of this call and of every later
        one."""
        if not self._core.is_closed:
            self._core.is_closed = True
            for call in self._calls.values():
                call.cancel()
        torn = rejected(
            ErrorCode.INVALID_REQUEST,
            f"the consumer closed itself, because an exception came in the middle of a step ({self._interruption!r}); "
            "make a new one: records that were not committed or acknowledged come again",
        )
        torn.__cause__ = self._interruption
        return torn

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
        """Pass an answer to the loop; may be called on any thread."""
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
        """Change the core with `call` on the loop, and wake the application, which may wait for the consequences."""
        if self._core.is_closed or self._is_stepping:
            return
        self._is_stepping = True
        try:
            call()
            self._go_on(self._connection.transport_on(self._open_loop))
        except BaseException as error:  # noqa: BLE001  the next step says so
            self._interruption = error
        else:
            self._is_stepping = False
        self._wake_user()
