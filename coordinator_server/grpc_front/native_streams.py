"""Streams of the compiled transport, as the loop sees them: sessions, and the streams of grpcio's own servicers.

Nothing here waits. A stream receives its arrivals, and gets its `turn` once all arrivals of one batch have been passed
on. So the answers of one turn of the loop form one message.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Final, Protocol

import grpc
import structlog
from google.protobuf.message import DecodeError

from coordinator_protocol.limits import MEBI
from coordinator_server.calls import AUTHENTICATION_REQUIRED, CallStatus, Unanswered
from coordinator_server.grpc_front.session import LINGER_SECONDS, STATUS_NUMBERS, Session

OK: Final = 0

CREDIT_MESSAGES: Final = 4
"""Number of messages of a stream that the caller may send before it is granted more."""

AHEAD_MESSAGES_MAX: Final = 8
AHEAD_BYTES_MAX: Final = MEBI
"""Maximum lead of a stream over the network, in messages and bytes, before it waits. The message that reaches the limit
is still sent."""

_log = structlog.get_logger("transport")


class StreamHandle(Protocol):
    """Network end of a `LoopStream`: sends messages, grants credit, ends the stream."""

    def send(self, body: bytes, *, wants_sent: bool) -> None:
        """Send a message to the caller. With `wants_sent`, `LoopStream.sent` is called when it is on its way."""

    def grant(self, messages: int) -> None:
        """Let the caller send this many more messages."""

    def end(self, status: int, message: str) -> None:
        """End the stream in both directions. The status is gRPC's number."""

    def wake(self) -> None:
        """Give the stream a turn soon."""


class LoopStream(Protocol):
    """One gRPC stream as the loop sees it; `StreamHandle` is its other end."""

    def message(self, body: bytes) -> None: ...

    def half_close(self) -> None:
        """Note that the caller sends no more."""

    def sent(self) -> None:
        """Note that a message is on its way to the caller, with all before it. It is the oldest one sent with
        `wants_sent` that was not reported before."""

    def turn(self) -> None:
        """Send the output that is ready."""

    def gone(self) -> None:
        """Note that the stream has ended. Nothing sent from now on arrives."""

    def announce_stop(self) -> None:
        """Note that the server is shutting down."""


@dataclass(slots=True)
class _Ahead:
    """Messages handed to the network that it has not reported as sent."""

    messages: int = 0
    size_bytes: int = 0
    counted_bytes: int = 0
    """Bytes of the answers that the session counts."""

    @property
    def is_enough(self) -> bool:
        return self.messages >= AHEAD_MESSAGES_MAX or self.size_bytes >= AHEAD_BYTES_MAX


