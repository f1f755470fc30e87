"""Transport over the one session that all connections of this process to one endpoint share.

`start` may be called on any thread; everything else happens on the loop of the stream, in plain calls. A broken stream
is opened again by the next request. While the server is ending a session, new calls go over the next one, and the old
one waits for its answers. A server without sessions gets unary calls from then on.
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
from coordinator_client.loops import AsyncioLoop, Loop
from coordinator_client.tls import Tls
from coordinator_client.transport.grpc_transport import UnaryTransport
from coordinator_client.transport.session import DRAINING, SENT_ALONE, ClientSession, SessionCall
from coordinator_client.transport.transport import Attempt, Transport

LOOK_MS: Final = 1_000
"""Interval at which the session looks for overdue requests (ms), and so their greatest delay in being reported."""

ANSWERS_PER_TURN: Final = 32
"""Maximum answers reported at once, and at most a quarter of those in flight. Larger: client and server wait for each
other in turns, each idle while the other works. Smaller: more messages; with many calls, 16 costs a tenth more time on
both sides."""

FEW_ANSWERS: Final = 8
"""Number of answers below which a separate message is only worthwhile if they are half of those in flight."""

_CLOSED: Final = Loss("CANCELLED", "the connection was closed")


class Stream(Protocol):
    """A stream to the server, from `open_stream` until its user is notified of its end."""

    def wake(self) -> None:
        """Look again for something to send."""

    def close(self) -> None:
        """End the stream; its user gets no more calls."""


class Channel(Protocol):
    """A channel to one server that lives on one loop, on which all methods are called."""

    def open_stream(self, user: OpenSession) -> Stream:
        """Open a session stream. `user` provides the messages to send, and is notified of received messages and the end
        of the stream."""

    def call(self, rpc: Rpc[Any, Any], request: Any, *, timeout_ms: int, on_done: Callable[[Any], None]) -> Attempt:  # noqa: ANN401  the type is that of the procedure
        """Make one unary call."""

    def close(self) -> None:
        """Close the channel."""


class OpenChannel(Protocol):
    """Makes the channel of a session, which connects when it is first needed."""

    def __call__(self, endpoint: str, loop: AsyncioLoop, tls: Tls | None = None) -> Channel: ...


class _BulkCall:
    """A unary call that is made on the loop, and can be cancelled from any thread."""

    def __init__(self, loop: Loop, make: Callable[[], Attempt]) -> None:
        self._loop = loop
        self._make = make
        self._call: Attempt | None = None
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


class OpenSession:
    """One session: the calls that go over it, and its stream once there is one. The stream calls it on the loop, for
    messages to send and with received ones."""

    def __init__(self, shared: SharedSession) -> None:
        self._shared = shared
        self._at_once = ANSWERS_PER_TURN
        self.calls = ClientSession()
        self.stream: Stream | None = None

    def wake(self) -> None:
        """Let the stream look again for something to send."""
        if self.stream is not None:
            self.stream.wake()

    def take(self) -> bytes | None:
        """Return the next message to send."""
        body = self.calls.take(self._shared.clock.monotonic_ms())
        for call in self.calls.take_oversized():
            self._shared.send_alone(call)
        return body

    def on_message(self, body: bytes) -> None:
        """Process a message. Raises: ValueError for bytes that are not a message."""
        calls = self.calls
        calls.receive(body)
        if calls.is_draining:
            self._shared.replace(self)
            calls.lose_unsent(DRAINING)
        under_way = calls.under_way
        self._at_once = min(ANSWERS_PER_TURN, max(1, under_way // 4, min(FEW_ANSWERS, under_way // 2)))
        self._report()

    def _report(self) -> None:
        """Report some answers now and the others in the next turn. The requests that follow from the first ones are
        sent meanwhile, so that server and client work at the same time."""
        if self.calls.report(self._at_once):
            self._shared.loop.call_soon(self._report)
        # Calls that waited for the server's limit may fit now.
        self.wake()

    def on_end(self, loss: Loss) -> None:
        """Note that the stream has ended, with this last status."""
        self.stream = None
        self._shared.on_end(self, loss)


class SharedSession:
    """State shared by all connections of this process to one endpoint: a session, and those that the server is
    ending."""

    def __init__(
        self, loop: Loop, clock: Clock, *, open_channel: Callable[[], Channel], open_unary: Callable[[], Transport]
    ) -> None:
        """Open nothing before the first request. `loop` is released by `close`."""
        self.loop = loop
        self.clock = clock
        self._open_channel = open_channel
        self._open_unary = open_unary
        self._current = OpenSession(self)
        """Session that takes new calls."""
        self._ending: list[OpenSession] = []
        """Sessions that take no more calls, and wait for answers."""
        self._incoming: deque[SessionCall] = deque()
        self._woken_for: SessionCall | None = None
        """Call for which the loop was last woken; once the loop has taken it, it must be woken again."""
        self._has_timer = False
        self._is_closed = False
        self._channel: Channel | None = None
        self._unary: Transport | None = None

    @property
    def is_over(self) -> bool:
        """True if its loop ended, after which nothing is reported."""
        return self.loop.is_over

    @property
    def is_unary(self) -> bool:
        """True if the server turned out to have no sessions."""
        return self._unary is not None

    def start(
        self,
        rpc: Rpc[RequestT, ReplyT],
        request: RequestT,
        *,
        timeout_ms: int,
        on_done: Callable[[ReplyT | Loss], None],
    ) -> Attempt:
        """Start a call, see `Transport.start`. `on_done` is called on the loop."""
        if self._unary is not None:
            return self._unary.start(rpc, request, timeout_ms=timeout_ms, on_done=on_done)
        if rpc.is_bulk:
            return _BulkCall(
                self.loop, lambda: self._opened_channel().call(rpc, request, timeout_ms=timeout_ms, on_done=on_done)
            )
        ends_ms = self.clock.monotonic_ms() + timeout_ms
        call = SessionCall(rpc, request, ends_ms=ends_ms, on_done=on_done, on_cancel=self._cancel_soon)
        if self.loop.is_here:
            self._current.calls.add(call)
            self._go_on()
            return call
        self._incoming.append(call)
        woken_for = self._woken_for
        if woken_for is None or woken_for.is_taken:
            self.loop.call_soon(self._turn)
            # Stored afterwards: if an exception comes between, the only effect is a spurious wake-up.
            self._woken_for = call
        return call

    def close(self) -> None:
        """End the stream and release the loop; usable from any thread."""
        # If the loop has ended, everything on it has ended too.
        if self.loop.is_here and not self.loop.is_over:
            self._close()
        else:
            self.loop.call_soon(self._close)
        self.loop.release()

    # Calls of the sessions, on the loop.

    def replace(self, session: OpenSession) -> None:
        """Send calls that begin from now on over another session; this one is ending."""
        if session is self._current:
            self._ending.append(session)
            self._current = OpenSession(self)

    def on_end(self, session: OpenSession, loss: Loss) -> None:
        """Note that the stream of a session has ended, with this last status."""
        if session is not self._current:
            self._ending.remove(session)
            session.calls.lose(loss)
        elif loss.status == "UNIMPLEMENTED" and not session.calls.is_greeted:
            self._unary = self._open_unary()
            self._go_unary(self._unary)
        else:
            # Set before any caller is notified, because callers may continue with their next call at once.
            self._current = OpenSession(self)
            session.calls.lose(loss)

    def send_alone(self, call: SessionCall) -> None:
        """Make a call that is too large for any message."""
        self._call(self._opened_channel().call, call)

    @property
    def _all(self) -> list[OpenSession]:
        return [self._current, *self._ending]

    def _turn(self) -> None:
        while self._incoming:
            call = self._incoming.popleft()
            call.is_taken = True
            self._current.calls.add(call)
        # The call need not be kept. If this overwrites a newer one, the loop is woken once more for that.
        self._woken_for = None
        self._go_on()

    def _go_on(self) -> None:
        """Send the waiting calls: over the stream, which takes all of them in its turn, or as unary calls."""
        current = self._current
        if current.stream is not None:
            # There is no stream once it is closed, or the server is known to take unary calls only.
            current.stream.wake()
        elif self._is_closed:
            current.calls.lose(_CLOSED)
        elif self._unary is not None:
            self._go_unary(self._unary)
        elif not current.calls.is_idle:
            current.stream = self._opened_channel().open_stream(current)
        if not self._has_timer:
            self._set_timer()

    def _opened_channel(self) -> Channel:
        if self._channel is None:
            self._channel = self._open_channel()
        return self._channel

    def _go_unary(self, unary: Transport) -> None:
        for call in self._current.calls.take_unsent():
            self._call(unary.start, call)

    def _call(self, start: Callable[..., Attempt], call: SessionCall) -> None:
        timeout_ms = max(1, call.ends_ms - self.clock.monotonic_ms())
        call.correlation_id = SENT_ALONE
        start(call.rpc, call.request, timeout_ms=timeout_ms, on_done=call.report)

    def _cancel_soon(self, call: SessionCall) -> None:
        self.loop.call_soon(partial(self._cancel, call))

    def _cancel(self, call: SessionCall) -> None:
        session = next((each for each in self._ending if each.calls.carries(call)), self._current)
        session.calls.cancel(call)
        session.wake()

    def _set_timer(self) -> None:
        if not self._has_timer and not all(each.calls.is_idle for each in self._all):
            self._has_timer = True
            self.loop.call_after(LOOK_MS, self._look)

    def _look(self) -> None:
        self._has_timer = False
        for each in self._all:
            each.calls.expire(self.clock.monotonic_ms())
            each.wake()
        self._set_timer()

    def _close(self) -> None:
        self._is_closed = True
        for each in self._all:
            stream, each.stream = each.stream, None
            if stream is not None:
                stream.close()
            each.calls.lose(_CLOSED)
        self._ending.clear()
        if self._channel is not None:
            self._channel.close()
        if self._unary is not None:
            self._unary.close()


class SessionTransport:
    """Carries the requests of one connection. Requests that block their thread (`ask`) are unary calls: tools and bulk
    readers need no stream, and no other thread."""

    def __init__(
        self, endpoint: str, open_loop: Callable[[], Loop], open_channel: OpenChannel, tls: Tls | None = None
    ) -> None:
        self._endpoint = endpoint
        self._tls = tls
        self._open_loop = open_loop
        self._open_channel = open_channel
        self._lock = threading.RLock()
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
    ) -> Attempt:
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
                # An application may run one asyncio loop after the other; the session on the first one ended with it.
                _SHARED.release(self._shared)
                self._shared = None
            if self._shared is None:
                self._shared = _SHARED.acquire((self._endpoint, self._tls), self._open_loop, self._open_channel)
            return self._shared


class _SharedSessions:
    """The sessions of this process, with the number of users of each: one session per endpoint, TLS, loop and kind of
    channel."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
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
