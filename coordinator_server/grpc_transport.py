"""The gRPC adapter: grpc.aio with generic handlers that see bytes.

Options come from measurements: without the two for pending requests C-core cancels calls at random once 1,000 wait, and
clients do not retry CANCELLED. Two servers on one port would share its connections unnoticed, so that is switched off.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache
from typing import Final

import grpc
from grpc import aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from coordinator_runtime.clock import Clock
from coordinator_runtime.ports import CallContext
from coordinator_server.grpc_session import GrpcSessions, host_of, status_code
from coordinator_server.listening import AddressRefused, close, tcp_sockets
from coordinator_server.session import SESSION_METHOD
from coordinator_server.transport import Handler, TransportError
from coordinator_server.transports import (
    CONNECTION_AGE_GRACE_MS,
    CONNECTION_AGE_MS_MAX,
    KEEPALIVE_MS,
    KEEPALIVE_TIMEOUT_MS,
    TransportName,
    TransportOptions,
)
from coordinator_server.unix_socket import is_unix, only_for_the_owner, take_unix_address

_PENDING_CALLS_MAX: Final = 1_000_000
"""In effect none: how much work is taken is decided in `admission`, where a refusal is an answer."""

_CLIENT_PING_INTERVAL_MS_MIN: Final = 20_000

_METHODS_KEPT: Final = 256
"""Methods whose handler is made once: more than there are."""
_PEERS_KEPT: Final = 1_024
"""Connections whose host is looked up once."""

_Behavior = Callable[[bytes, "aio.ServicerContext[bytes, bytes]"], Awaitable[bytes]]


class GrpcTransport:
    """Implements `Transport` with grpc.aio."""

    name = TransportName.GRPC

    def __init__(self, services: Sequence[str], clock: Clock, options: TransportOptions) -> None:
        self._services = services
        self._clock = clock
        self.on_failure: Callable[[Exception], None] = lambda _failure: None
        """Never called: grpc.aio goes on, or ends the process."""
        self._server = aio.server(options=_channel_options(options.message_bytes_max))
        self._sessions = GrpcSessions(clock)
        self._health = health.aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        if options.has_reflection:
            names = (*services, health.SERVICE_NAME, reflection.SERVICE_NAME)
            reflection.enable_server_reflection(names, self._server)

    def bind(self, host: str, port: int) -> int:
        if is_unix(host):
            self._bind_unix(host)
            return 0
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        # Ask the system itself first: gRPC only says that it could not, not why.
        close(tcp_sockets(host, port))
        try:
            return self._server.add_insecure_port(address)
        except RuntimeError as error:
            raise AddressRefused(f"cannot listen on {address}: {error}") from error

    def _bind_unix(self, address: str) -> None:
        try:
            take_unix_address(address)
            with only_for_the_owner():
                self._server.add_insecure_port(address)
        except (OSError, RuntimeError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            raise AddressRefused(f"cannot listen on {address}: {reason}") from error

    async def start(self, handler: Handler) -> None:
        # Last of the handlers, because it takes every name that nobody before it knew.
        self._server.add_generic_rpc_handlers((_Calls(handler, self._clock, self._sessions),))
        await self.set_ready(False)
        await self._server.start()

    async def set_ready(self, is_ready: bool) -> None:
        for service in self._services:
            await self.set_health(service, is_serving=is_ready)

    async def set_health(self, name: str, *, is_serving: bool) -> None:
        response = health_pb2.HealthCheckResponse
        await self._health.set(name, response.SERVING if is_serving else response.NOT_SERVING)

    async def announce_stop(self) -> None:
        await self._health.enter_graceful_shutdown()
        self._sessions.announce_stop()

    async def stop(self, grace_ms: int) -> None:
        await self._server.stop(grace_ms / 1000)


class _Calls(grpc.GenericRpcHandler):
    """Hands every call to the handler, those of a session too."""

    def __init__(self, handler: Handler, clock: Clock, sessions: GrpcSessions) -> None:
        self._handler = handler
        self._clock = clock
        self._sessions = sessions
        # Bounded, because callers choose the names: those that the handler does not know come here too.
        self._method_handler = lru_cache(_METHODS_KEPT)(self._make_method_handler)
        self._host_of = lru_cache(_PEERS_KEPT)(host_of)

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes]:
        return self._method_handler(handler_call_details.method)

    def _make_method_handler(self, method: str) -> grpc.RpcMethodHandler[bytes, bytes]:
        if method == SESSION_METHOD:
            return self._sessions.method_handler(self._handler)
        return grpc.unary_unary_rpc_method_handler(self._behavior(method))

    def _behavior(self, method: str) -> _Behavior:
        async def serve(body: bytes, context: aio.ServicerContext[bytes, bytes]) -> bytes:
            # A client that gives up cancels this coroutine, and awaiting passes that on to the Pending.
            try:
                return await self._handler(method, body, self._call_context(context))
            except TransportError as error:
                await context.abort(status_code(error.status), error.message)

        return serve

    def _call_context(self, context: aio.ServicerContext[bytes, bytes]) -> CallContext:
        seconds_left = context.time_remaining()
        deadline_ms = None if seconds_left is None else self._clock.monotonic_ms() + int(seconds_left * 1000)
        return CallContext(host=self._host_of(context.peer()), deadline_ms=deadline_ms)


def _channel_options(message_bytes_max: int) -> list[tuple[str, int]]:
    return [
        ("grpc.server.max_pending_requests", _PENDING_CALLS_MAX),
        ("grpc.server.max_pending_requests_hard_limit", _PENDING_CALLS_MAX),
        ("grpc.max_receive_message_length", message_bytes_max),
        ("grpc.max_send_message_length", message_bytes_max),
        ("grpc.so_reuseport", 0),
        ("grpc.keepalive_time_ms", KEEPALIVE_MS),
        ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", _CLIENT_PING_INTERVAL_MS_MIN),
        ("grpc.max_connection_age_ms", CONNECTION_AGE_MS_MAX),
        ("grpc.max_connection_age_grace_ms", CONNECTION_AGE_GRACE_MS),
    ]