class SessionStream:
    """A session on a gRPC stream. It is not read while it is full. Its next message collects answers while earlier ones
    wait for the network."""

    def __init__(self, session: Session, handle: StreamHandle) -> None:
        self._session = session
        self._handle = handle
        self._unread: deque[bytes] = deque()
        self._is_half_closed = False
        self._owed = 0
        """Number of received messages whose credit was not given back."""
        self._ahead = _Ahead()
        self._tracked: deque[_Ahead] = deque()
        """Increments of `_ahead`, one up to each message whose sending will be reported."""
        self._has_ended = False
        self.on_gone: Callable[[], None] = _nothing
        """Called when the stream has ended."""
        session.on_outgoing = session.on_capacity = handle.wake
        # The greeting comes first, whatever the caller has sent meanwhile.
        self._write()

    def message(self, body: bytes) -> None:
        self._unread.append(body)
        self._handle.wake()

    def half_close(self) -> None:
        self._is_half_closed = True
        self._handle.wake()

    def sent(self) -> None:
        sent = self._tracked.popleft()
        self._ahead.messages -= sent.messages
        self._ahead.size_bytes -= sent.size_bytes
        self._session.taken(sent.counted_bytes)
        self._handle.wake()

    def gone(self) -> None:
        self._has_ended = True
        self._session.close()
        # The callback knows the stream, so keeping it would make a reference cycle for the collector.
        on_gone, self.on_gone = self.on_gone, _nothing
        on_gone()

    @property
    def idle_since_ms(self) -> int | None:
        """See `idle_sessions.IdleSession`."""
        return self._session.idle_since_ms

    def cut(self) -> None:
        """See `authentication.WatchedSession`."""
        self._end(STATUS_NUMBERS[CallStatus.UNAUTHENTICATED], AUTHENTICATION_REQUIRED)

    def announce_stop(self) -> None:
        self._session.announce_stop()
        asyncio.get_running_loop().call_later(LINGER_SECONDS, self._session.stop_lingering)

    def turn(self) -> None:
        try:
            self._read()
            self._write()
        except Unanswered as failure:
            self._end(STATUS_NUMBERS[failure.status], failure.message)

    def _read(self) -> None:
        while self._unread and self._session.has_capacity and not self._has_ended:
            self._session.receive(self._unread.popleft())
            self._owed += 1
        if self._owed >= CREDIT_MESSAGES // 2:
            self._grant()
        if self._is_half_closed and not self._unread:
            self._is_half_closed = False
            self._session.half_close()

    def _write(self) -> None:
        while not self._has_ended and not self._ahead.is_enough:
            if self._session.is_finished:
                self._end(OK, "")
                return
            body = self._session.take()
            if body is None:
                return
            # Together with an answer, credit costs nothing. Alone it would wake the network's thread.
            self._grant()
            self._send(body, self._session.leaving_bytes)

    def _send(self, body: bytes, counted_bytes: int) -> None:
        ahead = self._ahead
        ahead.messages += 1
        ahead.size_bytes += len(body)
        wants_sent = counted_bytes > 0 or ahead.is_enough
        if wants_sent:
            told = sum(each.messages for each in self._tracked), sum(each.size_bytes for each in self._tracked)
            self._tracked.append(_Ahead(ahead.messages - told[0], ahead.size_bytes - told[1], counted_bytes))
        self._handle.send(body, wants_sent=wants_sent)

    def _grant(self) -> None:
        if self._owed:
            self._handle.grant(self._owed)
            self._owed = 0

    def _end(self, status: int, message: str) -> None:
        if not self._has_ended:
            self._handle.end(status, message)
            self.gone()


def _nothing() -> None:
    """Default of `on_gone`."""


class Aborted(Exception):
    """A servicer refused the call: gRPC's status, and the reason."""

    def __init__(self, status: grpc.StatusCode, details: str) -> None:
        super().__init__(status, details)
        self.status = status
        self.details = details


Serve = Callable[[AsyncIterator[bytes], Callable[[bytes], Awaitable[None]]], Coroutine[None, None, None]]
"""A servicer as a coroutine. Takes the caller's messages, and a function that sends one message to the caller."""


class ServicerStream:
    """A stream that a coroutine serves, in its own task. For methods that are rarely called."""

    def __init__(self, serve: Serve, handle: StreamHandle) -> None:
        self._handle = handle
        self._incoming: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._capacity = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._run(serve))

    def message(self, body: bytes) -> None:
        self._incoming.put_nowait(body)

    def half_close(self) -> None:
        self._incoming.put_nowait(None)

    def sent(self) -> None:
        self._capacity.set()

    def turn(self) -> None: ...

    def gone(self) -> None:
        self._task.cancel()

    def announce_stop(self) -> None: ...

    async def _run(self, serve: Serve) -> None:
        try:
            await serve(self._requests(), self._write)
        except Aborted as refusal:
            self._handle.end(refusal.status.value[0], refusal.details)
        except DecodeError as error:
            self._handle.end(grpc.StatusCode.INVALID_ARGUMENT.value[0], f"what was sent is no request: {error}")
        except Exception as defect:  # noqa: BLE001  our bug, or the servicer's: it ends this stream alone
            _log.error("defect", exc_info=defect)
            self._handle.end(grpc.StatusCode.INTERNAL.value[0], "the server met a defect; its log has the details")
        else:
            self._handle.end(OK, "")

    async def _requests(self) -> AsyncIterator[bytes]:
        while (body := await self._incoming.get()) is not None:
            yield body
            self._handle.grant(1)

    async def _write(self, body: bytes) -> None:
        self._capacity.clear()
        self._handle.send(body, wants_sent=True)
        await self._capacity.wait()
