"""A world in which a client runs without a clock, a socket or a thread: time passes only in waits.

Requests and answers are events in time, and faults decide their fate: lost on the way there, lost on the way back,
carried out twice, or carried out long after they were reported lost to the client.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Coroutine
from enum import Enum, auto
from queue import SimpleQueue
from typing import Any, TypeVar

from google.protobuf.message import Message

from coordinator_client.errors import Loss
from coordinator_client.transport.connection import Connection
from coordinator_protocol.errors import ErrorCode
from coordinator_protocol.methods import Method
from tests.client.fake_server import FakeServer, refuse

T = TypeVar("T")

WALL_MS = 1_700_000_000_000
WAY_MS = 1
LATE_MS = 40

_UNSURE_CODE = ErrorCode.REQUEST_TIMED_OUT


class Fault(Enum):
    """Fate of one attempt."""

    NONE = auto()
    LOST_REQUEST = auto()
    LOST_REPLY = auto()
    TWICE = auto()
    """Carried out, answered, and carried out once more later: a network that repeats itself."""
    LATE = auto()
    """Reported lost at once, carried out later."""
    UNSURE = auto()
    """Carried out, and answered by a server that cannot say whether it was."""
    SILENT = auto()
    """Never reported back at all: a transport that forgets."""


class FakeCall:
    """An attempt on its way."""

    def __init__(self, report: Callable[[Loss], None]) -> None:
        self._report = report
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True
        self._report(Loss("CANCELLED", "cancelled by the client"))


class Held:
    """An answer that the server gives later."""

    def __init__(self) -> None:
        self._answer: Any = None
        self._tell: Callable[[Any], None] | None = None

    def on_answer(self, tell: Callable[[Any], None]) -> None:
        self._tell = tell
        if self._answer is not None:
            tell(self._answer)

    def give(self, answer: Any) -> None:
        """Answer it, unless it is answered."""
        if self._answer is None:
            self._answer = answer
            if self._tell is not None:
                self._tell(answer)


class FakeTimer:
    """A call to come."""

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call
        self._is_cancelled = False

    def cancel(self) -> None:
        self._is_cancelled = True

    def fire(self) -> None:
        if not self._is_cancelled:
            self._call()


class World:
    """Clock, random source, network and server in one, all of them decided by the test."""

    def __init__(self, *, seed: int = 0) -> None:
        self.now_ms = 0
        self.server = FakeServer()
        self.faults: dict[Method, deque[Fault]] = {}
        self.weather: Callable[[Method], Fault] = lambda _: Fault.NONE
        """Chooses the fate of an attempt that `faults` has nothing for."""
        self.pauses_ms: dict[Method, deque[int]] = {}
        """Pauses that the next answers to a method ask for, whatever else they say."""
        self.sent: list[tuple[Method, Any]] = []
        """Every attempt, in order."""
        self.sent_ms: list[int] = []
        """Times at which the attempts were sent."""
        self.calls: list[FakeCall] = []
        """The same, as they were started."""
        self.interrupts: dict[Method, BaseException] = {}
        """Raised in the client instead of waiting for the answer to this method."""
        self.scripted: dict[Method, deque[Any]] = {}
        """Answers to give instead of asking the server; a Loss is one too."""
        self.late: list[Callable[[Any], None]] = []
        """Callbacks that still take answers to attempts that met SILENT."""
        self.is_closed = False
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = seed
        self._pending_interrupt: BaseException | None = None

    def connection(self, **options: Any) -> Connection:
        """A client's connection into this world."""
        return Connection(
            "fake:1", open_transport=lambda _: self, clock=self, random_source=self, open_loop=lambda: self, **options
        )

    def requests(self, method: Method) -> list[Any]:
        """Every attempt of one method, in order."""
        return [request for sent, request in self.sent if sent is method]

    def methods(self) -> list[Method]:
        """Return the methods of all attempts, in order."""
        return [method for method, _ in self.sent]

    def times(self, method: Method) -> list[int]:
        """Return the time at which each attempt of one method was sent."""
        return [at_ms for (sent, _), at_ms in zip(self.sent, self.sent_ms, strict=True) if sent is method]

    def throttle(self, method: Method, *pauses_ms: int) -> None:
        """Let the next answers to a method ask for these pauses."""
        self.pauses_ms.setdefault(method, deque()).extend(pauses_ms)

    def fault(self, method: Method, *faults: Fault) -> None:
        """Decide the next attempts of a method."""
        self.faults.setdefault(method, deque()).extend(faults)

    def answer(self, method: Method, *answers: Any) -> None:
        """Give these answers to the next attempts of a method; the server does not see them."""
        self.scripted.setdefault(method, deque()).extend(answers)

    # The clock.

    def wall_ms(self) -> int:
        return WALL_MS + self.now_ms

    def monotonic_ms(self) -> int:
        return self.now_ms

    def take(self, inbox: SimpleQueue[T], wait_ms: int) -> T | None:
        end_ms = self.now_ms + wait_ms
        while inbox.empty() and self._events and self._events[0][0] <= end_ms:
            if wait_ms and self._pending_interrupt is not None:
                interrupt, self._pending_interrupt = self._pending_interrupt, None
                raise interrupt
            self._next_event()
        if not inbox.empty():
            return inbox.get()
        self.now_ms = end_ms
        return None

    def pause(self, wait_ms: int) -> None:
        self.take(SimpleQueue(), wait_ms)

    def settle(self) -> None:
        """Let everything that is still under way arrive."""
        while self._events:
            self._next_event()

    # The loop.

    @property
    def is_here(self) -> bool:
        return True

    @property
    def is_over(self) -> bool:
        return False

    def call_soon(self, call: Callable[[], None]) -> None:
        self._after(0, call)

    def call_after(self, wait_ms: int, call: Callable[[], None]) -> FakeTimer:
        timer = FakeTimer(call)
        self._after(wait_ms, timer.fire)
        return timer

    def release(self) -> None:
        pass

    def run(self, task: Coroutine[Any, Any, T]) -> T:
        """Run an asyncio client to its end; time passes when it waits."""

        async def drive() -> T:
            running = asyncio.create_task(task)
            while not running.done():
                for _ in range(20):
                    await asyncio.sleep(0)
                if not running.done():
                    self._next_event()
            return await running

        return asyncio.run(drive())

    def _next_event(self) -> None:
        at_ms, _, event = heapq.heappop(self._events)
        self.now_ms = max(self.now_ms, at_ms)
        event()

    def _after(self, wait_ms: int, event: Callable[[], None]) -> None:
        self._numbers += 1
        heapq.heappush(self._events, (self.now_ms + wait_ms, self._numbers, event))

    # Randomness.

    def request_id(self) -> bytes:
        self._numbers += 1
        return self._numbers.to_bytes(16, "big")

    def fraction(self) -> float:
        self._numbers += 1
        return self._numbers % 7 / 7

    # The network.

    def start(self, rpc: Any, request: Any, *, timeout_ms: int, on_done: Callable[[Any], None]) -> FakeCall:
        copy = type(request)()
        copy.CopyFrom(request)
        self.sent.append((rpc.method, copy))
        self.sent_ms.append(self.now_ms)
        if rpc.method in self.interrupts:
            self._pending_interrupt = self.interrupts.pop(rpc.method)
        queue = self.faults.get(rpc.method)
        fault = queue.popleft() if queue else self.weather(rpc.method)
        call = FakeCall(on_done)
        self.calls.append(call)
        self._deliver(fault, rpc, copy, on_done)
        return call

    def _deliver(self, fault: Fault, rpc: Any, request: Any, report: Callable[[Any], None]) -> None:
        def carry_out() -> Any:
            queue = self.scripted.get(rpc.method)
            answer = queue.popleft() if queue else self.server.answer(rpc.method, request)
            if pauses_ms := self.pauses_ms.get(rpc.method):
                answer.throttle_ms = pauses_ms.popleft()
            return answer

        def on_done(answer: Any) -> None:
            # As bytes, because the client does not read every answer into the message that it is.
            report(rpc.parse(answer.SerializeToString()) if isinstance(answer, Message) else answer)

        def lose() -> None:
            on_done(Loss("UNAVAILABLE", "connection reset"))

        match fault:
            case Fault.NONE:
                self._after(WAY_MS, lambda: self._answer(carry_out(), on_done))
            case Fault.LOST_REQUEST:
                self._after(WAY_MS, lose)
            case Fault.LOST_REPLY:
                self._after(WAY_MS, lambda: (carry_out(), lose()))
            case Fault.TWICE:
                self._after(WAY_MS, lambda: on_done(carry_out()))
                self._after(LATE_MS, carry_out)
            case Fault.LATE:
                self._after(WAY_MS, lose)
                self._after(LATE_MS, carry_out)
            case Fault.UNSURE:
                unsure = rpc.parse(b"")
                self._after(WAY_MS, lambda: (carry_out(), on_done(refuse(unsure, rpc.method, _UNSURE_CODE))))
            case Fault.SILENT:
                self.late.append(on_done)
                self._after(WAY_MS, carry_out)

    def _answer(self, answer: Any, on_done: Callable[[Any], None]) -> None:
        """An answer may be one that the server holds back: then it says later what it is."""
        if isinstance(answer, Held):
            answer.on_answer(lambda later: self._after(WAY_MS, lambda: on_done(later)))
        else:
            on_done(answer)

    @property
    def is_direct(self) -> bool:
        return True

    def ask(self, rpc: Any, request: Any, *, timeout_ms: int) -> Any:
        inbox: SimpleQueue[Any] = SimpleQueue()
        self.start(rpc, request, timeout_ms=timeout_ms, on_done=inbox.put)
        answer = self.take(inbox, timeout_ms)
        return answer if answer is not None else Loss("DEADLINE_EXCEEDED", "no answer in time")

    def close(self) -> None:
        self.is_closed = True
