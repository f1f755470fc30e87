"""Transports over gRPC, which are always available: unary calls, or the session of this process.

`UnaryTransport` makes unary calls, as plain stubs do: for callers that block their thread, and for servers without
sessions. `GrpcChannel` is over grpc.aio: session streams one after the other, and unary calls beside them. A stream has
two tasks, one that reads and one that writes, however many requests it carries.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final, Protocol

from google.protobuf.message import DecodeError

from coordinator_api.v1 import session_pb2
from coordinator_client.calls import ReplyT, RequestT, Rpc
from coordinator_client.errors import Loss
from coordinator_client.loops import AsyncioLoop
from coordinator_client.process import THIS_PROCESS
from coordinator_client.tls import Tls
from coordinator_client.transport.cached_channel import CachedChannel, ChannelOptions
from coordinator_client.transport.grpc_library import aio, drop_late_events, grpc, loss_of
from coordinator_client.transport.session import SESSION_ENDED
from coordinator_client.transport.transport import Attempt


class UnaryTransport:
    """Makes calls over the channel that all connections of this process to one endpoint share."""

    is_direct: Final = True

    def __init__(self, endpoint: str, tls: Tls | None = None) -> None:
        self._server = (endpoint, tls)
        self._kept = _SHARED.acquire(self._server)
        self._channel = self._kept.current()
        self._calls: dict[str, grpc.UnaryUnaryMultiCallable[Any, Any]] = {}

    def start(
        self,
        rpc: Rpc[RequestT, ReplyT],
        request: RequestT,
        *,
        timeout_ms: int,
        on_done: Callable[[ReplyT | Loss], None],
    ) -> Attempt:
        call = self._callable(rpc).future(request, timeout=timeout_ms / 1_000, metadata=self._kept.metadata)

        def report(_: object) -> None:
            # A cancelled future raises from result() and exception() alike; the status is available in every case.
            status = call.code()
            on_done(call.result() if status is grpc.StatusCode.OK else loss_of(status, call.details()))

        call.add_done_callback(report)
        return call

    def ask(self, rpc: Rpc[RequestT, ReplyT], request: RequestT, *, timeout_ms: int) -> ReplyT | Loss:
        try:
            return self._callable(rpc)(request, timeout=timeout_ms / 1_000, metadata=self._kept.metadata)
        except grpc.RpcError as error:
            return loss_of(error.code(), error.details())

    def close(self) -> None:
        self._calls.clear()
        _SHARED.release(self._server)

    def _callable(self, rpc: Rpc[RequestT, ReplyT]) -> grpc.UnaryUnaryMultiCallable[RequestT, ReplyT]:
        channel = self._kept.current()
        if channel is not self._channel:
            self._calls, self._channel = {}, channel
        known = self._calls.get(rpc.method)
        if known is None:
            known = channel.unary_unary(
                rpc.path, request_serializer=rpc.request_type.SerializeToString, response_deserializer=rpc.parse
            )
            self._calls[rpc.method] = known
        return known


_Server = tuple[str, Tls | None]


def _open_channel(endpoint: str, credentials: grpc.ChannelCredentials | None, options: ChannelOptions) -> grpc.Channel:
    if credentials is None:
        return grpc.insecure_channel(endpoint, options)
    return grpc.secure_channel(endpoint, credentials, options)


def cached_channel(endpoint: str, tls: Tls | None) -> CachedChannel[grpc.Channel]:
    """Open a channel that follows changed certificates. Raises: Misconfigured if the files cannot be used."""
    return CachedChannel(tls, partial(_open_channel, endpoint), lambda channel: channel.close())


def _open_aio_channel(
    endpoint: str, credentials: grpc.ChannelCredentials | None, options: ChannelOptions
) -> aio.Channel:
    if credentials is None:
        return aio.insecure_channel(endpoint, options)
    return aio.secure_channel(endpoint, credentials, options)


class _SharedChannels:
    """The open channels of this process, with the number of users of each. A forked child begins without any, because
    it cannot use those of its parent."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._channels: dict[tuple[int, _Server], tuple[CachedChannel[grpc.Channel], int]] = {}

    def acquire(self, server: _Server) -> CachedChannel[grpc.Channel]:
        key = (THIS_PROCESS.process_id, server)
        with self._lock:
            channel, users = self._channels.get(key, (None, 0))
            if channel is None:
                endpoint, tls = server
                channel = cached_channel(endpoint, tls)
            self._channels[key] = (channel, users + 1)
        return channel

    def release(self, server: _Server) -> None:
        key = (THIS_PROCESS.process_id, server)
        with self._lock:
            channel, users = self._channels.pop(key)
            if users > 1:
                self._channels[key] = (channel, users - 1)
                return
        channel.close()


