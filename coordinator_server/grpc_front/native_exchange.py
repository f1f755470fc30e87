"""The loop's side of the compiled transport. Arrivals are taken in batches, and output is handed over in one call at
the end of each turn of the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import structlog

from coordinator_protocol.acls import ANONYMOUS
from coordinator_protocol.wire import Pieces
from coordinator_runtime.clock import Clock
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import COUNTED_BYTES_MIN, NO_ANSWER_LIMIT, AnswerLimit, CallContext, Connection
from coordinator_server.calls import CallStatus, Unanswered
from coordinator_server.grpc_front.handler import Handler
from coordinator_server.grpc_front.native_streams import LoopStream, StreamHandle
from coordinator_server.grpc_front.session import SESSION_METHOD, STATUS_NUMBERS
from coordinator_server.listening import log_abuse
from coordinator_server.native_interface import native
from coordinator_server.security.authentication import NOTHING_SHOWN, Callers, Presented

_ARRIVALS_PER_TURN: Final = 256
"""Maximum number of arrivals taken at once. It is bounded so that timers and the disk get their turn in between."""

_log = structlog.get_logger("transport")

OpenStream = Callable[[str, CallContext, Presented, StreamHandle], LoopStream]
"""Makes the `LoopStream` for a new gRPC stream from the full name of its method, its caller, the caller's credentials,
and its handle."""


_Shown = tuple[str | None, tuple[bytes, ...]] | None
"""Credentials of a caller from the I/O thread: `authorization` and certificates; None if callers are not
authenticated."""


class Exchange:
    """Calls and streams that have not ended, by the token that the I/O thread gave each."""

    def __init__(
        self,
        server: native.Server,
        clock: Clock,
        handler: Handler,
        open_stream: OpenStream,
        answer_limit: AnswerLimit = NO_ANSWER_LIMIT,
        callers: Callers | None = None,
    ) -> None:
        self._server = server
        self._callers = callers or Callers()
        self._answer_limit = answer_limit
        self._held: dict[int, tuple[Connection, int]] = {}
        """Answers that were handed over and that their callers have not taken: connection and size, by token of the
        call."""
        self._clock = clock
        self._handler = handler
        self._open_stream = open_stream
        self._loop = asyncio.get_running_loop()
        self._calls: dict[int, Pending[bytes | Pieces]] = {}
        self._streams: dict[int, LoopStream] = {}
        self._ready: dict[int, None] = {}
        self._given: list[tuple[object, ...]] = []
        self._is_turn_due = False
        self.on_stopped: Callable[[str | None], None] = lambda _failure: None
        """Called once after the last arrival, with the reason if that was a failure."""

    @property
    def streams(self) -> list[LoopStream]:
        return list(self._streams.values())

    def on_arrivals(self) -> None:
        """Take the arrivals that wait. The loop calls it when the descriptor of the server is readable."""
        if self._is_turn_due:
            # Answers go before new work, so their callers can go on while the loop is busy with it.
            self.end_turn()
        self._is_turn_due = True
        for arrival in self._server.take(_ARRIVALS_PER_TURN):
            self._receive(arrival)
        self.end_turn()

    def end_turn(self) -> None:
        """Give the streams their turn, and hand all output over to the I/O thread."""
        while self._ready:
            ready, self._ready = self._ready, {}
            for token in ready:
                if token in self._streams:
                    self._turn(token, self._streams[token])
        self._is_turn_due = False
        if self._given:
            given, self._given = self._given, []
            self._server.give(given)

    def _receive(self, arrival: tuple[Any, ...]) -> None:
        match arrival:
            case (native.CALL, *call):
                self._call(*call)
            case (native.MESSAGE, token, body):
                self._tell(token, lambda stream: stream.message(body))
            case (native.SENT, token):
                self._tell(token, lambda stream: stream.sent())
            case (native.GONE, token):
                self._gone(token)
            case (native.TAKEN, token):
                self._answer_limit.release(*self._held.pop(token))
            case (native.STREAM, token, method, host, connection, shown):
                self._open(token, method, host, connection, shown)
            case (native.CALLER, token, host, connection, shown):
                self._admit(token, host, connection, shown)
            case (native.LEFT, connection):
                self._callers.left(connection)
            case (native.HALF_CLOSED, token):
                self._tell(token, lambda stream: stream.half_close())
            case (native.ABUSE, kind, details):
                log_abuse(kind, details=details)
            case (native.STOPPED, failure):
                self.on_stopped(failure)

    def _principal(self, token: int, host: str, shown: _Shown, *, is_session: bool = False) -> str | None:
        """Return the principal of a call. For an unauthenticated caller end the call and return None."""
        principal_of = self._callers.principal_of_session if is_session else self._callers.principal
        try:
            return principal_of(_presented(shown), host)
        except Unanswered as refusal:
            self.give((native.END, token, STATUS_NUMBERS[refusal.status], refusal.message))
            return None

    def _admit(self, token: int, host: str, connection: int, shown: _Shown) -> None:
        principal = self._principal(token, host, shown)
        if principal is None:
            return
        try:
            self._callers.enter(principal, connection)
        except Unanswered as refusal:
            # The connection stays unauthenticated, and few of those may be open.
            self.give((native.END, token, STATUS_NUMBERS[refusal.status], refusal.message))
        else:
            self.give((native.REPLY, token, b"", False))

    def _open(self, token: int, method: str, host: str, connection: int, shown: _Shown) -> None:
        # All streams but sessions are open to any caller and have no principal.
        is_session = method == SESSION_METHOD
        principal = self._principal(token, host, shown, is_session=True) if is_session else ANONYMOUS
        if principal is not None:
            call = CallContext(principal, host=host, connection=self._callers.connection(principal, connection))
            self._streams[token] = self._open_stream(method, call, _presented(shown), _TokenHandle(self, token))

    def _call(  # noqa: PLR0913  what an arrival holds
        self, token: int, method: str, body: bytes, host: str, connection: int, ms_left: int | None, shown: _Shown
    ) -> None:
        principal = self._principal(token, host, shown)
        if principal is None:
            return
        deadline_ms = None if ms_left is None else self._clock.monotonic_ms() + ms_left
        by = self._callers.connection(principal, connection)
        call = CallContext(principal, host=host, deadline_ms=deadline_ms, connection=by)
        pending = self._handler.in_pieces(method, body, call)
        if pending.is_settled:
            self._answer(token, by, pending)
        else:
            self._calls[token] = pending
            pending.on_settled(partial(self._answer, token, by))

    def _answer(self, token: int, connection: Connection, settled: Pending[bytes | Pieces]) -> None:
        self._calls.pop(token, None)
        error = settled.error
        if isinstance(error, Unanswered):
            self.give((native.END, token, STATUS_NUMBERS[error.status], error.message))
        else:
            body = settled.result()
            is_counted = len(body) >= COUNTED_BYTES_MIN
            if is_counted:
                self._held[token] = (connection, len(body))
                self._answer_limit.hold(connection, len(body))
            self.give((native.REPLY, token, body.parts if isinstance(body, Pieces) else body, is_counted))

    def _gone(self, token: int) -> None:
        if (pending := self._calls.pop(token, None)) is not None:
            pending.cancel()
        elif (stream := self._streams.pop(token, None)) is not None:
            stream.gone()

    def _tell(self, token: int, tell: Callable[[LoopStream], None]) -> None:
        # Arrivals that were under way when the stream ended are ignored.
        if (stream := self._streams.get(token)) is not None:
            tell(stream)

    def _turn(self, token: int, stream: LoopStream) -> None:
        try:
            stream.turn()
        except Exception as defect:  # noqa: BLE001  our bug: it ends this stream alone
            _log.error("defect", exc_info=defect)
            self.end_stream(
                token,
                STATUS_NUMBERS[CallStatus.INTERNAL],
                "the stream met a defect of the server; its log has the details",
            )
            stream.gone()

    def give(self, given: tuple[object, ...]) -> None:
        """Hand a command over to the I/O thread when the turn ends."""
        self._given.append(given)
        self._turn_soon()

    def wake(self, token: int) -> None:
        """Give the stream a turn when this one ends."""
        self._ready[token] = None
        self._turn_soon()

    def end_stream(self, token: int, status: int, message: str) -> None:
        """Forget the stream and report its end to the caller."""
        if self._streams.pop(token, None) is not None:
            self.give((native.END, token, status, message))

    def _turn_soon(self) -> None:
        if not self._is_turn_due:
            self._is_turn_due = True
            self._loop.call_soon(self.end_turn)


def _presented(shown: _Shown) -> Presented:
    return NOTHING_SHOWN if shown is None else Presented(*shown)


class _TokenHandle:
    """Implements `StreamHandle` for one token."""

    def __init__(self, exchange: Exchange, token: int) -> None:
        self._exchange = exchange
        self._token = token

    def send(self, body: bytes, *, wants_sent: bool) -> None:
        self._exchange.give((native.SEND, self._token, body, wants_sent))

    def grant(self, messages: int) -> None:
        self._exchange.give((native.CREDIT, self._token, messages))

    def end(self, status: int, message: str) -> None:
        self._exchange.end_stream(self._token, status, message)

    def wake(self) -> None:
        self._exchange.wake(self._token)
