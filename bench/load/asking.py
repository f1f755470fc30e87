"""Ways to send encoded requests by the name of their method: unary calls, or one session stream."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Protocol

from grpc import aio

from bench.load.stubs import Refusal
from coordinator_api.v1 import session_pb2 as session
from coordinator_api.v1.session_pb2_grpc import SessionServiceStub
from coordinator_protocol.limits import KIBI, MEBI

if TYPE_CHECKING:
    from coordinator_api.v1.session_pb2_grpc import SessionServiceAsyncStub

_SERVICES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "InitProducerId": "TransactionService",
        "Transact": "TransactionService",
        "Produce": "LogService",
        "EndTxn": "TransactionService",
        "OffsetCommit": "GroupService",
    }
)
_MESSAGE_BYTES_MAX: Final = MEBI - 64 * KIBI
"""Largest size of the requests in one message (bytes). The server accepts messages of 1 MiB; the rest is for
framing."""


class Asker(Protocol):
    """A way to send requests to the server."""

    def ask(self, method: str, body: bytes) -> Awaitable[bytes]:
        """Send a request, and return the encoded reply."""
        ...


class UnaryAsker:
    """Sends each request as a unary call."""

    def __init__(self, channel: aio.Channel) -> None:
        self._calls: dict[str, aio.UnaryUnaryMultiCallable[bytes, bytes]] = {
            method: channel.unary_unary(f"/coordinator_api.v1.{service}/{method}")
            for method, service in _SERVICES.items()
        }

    def ask(self, method: str, body: bytes) -> Awaitable[bytes]:
        return self._calls[method](body)


class SessionAsker:
    """Sends all requests over one stream, those of a loop turn in one message. Made and used on a running loop."""

    def __init__(self, channel: aio.Channel) -> None:
        stub: SessionServiceAsyncStub = SessionServiceStub(channel)
        self._stream = stub.Session()
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self._outgoing: deque[session.SessionCall] = deque()
        self._has_outgoing = asyncio.Event()
        self._count = 0
        # Kept, because a task without a reference may be collected.
        self._tasks = (asyncio.create_task(self._write()), asyncio.create_task(self._read()))

    def ask(self, method: str, body: bytes) -> Awaitable[bytes]:
        self._count += 1
        answer = self._waiting[self._count] = asyncio.get_running_loop().create_future()
        self._outgoing.append(session.SessionCall(correlation_id=self._count, method=method, body=body))
        self._has_outgoing.set()
        return answer

    async def close(self) -> None:
        """End the stream. A process that ends with its load need not do so."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _write(self) -> None:
        while True:
            await self._has_outgoing.wait()
            self._has_outgoing.clear()
            while self._outgoing:
                await self._stream.write(session.SessionRequest(calls=self._next_message()))

    def _next_message(self) -> list[session.SessionCall]:
        message, size = [self._outgoing.popleft()], 0
        while self._outgoing:
            size += len(message[-1].body)
            if size + len(self._outgoing[0].body) > _MESSAGE_BYTES_MAX:
                break
            message.append(self._outgoing.popleft())
        return message

    async def _read(self) -> None:
        try:
            async for response in self._stream:
                for answered in response.answers:
                    self._settle(answered)
        finally:
            for answer in self._waiting.values():
                answer.set_exception(Refusal("the session ended"))

    def _settle(self, answered: session.SessionAnswer) -> None:
        answer = self._waiting.pop(answered.correlation_id)
        if answer.done():
            return
        if answered.status:
            answer.set_exception(Refusal(f"status {answered.status}: {answered.status_message}"))
        else:
            answer.set_result(answered.body)