_SHARED: Final = _SharedChannels()


SESSION_PATH: Final = f"/{session_pb2.DESCRIPTOR.services_by_name['SessionService'].full_name}/Session"

_Stream = aio.StreamStreamCall[bytes, bytes]


class StreamUser(Protocol):
    """The owner of a stream, which provides the messages to send and processes received ones."""

    def take(self) -> bytes | None:
        """Return the next message to send; None if there is none."""

    def on_message(self, body: bytes) -> None:
        """Process a message. Raises: ValueError for bytes that are not a message; the stream then ends."""

    def on_end(self, loss: Loss) -> None:
        """React to the end of the stream, with `loss` as its last status."""


class GrpcChannel:
    """A channel to one server. Made and used on its loop only."""

    def __init__(self, endpoint: str, loop: AsyncioLoop, tls: Tls | None = None) -> None:
        self._loop = loop.asyncio_loop
        drop_late_events(self._loop)
        self._kept = CachedChannel(tls, partial(_open_aio_channel, endpoint), self._close_soon)
        # asyncio keeps only weak references to tasks.
        self._tasks: set[asyncio.Task[None]] = set()

    def open_stream(self, user: StreamUser) -> GrpcStream:
        """Open a session stream."""
        call: _Stream = self._kept.current().stream_stream(SESSION_PATH)(metadata=self._kept.metadata)
        stream = GrpcStream(call, user)
        self._spawn(stream.read())
        self._spawn(stream.write())
        return stream

    def call(
        self,
        rpc: Rpc[Any, Any],
        request: Any,  # noqa: ANN401  the type is that of the procedure
        *,
        timeout_ms: int,
        on_done: Callable[[Any], None],
    ) -> asyncio.Task[None]:
        """Make one unary call, which the returned task can cancel."""

        async def make() -> None:
            try:
                body = request.SerializeToString()
                ask: aio.UnaryUnaryMultiCallable[bytes, bytes] = self._kept.current().unary_unary(rpc.path)
                reply = rpc.parse(await ask(body, timeout=timeout_ms / 1_000, metadata=self._kept.metadata))
            except aio.AioRpcError as error:
                on_done(loss_of(error.code(), error.details()))
            except asyncio.CancelledError:
                on_done(Loss("CANCELLED", "cancelled by the client"))
                raise
            except DecodeError as error:
                on_done(Loss("INTERNAL", str(error)))
            else:
                on_done(reply)

        return self._spawn(make())

    def close(self) -> None:
        """Close the channel; calls in flight are reported as lost."""
        for task in self._tasks:
            task.cancel()
        self._kept.close()

    def _close_soon(self, channel: aio.Channel) -> None:
        self._spawn(channel.close())

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


class GrpcStream:
    """One session stream over grpc.aio."""

    def __init__(self, call: _Stream, user: StreamUser) -> None:
        self._call = call
        self._user = user
        self._is_open = True
        self._news = asyncio.Event()

    def wake(self) -> None:
        """Look again for something to send."""
        self._news.set()

    def close(self) -> None:
        """End the stream without notifying its user."""
        self._is_open = False
        self._news.set()
        self._call.cancel()

    async def read(self) -> None:
        """Pass received messages to the user until the stream ends."""
        loss = SESSION_ENDED
        try:
            while isinstance(body := await self._call.read(), bytes):
                self._user.on_message(body)
        except aio.AioRpcError as error:
            loss = loss_of(error.code(), error.details())
        except asyncio.CancelledError:
            loss = Loss("CANCELLED", "the loop of the session ended")
        except ValueError as error:
            loss = Loss("INTERNAL", str(error))
        if self._is_open:
            self.close()
            self._user.on_end(loss)

    async def write(self) -> None:
        """Send the messages of the user. While one message is being sent, the next one collects requests."""
        while self._is_open:
            body = self._user.take()
            if body is None:
                await self._news.wait()
                self._news.clear()
                continue
            try:
                await self._call.write(body)
            except (aio.AioRpcError, asyncio.InvalidStateError, asyncio.CancelledError):
                # `read` gets the reason, and reports it.
                return
