"""Carries requests over the one session that all connections of this process to one endpoint share.

`start` may be called on any thread; everything else happens on the loop on which the stream lives, in plain calls. A
stream that breaks is opened again by the next request. A server without sessions gets unary calls from then on.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Protocol

from coordinator_client.calls import ReplyT, RequestT, Rpc
from coordinator_client.clock import Clock, SystemClock
from coordinator_client.errors import Loss
from coordinator_client.grpc_transport import UnaryTransport
from coordinator_client.loops import AsyncioLoop, Loop
from coordinator_client.session import SENT_ALONE, Session, SessionCall
from coordinator_client.tls import Tls
from coordinator_client.transport import Call, Transport

LOOK_MS: Final = 1_000
"""How often the session looks for requests that should have been answered: they are reported late by this much at
most."""

ANSWERS_PER_TURN: Final = 32
"""How many answers are reported at once at most, and at most a quarter of those in flight. Larger: client and server
wait for each other in turns, each idle while the other works. Smaller: more messages; 16 of many cost a tenth more time
on both sides."""

FEW_ANSWERS: Final = 8
"""Fewer answers than this are worth a message of their own only where they are half of those in flight."""

_CLOSED: Final = Loss("CANCELLED", "the connection was closed")


class Stream(Protocol):
    """A stream to the server, from `open_stream` until its user is told of its end."""

    def wake(self) -> None:
        """Look again for something to send."""

    def close(self) -> None:
        """End the stream; its user is told nothing more."""


class Channel(Protocol):
    """A channel to one server that lives on one loop, where all of this is called."""

    def open_stream(self, user: SharedSession) -> Stream:
        """Open a session stream. `user` is asked what to send, and told what comes and how the stream ends."""

    def call(self, rpc: Rpc[Any, Any], request: Any, *, timeout_ms: int, on_done: Callable[[Any], None]) -> Call:  # noqa: ANN401  the type is that of the procedure
        """Make one unary call."""

    def close(self) -> None:
        """Close the channel."""


class OpenChannel(Protocol):
    """Makes the channel of a session, which connects when it is first needed."""

    def __call__(self, endpoint: str, loop: AsyncioLoop, tls: Tls | None = None) -> Channel: ...


class _BulkCall:
    """A unary call that is made on the loop, and can be cancelled from any thread."""

    def __init__(self, loop: Loop, make: Callable[[], Call]) -> None:
        self._loop = loop
        self._make = make
        self._call: Call | None = None
        self._is_cancelled = False
        loop.call_soon(self._start)

    def cancel(self) -> None:
        self._is_cancelled = True
        self._loop.call_soon(self._cancel)

    def _start(self) -> None:
        self._call = self._make()

    def _cancel(self) -> None:
        if self._call is not None:
            self._call.cancel()


class SharedSession:
    """The session of this process at one endpoint."""

    def __init__(
        self, loop: Loop, clock: Clock, *, open_channel: Callable[[], Channel], open_unary: Callable[[], Transport]
    ) -> None:
        """Nothing is opened before the first request. `loop` is released by `close`."""
        self._loop = loop
        self._clock = clock
        self._open_channel = open_channel
        self._open_unary = open_unary
        self._session = Session()
        self._at_once = ANSWERS_PER_TURN
        self._incoming: deque[SessionCall] = deque()
        self._is_awake = False
        self._has_timer = False
        self._is_closed = False
        self._channel: Channel | None = None
        self._stream: Stream | None = None
        self._unary: Transport | None = None

    @property
    def is_over(self) -> bool:
        """Whether its loop ended, and nothing is reported any more."""
        return self._loop.is_over

    @property
    def is_unary(self) -> bool:
        """Whether the server turned out to know no sessions."""
        return self._unary is not None

    def start(
        self,
        rpc: Rpc[RequestT, ReplyT],
        request: RequestT,
        *,
        timeout_ms: int,
        on_done: Callable[[ReplyT | Loss], None],
    ) -> Call:
        """See `Transport.start`. `on_done` is called on the loop."""
        if self._unary is not None:
            return self._unary.start(rpc, request, timeout_ms=timeout_ms, on_done=on_done)
        if rpc.is_bulk:
            return _BulkCall(
                self._loop, lambda: self._opened_channel().call(rpc, request, timeout_ms=timeout_ms, on_done=on_done)
            )
        ends_ms = self._clock.monotonic_ms() + timeout_ms
        call = SessionCall(rpc, request, ends_ms=ends_ms, on_done=on_done, on_cancel=self._cancel_soon)
        if self._loop.is_here:
            self._session.add(call)
            self._go_on()
            return call
        self._incoming.append(call)
        if not self._is_awake:
            # Set before the call and cleared before the queue is emptied: at worst the loop looks once for nothing.
            self._is_awake = True
            self._loop.call_soon(self._turn)
        return call

    def close(self) -> None:
        """End the stream and release the loop; usable from any thread."""
        # If the loop has ended, everything on it has ended too.
        if self._loop.is_here and not self._loop.is_over:
            self._close()
        else:
            self._loop.call_soon(self._close)
        self._loop.release()

    # Called by the stream, on the loop.

    def take(self) -> bytes | None:
        """Return the next message to send."""
        body = self._session.take(self._clock.monotonic_ms())
        for call in self._session.take_oversized():
            self._call(self._opened_channel().call, call)
        return body

    def on_message(self, body: bytes) -> None:
        """Receive a message. Raises: ValueError for bytes that are no message."""
        self._session.receive(body)
        under_way = self._session.under_way
        self._at_once = min(ANSWERS_PER_TURN, max(1, under_way // 4, min(FEW_ANSWERS, under_way // 2)))
        self._report()

    def _report(self) -> None:
        """Report some answers now and the others in the next turn: what follows from the first ones is sent meanwhile,
        so that the server works while the client does."""
        if self._session.report(self._at_once):
            self._loop.call_soon(self._report)
        if self._stream is not None:
            # There is room now, perhaps for calls that waited.
            self._stream.wake()

    def on_end(self, loss: Loss) -> None:
        """Note that the stream has ended, with this last status."""
        self._stream = None
        if loss.status == "UNIMPLEMENTED" and not self._session.is_greeted:
            self._unary = self._open_unary()
            self._go_unary(self._unary)
        else:
            self._session.lose(loss)

    def _turn(self) -> None:
        self._is_awake = False
        while self._incoming:
            self._session.add(self._incoming.popleft())
        self._go_on()

    def _go_on(self) -> None:
        """Send what waits: over the stream, which takes all of it when its turn comes, or as unary calls."""
        if self._stream is not None:
            # There is no stream once it is closed, or the server is known to take unary calls only.
            self._stream.wake()
        elif self._is_closed:
            self._session.lose(_CLOSED)
        elif self._unary is not None:
            self._go_unary(self._unary)
        elif not self._session.is_idle:
            self._stream = self._opened_channel().open_stream(self)
        if not self._has_timer:
            self._set_timer()

    def _opened_channel(self) -> Channel:
        if self._channel is None:
            self._channel = self._open_channel()
        return self._channel

    def _go_unary(self, unary: Transport) -> None:
        for call in self._session.take_unsent():
            self._call(unary.start, call)

    def _call(self, start: Callable[..., Call], call: SessionCall) -> None:
        timeout_ms = max(1, call.ends_ms - self._clock.monotonic_ms())
        call.correlation_id = SENT_ALONE
        start(call.rpc, call.request, timeout_ms=timeout_ms, on_done=call.report)

    def _cancel_soon(self, call: SessionCall) -> None:
        self._loop.call_soon(partial(self._cancel, call))

    def _cancel(self, call: SessionCall) -> None:
        self._session.cancel(call)
        if self._stream is not None:
            self._stream.wake()

    def _set_timer(self) -> None:
        if not self._has_timer and not self._session.is_idle:
            self._has_timer = True
            self._loop.call_after(LOOK_MS, self._look)

    def _look(self) -> None:
        self._has_timer = False
        self._session.expire(self._clock.monotonic_ms())
        if self._stream is not None:
            self._stream.wake()
        self._set_timer()

    def _close(self) -> None:
        self._is_closed = True
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()
        self._session.lose(_CLOSED)
        if self._channel is not None:
            self._channel.close()
        if self._unary is not None:
            self._unary.close()


class SessionTransport:
    """Carries the requests of one connection. Those that block their thread (`ask`) are unary calls: tools and bulk
    readers need no stream, and no thread beside their own."""

    def __init__(
        self, endpoint: str, open_loop: Callable[[], Loop], open_channel: OpenChannel, tls: Tls | None = None
    ) -> None:
        self._endpoint = endpoint
        self._tls = tls
        self._open_loop = open_loop
        self._open_channel = open_channel
        self._lock = threading.Lock()
        self._shared: SharedSession | None = None
        self._unary: UnaryTransport | None = None

    @property
    def is_direct(self) -> bool:
        return self._shared is not None and self._shared.is_unary

    def start(
        self,
        rpc: Rpc[RequestT, ReplyT],
        request: RequestT,
        *,
        timeout_ms: int,
        on_done: Callable[[ReplyT | Loss], None],
    ) -> Call:
        shared = self._shared
        if shared is None or shared.is_over:
            shared = self._opened()
        return shared.start(rpc, request, timeout_ms=timeout_ms, on_done=on_done)

    def ask(self, rpc: Rpc[RequestT, ReplyT], request: RequestT, *, timeout_ms: int) -> ReplyT | Loss:
        unary = self._unary
        if unary is None:
            with self._lock:
                unary = self._unary = self._unary or UnaryTransport(self._endpoint, self._tls)
        return unary.ask(rpc, request, timeout_ms=timeout_ms)

    def close(self) -> None:
        with self._lock:
            shared, self._shared = self._shared, None
            unary, self._unary = self._unary, None
        if shared is not None:
            _SHARED.release(shared)
        if unary is not None:
            unary.close()

    def _opened(self) -> SharedSession:
        with self._lock:
            if self._shared is not None and self._shared.is_over:
                # An application may run one asyncio loop after the other; what lived on the first one ended with it.
                _SHARED.release(self._shared)
                self._shared = None
            if self._shared is None:
                self._shared = _SHARED.acquire((self._endpoint, self._tls), self._open_loop, self._open_channel)
            return self._shared


class _SharedSessions:
    """The sessions of this process, with the number of users of each: one session per endpoint, TLS, loop and kind of
    channel."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sessions: dict[tuple[tuple[str, Tls | None], object, OpenChannel], SharedSession] = {}
        self._users: dict[SharedSession, int] = {}

    def acquire(
        self, server: tuple[str, Tls | None], open_loop: Callable[[], Loop], open_channel: OpenChannel
    ) -> SharedSession:
        endpoint, tls = server
        with self._lock:
            loop = open_loop()
            assert isinstance(loop, AsyncioLoop), "a stream lives on an asyncio loop"
            key = (server, loop.asyncio_loop, open_channel)
            session = self._sessions.get(key)
            if session is None:
                session = self._sessions[key] = SharedSession(
                    loop,
                    SystemClock(),
                    open_channel=lambda: open_channel(endpoint, loop, tls),
                    open_unary=lambda: UnaryTransport(endpoint, tls),
                )
                self._users[session] = 0
            else:
                loop.release()
            self._users[session] += 1
            return session

    def release(self, session: SharedSession) -> None:
        with self._lock:
            self._users[session] -= 1
            if self._users[session]:
                return
            del self._users[session]
            self._sessions = {key: known for key, known in self._sessions.items() if known is not session}
        session.close()


_SHARED: Final = _SharedSessions()
