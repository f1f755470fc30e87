"""Health and reflection behind the compiled transport: grpcio's own servicers, without grpcio's server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Final, NoReturn, cast

import grpc
from google.protobuf.message import Message
from grpc import aio
from grpc_health.v1 import health, health_pb2
from grpc_reflection.v1alpha import reflection, reflection_pb2

from coordinator_server.grpc_front.native_streams import Aborted, Serve

_CHECK: Final = f"/{health.SERVICE_NAME}/Check"
_WATCH: Final = f"/{health.SERVICE_NAME}/Watch"
_REFLECT: Final = f"/{reflection.SERVICE_NAME}/ServerReflectionInfo"

_Write = Callable[[bytes], Awaitable[None]]


def health_methods(servicer: health.aio.HealthServicer) -> Mapping[str, Serve]:
    """Return the functions that serve the health service, by method. On the wire a unary call is a stream of one
    message."""

    async def check(requests: AsyncIterator[bytes], write: _Write) -> None:
        async for body in requests:
            response = await servicer.Check(health_pb2.HealthCheckRequest.FromString(body), _context(write))
            await write(response.SerializeToString())
            return

    async def watch(requests: AsyncIterator[bytes], write: _Write) -> None:
        async for body in requests:
            await servicer.Watch(health_pb2.HealthCheckRequest.FromString(body), _context(write))
            return

    return {_CHECK: check, _WATCH: watch}


def reflection_methods(services: Sequence[str]) -> Mapping[str, Serve]:
    """Return the function that serves reflection, for these services and those that every server has."""
    servicer = reflection.aio.ReflectionServicer((*services, health.SERVICE_NAME, reflection.SERVICE_NAME))

    async def reflect(requests: AsyncIterator[bytes], write: _Write) -> None:
        messages = (reflection_pb2.ServerReflectionRequest.FromString(body) async for body in requests)
        # The servicer is an asynchronous generator, although its types say a coroutine.
        responses = cast("AsyncIterator[Message]", servicer.ServerReflectionInfo(messages, None))
        async for response in responses:
            await write(response.SerializeToString())

    return {_REFLECT: reflect}


_HealthContext = aio.ServicerContext[health_pb2.HealthCheckRequest, health_pb2.HealthCheckResponse]


def _context(write: _Write) -> _HealthContext:
    return cast("_HealthContext", _Context(write))


class _Context:
    """The part of grpc.aio's context that the servicers use."""

    def __init__(self, write: _Write) -> None:
        self._write = write

    async def write(self, message: Message) -> None:
        await self._write(message.SerializeToString())

    async def abort(self, code: grpc.StatusCode, details: str = "") -> NoReturn:
        raise Aborted(code, details)
