"""Session streams over grpc.aio. One coroutine reads and one writes; `session` has the logic."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Final, cast

import grpc
from grpc import aio

from coordinator_runtime.clock import Clock
from coordinator_runtime.ports import AnswerLimit, CallContext
from coordinator_server.calls import AUTHENTICATION_REQUIRED, CallStatus, Unanswered
from coordinator_server.grpc_front.handler import Handler
from coordinator_server.grpc_front.session import LINGER_SECONDS, STATUS_NUMBERS, Session, SessionLimits
from coordinator_server.security.authentication import NOTHING_SHOWN, Callers, Presented

_BY_NUMBER: Final = {code.value[0]: code for code in grpc.StatusCode}

_Context = aio.ServicerContext[bytes, bytes]


def status_code(status: CallStatus) -> grpc.StatusCode:
    """Return gRPC's name of a status."""
    return _BY_NUMBER[STATUS_NUMBERS[status]]


def host_of(peer: str) -> str:
    """Return the host in gRPC's name of a peer: "ipv4:10.0.0.1:5000" -> "10.0.0.1", "ipv6:%5B::1%5D:5000" -> "::1",
    "unix:..." -> "unix"."""
    kind, _, address = peer.partition(":")
    if kind not in {"ipv4", "ipv6"}:
        return kind
    return address.rpartition(":")[0].removeprefix("%5B").removesuffix("%5D").strip("[]")


def _shown_by(context: _Context) -> Presented:
    """Return the caller's credentials: the token in the metadata of the call, and the certificates of its
    connection."""
    authorization: str | None = None
    for name, value in context.invocation_metadata() or ():
        if name == "authorization" and isinstance(value, str):
            authorization = value
    shown = cast("Mapping[str, Sequence[bytes]]", context.auth_context())
    chain = b"".join(shown.get("x509_pem_cert_chain", ()))
    own = tuple(shown.get("x509_pem_cert", ()))
    return Presented(authorization, (*own, *(each for each in _pem_blocks(chain) if each.strip() not in own)))


def _pem_blocks(chain: bytes) -> list[bytes]:
    end = b"-----END CERTIFICATE-----"
    return [block + end for block in chain.split(end)[:-1]]


class GrpcSessions:
    """Open session streams of one server."""

    def __init__(self, clock: Clock, callers: Callers, limits: SessionLimits) -> None:
        self._clock = clock
        self.callers = callers
        self._limits = limits
        self._open: set[_Stream] = set()
        self._is_stopping = False

    def shown_by(self, context: _Context) -> Presented:
        """Return the caller's credentials, or none if callers are not authenticated."""
        return _shown_by(context) if self.callers.are_asked else NOTHING_SHOWN

    def method_handler(self, handler: Handler, answer_limit: AnswerLimit) -> grpc.RpcMethodHandler[bytes, bytes]:
        """Return the handler that grpc.aio calls for every new stream."""

        async def serve(_requests: object, context: _Context) -> None:
            peer = context.peer()
            host = host_of(peer)
            shown = self.shown_by(context)
            try:
                principal = self.callers.principal_of_session(shown, host)
            except Unanswered as error:
                await context.abort(status_code(error.status), error.message)
            call = CallContext(principal=principal, host=host, connection=self.callers.connection(principal, peer))
            stream = _Stream(Session(handler, self._clock, call, self._limits, answer_limit), context)
            self.callers.watch(stream, shown, host, principal)
            try:
                await self._serve(stream, context)
            finally:
                self.callers.forget(stream)

        return grpc.stream_stream_rpc_method_handler(serve)

    def announce_stop(self) -> None:
        """Tell the clients that the server is shutting down. Each stream ends when its calls are answered."""
        self._is_stopping = True
        for stream in self._open:
            stream.announce_stop()

    async def _serve(self, stream: _Stream, context: _Context) -> None:
        self._open.add(stream)
        if self._is_stopping:
            stream.announce_stop()
        # No TaskGroup: a cancelled one is a reference cycle with the session in it, left to the collector.
        reading = asyncio.create_task(stream.read())  # noqa: TID251  kept here, and its failure is raised below
        reading.add_done_callback(stream.on_read)
        try:
            await stream.write()
        finally:
            # This also runs if the client is gone: grpc then cancels this coroutine.
            reading.cancel()
            self._open.discard(stream)
            stream.session.close()
        if stream.defect is not None:
            raise stream.defect
        if stream.failure is not None:
            await context.abort(status_code(stream.failure.status), stream.failure.message)


async def _messages(context: _Context) -> AsyncIterator[bytes]:
    """Yield the client's messages until it half-closes the stream."""
    while isinstance(body := await context.read(), bytes):
        yield body


class _Stream:
    """One session and its gRPC stream."""

    def __init__(self, session: Session, context: _Context) -> None:
        self.session = session
        self._context = context
        self._outgoing = asyncio.Event()
        self._capacity = asyncio.Event()
        self.failure: Unanswered | None = None
        """Violation of the session protocol by the client, which ends the stream."""
        self.defect: BaseException | None = None
        """Defect of ours that ended the reading. gRPC logs it and reports it to the client."""
        session.on_outgoing = self._outgoing.set
        session.on_capacity = self._capacity.set

    @property
    def idle_since_ms(self) -> int | None:
        """See `idle_sessions.IdleSession`."""
        return self.session.idle_since_ms

    def announce_stop(self) -> None:
        self.session.announce_stop()
        asyncio.get_running_loop().call_later(LINGER_SECONDS, self.session.stop_lingering)

    def cut(self) -> None:
        """See `authentication.WatchedSession`."""
        self._fail(Unanswered(CallStatus.UNAUTHENTICATED, AUTHENTICATION_REQUIRED))

    def _fail(self, failure: Unanswered) -> None:
        self.failure = failure
        self._outgoing.set()

    async def read(self) -> None:
        """Pass on messages until the client sends no more. Pause while the session is full."""
        try:
            async for body in _messages(self._context):
                self.session.receive(body)
                while not self.session.has_capacity:
                    self._capacity.clear()
                    await self._capacity.wait()
        except Unanswered as failure:
            self._fail(failure)
        else:
            self.session.half_close()

    def on_read(self, reading: asyncio.Task[None]) -> None:
        """End the stream if its reading failed."""
        if not reading.cancelled():
            self.defect = reading.exception()
            self._outgoing.set()

    async def write(self) -> None:
        """Send messages until the session is finished. While one is being sent, the next one collects answers."""
        while not self.session.is_finished and self.failure is None and self.defect is None:
            body = self.session.take()
            if body is None:
                await self._outgoing.wait()
                self._outgoing.clear()
            else:
                leaving_bytes = self.session.leaving_bytes
                # Waits for the flow control of HTTP/2.
                await self._context.write(body)
                self.session.taken(leaving_bytes)
