"""The way to one server: opened at the first use, never at import, one gRPC channel per process and endpoint.

A `Connection` is what producers and readers are given. Below it stands a `Transport`, which carries one attempt of one
request; tests put a scripted one in its place.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Final, Protocol, Self

import grpc

from coordinator_api.v1.common_pb2 import RequestHeader
from coordinator_client.clock import Clock, SystemClock
from coordinator_client.errors import Loss, TransactionError, Verdict, misconfigured, refused_here, rejected
from coordinator_client.exchange import Deadlines, Exchange
from coordinator_client.identity import Chance, SystemChance
from coordinator_client.loops import Loop
from coordinator_client.methods import ReplyT, RequestT, Rpc
from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.limits import MEBI
from coordinator_protocol.names import check_client_id

MESSAGE_BYTES_MAX: Final = 16 * MEBI
REQUEST_TIMEOUT_MS: Final = 30_000

_CHANNEL_OPTIONS: Final = (
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    # A server that restarts should be found again soon; the default waits up to two minutes between two looks.
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 500),
    # A proxy in the environment is meant for the web, and would be asked for the loopback address too.
    ("grpc.enable_http_proxy", 0),
)

_HOST_PORT: Final = re.compile(r"(?P<host>[^\s/:]+|\[[0-9a-fA-F:.%]+\]):(?P<port>\d{1,5})")
_PORT_MAX: Final = 65_535


class Call(Protocol):
    """One attempt on its way."""

    def cancel(self) -> object:
        """Stop waiting for it; the server may carry it out all the same."""
        ...


class Transport(Protocol):
    """Carries one attempt of one request, and reports exactly once what became of it."""

    def start(
        self,
        rpc: Rpc[RequestT, ReplyT],
        request: RequestT,
        *,
        timeout_ms: int,
        on_done: Callable[[ReplyT | Loss], None],
    ) -> Call:
        """Send it and return at once; `on_done` is called later or now, perhaps on another thread."""
        ...

    def ask(self, rpc: Rpc[RequestT, ReplyT], request: RequestT, *, timeout_ms: int) -> ReplyT | Loss:
        """Send it and return what became of it."""
        ...

    def close(self) -> None:
        """Let go; calls on their way may be reported as lost."""
        ...


class GrpcTransport:
    """Calls over the channel that all connections of this process to one endpoint share."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self._channel = _SHARED.acquire(endpoint)
        self._calls: dict[str, grpc.UnaryUnaryMultiCallable[Any, Any]] = {}

    def start(
        self,
        rpc: Rpc[RequestT, ReplyT],
        request: RequestT,
        *,
        timeout_ms: int,
        on_done: Callable[[ReplyT | Loss], None],
    ) -> Call:
        call = self._callable(rpc).future(request, timeout=timeout_ms / 1_000)

        def report(_: object) -> None:
            # A cancelled future raises from result() and exception() alike; the status answers in every case.
            status = call.code()
            on_done(call.result() if status is grpc.StatusCode.OK else Loss(status.name, call.details() or ""))

        call.add_done_callback(report)
        return call

    def ask(self, rpc: Rpc[RequestT, ReplyT], request: RequestT, *, timeout_ms: int) -> ReplyT | Loss:
        try:
            return self._callable(rpc)(request, timeout=timeout_ms / 1_000)
        except grpc.RpcError as error:
            status: grpc.StatusCode = error.code()
            return Loss(status.name, error.details() or "")

    def close(self) -> None:
        self._calls.clear()
        _SHARED.release(self._endpoint)

    def _callable(self, rpc: Rpc[RequestT, ReplyT]) -> grpc.UnaryUnaryMultiCallable[RequestT, ReplyT]:
        known = self._calls.get(rpc.method)
        if known is None:
            known = self._channel.unary_unary(
                rpc.path, request_serializer=rpc.request_type.SerializeToString, response_deserializer=rpc.parse
            )
            self._calls[rpc.method] = known
        return known


