"""Session streams over grpc.aio: one coroutine reads, one writes, `coordinator_server.session` does the rest."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final

import grpc
from grpc import aio

from coordinator_runtime.clock import Clock
from coordinator_runtime.ports import AnswerRoom, CallContext
from coordinator_server.session import STATUS_NUMBERS, Session, SessionLimits
from coordinator_server.transport import CallStatus, Handler, TransportError

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


class GrpcSessions:
    """The open session streams of one server."""

    def __init__(self, clock: Clock, limits: SessionLimits | None = None) -> None:
        self._clock = clock
        self._limits = limits or SessionLimits()
        self._open: set[Session] = set()
        self._is_stopping = False

    def method_handler(self, handler: Handler, room: AnswerRoom) -> grpc.RpcMethodHandler[bytes, bytes]:
        """Return what grpc.aio calls for every new stream."""

        async def serve(_requests: object, context: _Context) -> None:
            peer = context.peer()
            call = CallContext(host=host_of(peer), connection=peer)
            await self._serve(Session(handler, self._clock, call, self._limits, room), context)

        return grpc.stream_stream_rpc_method_handler(serve)

    def announce_stop(self) -> None:
        """Tell the clients that the server is shutting down; each stream ends when its calls are answered."""
        self._is_stopping = True
        for session in self._open:
            session.announce_stop()

    async def _serve(self, session: Session, context: _Context) -> None:
        stream = _Stream(session, context)
        self._open.add(session)
        if self._is_stopping:
            session.announce_stop()
        try:
            async with asyncio.TaskGroup() as tasks:
                reading = tasks.create_task(stream.read())
                await stream.write()
                reading.cancel()
        finally:
            # Also where the client is gone: grpc then cancels this coroutine.
            self._open.discard(session)
            session.close()
        if stream.failure is not None:
            await context.abort(status_code(stream.failure.status), stream.failure.message)


async def _messages(context: _Context) -> AsyncIterator[bytes]:
    """What the client sends, until it sends no more."""
    while isinstance(body := await context.read(), bytes):
        yield body


class _Stream:
    """One session and its gRPC stream."""

    def __init__(self, session: Session, context: _Context) -> None:
        self._session = session
        self._context = context
        self._outgoing = asyncio.Event()
        self._room = asyncio.Event()
        self.failure: TransportError | None = None
        """The client broke the rules of sessions, and the stream must end."""
        session.on_outgoing = self._outgoing.set
        session.on_room = self._room.set

    async def read(self) -> None:
        """Hand over messages until the client sends no more, and none while the session has no room."""
        try:
            async for body in _messages(self._context):
                self._session.receive(body)
                while not self._session.has_room:
                    self._room.clear()
                    await self._room.wait()
        except TransportError as failure:
            self.failure = failure
            self._outgoing.set()
        else:
            self._session.half_close()

    async def write(self) -> None:
        """Send what there is until everything is said. While one message is on its way the next one grows."""
        while not self._session.is_finished and self.failure is None:
            body = self._session.take()
            if body is None:
                await self._outgoing.wait()
                self._outgoing.clear()
            else:
                leaving_bytes = self._session.leaving_bytes
                # Waits for the flow control of HTTP/2.
                await self._context.write(body)
                self._session.taken(leaving_bytes)
