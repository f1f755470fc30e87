"""A session without a network: messages and answers are events of the world, and streams break as the test says."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import Enum, auto
from typing import Any

from coordinator_api.v1 import session_pb2
from coordinator_client import calls
from coordinator_client.errors import Loss
from coordinator_client.transport.session_transport import OpenSession, SharedSession
from tests.client.world import LATE_MS, WAY_MS, FakeCall, Held, World

RPCS = {str(rpc.method): rpc for rpc in vars(calls).values() if isinstance(rpc, calls.Rpc)}
BROKEN = Loss("UNAVAILABLE", "connection reset")


class Weather(Enum):
    """Fate of one message on a stream, and of the stream."""

    NONE = auto()
    LOST_MESSAGE = auto()
    """The stream breaks before the message arrives."""
    HALF = auto()
    """The stream breaks when the first half of the calls was carried out; no call is answered."""
    LOST_ANSWERS = auto()
    """Everything is carried out, and the stream breaks before it is answered."""
    LATE = auto()
    """The stream breaks at once, and the message is carried out long after."""
    REVERSED = auto()
    """Answered one by one, the last call first."""
    SILENT = auto()
    """Carried out and never answered, on a stream that stays open."""


class FakeStream:
    """One stream."""

    def __init__(self, channel: FakeChannel, user: OpenSession) -> None:
        self.channel = channel
        self.user = user
        self.is_open = True
        self.is_greeted = False

    def wake(self) -> None:
        self.channel.world.call_soon(self._look)

    def close(self) -> None:
        self.is_open = False

    def end(self, loss: Loss = BROKEN) -> None:
        """Let it break."""
        if self.is_open:
            self.is_open = False
            self.user.on_end(loss)

    def say(self, **fields: Any) -> None:
        """Let the server say something."""
        self.channel.world.call_after(WAY_MS, lambda: self._arrive(fields))

    def _arrive(self, fields: dict[str, Any]) -> None:
        if self.is_open:
            self.user.on_message(session_pb2.SessionResponse(**fields).SerializeToString())

    def _look(self) -> None:
        body = self.user.take() if self.is_open else None
        if body is None:
            return
        message = session_pb2.SessionRequest.FromString(body)
        if not self.is_greeted:
            self.is_greeted = True
            self.channel.greet(self)
        else:
            self.channel.messages.append([call.method for call in message.calls])
            self.channel.sizes.append(len(body))
            self.channel.cancels += message.cancels
            self._carry(message)
        self.wake()

    def _carry(self, message: session_pb2.SessionRequest) -> None:
        after, calls = self.channel.world.call_after, list(message.calls)
        match self.channel.weather():
            case Weather.NONE:
                after(WAY_MS, lambda: self._serve(calls))
            case Weather.LOST_MESSAGE:
                after(WAY_MS, self.end)
            case Weather.HALF:
                half = calls[: (len(calls) + 1) // 2]
                after(WAY_MS, lambda: (self.channel.carry_out(half), self.end()))
            case Weather.LOST_ANSWERS:
                after(WAY_MS, lambda: (self.channel.carry_out(calls), self.end()))
            case Weather.LATE:
                after(WAY_MS, self.end)
                after(LATE_MS, lambda: self.channel.carry_out(calls))
            case Weather.REVERSED:
                after(WAY_MS, lambda: [self.say(answers=[each]) for each in self.channel.carry_out(calls)[::-1]])
            case Weather.SILENT:
                after(WAY_MS, lambda: self.channel.carry_out(calls))

    def _serve(self, calls: list[session_pb2.SessionCall]) -> None:
        if self.is_open:
            self.say(answers=self.channel.carry_out(calls))


class FakeChannel:
    """The way to the server of a world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.streams: list[FakeStream] = []
        self.messages: list[list[str]] = []
        """The methods in each message, without the first one of a stream, which only opens it."""
        self.sizes: list[int] = []
        self.cancels: list[int] = []
        self.limits = session_pb2.SessionHello(calls_in_flight_max=100, message_bytes_max=1 << 20)
        self.refusal: Loss | None = None
        """Refusal that the server answers streams with; None = it takes them."""
        self.weather: Callable[[], Weather] = lambda: Weather.NONE
        self.calls: list[str] = []
        self.is_closed = False

    def foresee(self, *weathers: Weather) -> None:
        """Decide the next messages; after them nothing goes wrong."""
        coming = deque(weathers)
        self.weather = lambda: coming.popleft() if coming else Weather.NONE

    def open_stream(self, user: OpenSession) -> FakeStream:
        stream = FakeStream(self, user)
        self.streams.append(stream)
        stream.wake()
        return stream

    def greet(self, stream: FakeStream) -> None:
        refusal = self.refusal
        if refusal is None:
            stream.say(hello=self.limits)
        else:
            self.world.call_after(WAY_MS, lambda: stream.end(refusal))

    def carry_out(self, calls: list[session_pb2.SessionCall]) -> list[session_pb2.SessionAnswer]:
        results = []
        for call in calls:
            rpc = RPCS[call.method]
            request = rpc.request_type.FromString(call.body)
            self.world.sent.append((rpc.method, request))
            answer = self.world.server.answer(rpc.method, request)
            if isinstance(answer, Held):
                self._answer_later(call, answer)
            else:
                results.append(self._result(call, answer))
        return results

    def _answer_later(self, call: session_pb2.SessionCall, held: Held) -> None:
        """On the stream that is open now; if that breaks, no caller hears of it."""
        stream = self.streams[-1]
        held.on_answer(lambda later: stream.say(answers=[self._result(call, later)]))

    def _result(self, call: session_pb2.SessionCall, answer: Any) -> session_pb2.SessionAnswer:
        if isinstance(answer, Loss):
            return session_pb2.SessionAnswer(
                correlation_id=call.correlation_id, status=13, status_message=answer.detail
            )
        return session_pb2.SessionAnswer(correlation_id=call.correlation_id, body=answer.SerializeToString())

    def call(self, rpc: Any, request: Any, *, timeout_ms: int, on_done: Callable[[Any], None]) -> FakeCall:
        self.calls.append(str(rpc.method))
        return World.start(self.world, rpc, request, timeout_ms=timeout_ms, on_done=on_done)

    def close(self) -> None:
        self.is_closed = True


class Unary:
    """The calls of a world, for clients without a session."""

    is_direct = True

    def __init__(self, world: World) -> None:
        self._world = world

    def start(self, rpc: Any, request: Any, *, timeout_ms: int, on_done: Callable[[Any], None]) -> FakeCall:
        return World.start(self._world, rpc, request, timeout_ms=timeout_ms, on_done=on_done)

    def ask(self, rpc: Any, request: Any, *, timeout_ms: int) -> Any:
        return World.ask(self._world, rpc, request, timeout_ms=timeout_ms)

    def close(self) -> None:
        pass


class SessionWorld(World):
    """A world whose clients have a session."""

    def __init__(self, *, seed: int = 0) -> None:
        super().__init__(seed=seed)
        self.channel = FakeChannel(self)
        self.session = SharedSession(self, self, open_channel=lambda: self.channel, open_unary=lambda: Unary(self))

    @property
    def is_direct(self) -> bool:
        return self.session.is_unary

    def start(self, rpc: Any, request: Any, *, timeout_ms: int, on_done: Callable[[Any], None]) -> Any:
        if rpc.method in self.interrupts:
            self._pending_interrupt = self.interrupts.pop(rpc.method)
        return self.session.start(rpc, request, timeout_ms=timeout_ms, on_done=on_done)