class Connection:
    """A server's address, the name this program gives itself, and the channel once it is needed.

    May be shared by several producers and readers of one process, and closed once for all of them. It must not cross a
    fork after its first use: the child is told so by `Misconfigured` and makes its own.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        client_id: str = "",
        open_transport: Callable[[str], Transport] = GrpcTransport,
        clock: Clock | None = None,
        chance: Chance | None = None,
        open_loop: Callable[[], Loop] | None = None,
    ) -> None:
        """Remember where the server is; nothing is opened.

        `endpoint` is HOST:PORT, [IPv6]:PORT or a gRPC target such as unix:PATH. `client_id` shows up in the server's
        history. Raises: Rejected where one of them cannot be right.
        """
        _check_endpoint(endpoint)
        try:
            check_client_id(client_id)
        except Refused as why:
            raise refused_here(why) from None
        self.endpoint = endpoint
        self.client_id = client_id
        self.clock = clock if clock is not None else SystemClock()
        self.chance = chance if chance is not None else SystemChance()
        self.open_loop = open_loop
        """Where consumers run; None = blocking ones in the loop thread of this process, others in their own loop."""
        self._open_transport = open_transport
        self._transport: Transport | None = None
        self._opened_by = 0
        self._is_closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def transport(self) -> Transport:
        """The transport, opened now if this is the first use in this process.

        Raises: Misconfigured after a fork, Rejected after `close`.
        """
        if self._transport is None:
            if self._is_closed:
                raise rejected(
                    ErrorCode.INVALID_REQUEST, f"the connection to {self.endpoint} is closed; open a new one"
                )
            self._transport = self._open_transport(self.endpoint)
            self._opened_by = os.getpid()
        elif self.is_of_a_parent:
            raise misconfigured(
                ErrorCode.INVALID_CONFIG,
                f"the connection to {self.endpoint} was opened by process {self._opened_by} and is used by its fork "
                f"{os.getpid()}, where gRPC does not work; make the producer, reader or consumer inside the child "
                "process",
            )
        return self._transport

    @property
    def is_of_a_parent(self) -> bool:
        """Whether it was opened before this process was forked, and so is of no use here."""
        return self._transport is not None and self._opened_by != os.getpid()

    def header(self, request_id: bytes = b"") -> RequestHeader:
        """Return the header of a request from here; only requests that change something need an id."""
        return RequestHeader(client_id=self.client_id, request_id=request_id)

    def ask(
        self,
        rpc: Rpc[RequestT, ReplyT],
        request: RequestT,
        *,
        deadlines: Deadlines,
        items: Callable[[ReplyT], Iterable[Verdict]] | None = None,
    ) -> ReplyT:
        """Send a request until it is answered for good, and return the successful reply.

        `items` names the parts of the reply that can fail for themselves; the first one that did fails the call.
        Raises: the TransactionError that the reply stands for; Retriable or OutcomeUnknown at the deadline.
        """
        now_ms = self.clock.monotonic_ms()
        exchange = Exchange(rpc, request, deadlines=deadlines, now_ms=now_ms, items=items)
        while True:
            answer = self.transport.ask(rpc, request, timeout_ms=exchange.begin_attempt(now_ms))
            now_ms = self.clock.monotonic_ms()
            end = exchange.on_answer(answer, now_ms=now_ms, jitter=self.chance.fraction())
            if isinstance(end, TransactionError):
                raise end
            if end is not None:
                error = exchange.failure_of(end)
                if error is not None:
                    raise error
                return end
            assert exchange.due_ms is not None, "no end and no attempt in flight: another one is due"
            self.clock.pause(exchange.due_ms - now_ms)
            now_ms = self.clock.monotonic_ms()

    def close(self) -> None:
        """Let go of the channel; later calls are refused. A fork leaves its parent's channel alone."""
        is_ours = not self.is_of_a_parent
        self._is_closed = True
        transport, self._transport = self._transport, None
        if transport is not None and is_ours:
            transport.close()


def connection_to(server: str | Connection, *, client_id: str = "") -> tuple[Connection, bool]:
    """Return a connection to the server, and whether it was made here and so must be closed here."""
    if isinstance(server, Connection):
        return server, False
    return Connection(server, client_id=client_id), True


class _SharedChannels:
    """The open channels of this process, counted. A fork starts with none: its parent's are of no use to it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._channels: dict[tuple[int, str], tuple[grpc.Channel, int]] = {}

    def acquire(self, endpoint: str) -> grpc.Channel:
        key = (os.getpid(), endpoint)
        with self._lock:
            channel, users = self._channels.get(key, (None, 0))
            if channel is None:
                channel = grpc.insecure_channel(endpoint, options=_CHANNEL_OPTIONS)
            self._channels[key] = (channel, users + 1)
        return channel

    def release(self, endpoint: str) -> None:
        key = (os.getpid(), endpoint)
        with self._lock:
            channel, users = self._channels.pop(key)
            if users > 1:
                self._channels[key] = (channel, users - 1)
                return
        channel.close()


_SHARED: Final = _SharedChannels()


def _check_endpoint(endpoint: str) -> None:
    if not isinstance(endpoint, str):
        raise TypeError(f"the endpoint must be a text like '127.0.0.1:7070', not {type(endpoint).__name__}")
    if endpoint.startswith(("unix:", "unix-abstract:", "dns:", "ipv4:", "ipv6:")):
        return
    found = _HOST_PORT.fullmatch(endpoint)
    if found is None or not 0 < int(found["port"]) <= _PORT_MAX:
        raise rejected(
            ErrorCode.INVALID_REQUEST,
            f"{endpoint!r} is no address of a server: write HOST:PORT with a port from 1 to {_PORT_MAX}, or unix:PATH",
        )
