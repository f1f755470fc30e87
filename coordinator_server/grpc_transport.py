"""The gRPC adapter: grpc.aio with generic handlers that see bytes.

Options come from measurements: without the two for pending requests C-core cancels calls at random once 1,000 wait, and
clients do not retry CANCELLED. Two servers on one port would share its connections unnoticed, so that is switched off.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import grpc
from grpc import aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from coordinator_runtime.clock import Clock
from coordinator_runtime.ports import CallContext
from coordinator_server.grpc_session import SESSION_METHOD, GrpcSessions, host_of, status_code
from coordinator_server.transport import Handler, TransportError
from coordinator_server.unix_socket import is_unix, only_for_the_owner, take_unix_address

_PENDING_CALLS_MAX: Final = 1_000_000
"""In effect none: how much work is taken is decided in `admission`, where a refusal is an answer."""

_KEEPALIVE_MS: Final = 30_000
_KEEPALIVE_TIMEOUT_MS: Final = 10_000
_CLIENT_PING_INTERVAL_MS_MIN: Final = 20_000
_CONNECTION_AGE_MS_MAX: Final = 3_600_000
_CONNECTION_AGE_GRACE_MS: Final = 60_000

_METHODS_KEPT: Final = 256
"""Methods whose handler is made once: more than there are."""
_PEERS_KEPT: Final = 1_024
"""Connections whose host is looked up once."""

_Behavior = Callable[[bytes, "aio.ServicerContext[bytes, bytes]"], Awaitable[bytes]]


@dataclass(frozen=True, slots=True)
class GrpcOptions:
    """What an operator may change."""

    message_bytes_max: int
    """Largest request and response."""
    has_reflection: bool = False
    """Whether tools may ask for the names and messages of the services."""


class AddressRefused(Exception):
    """The server cannot listen where it was told to. The message says why."""


class GrpcTransport:
    """A gRPC server for one handler. Make it inside a running event loop; then `bind`, `start`, at last `stop`."""

    def __init__(self, services: Sequence[str], clock: Clock, options: GrpcOptions) -> None:
        self._services = services
        self._clock = clock
        self._server = aio.server(options=_channel_options(options.message_bytes_max))
        self._sessions = GrpcSessions(clock)
        self._health = health.aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        if options.has_reflection:
            names = (*services, health.SERVICE_NAME, reflection.SERVICE_NAME)
            reflection.enable_server_reflection(names, self._server)

    def bind(self, host: str, port: int) -> int:
        """Take the port, without serving it yet; returns it, which differs from the one asked for only if that was 0.
        A host `unix:PATH` is a Unix socket: the file is made, for its owner only, and there is no port.

        Raises AddressRefused."""
        if is_unix(host):
            self._bind_unix(host)
            return 0
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        _try_to_bind(host, port, address)
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
        """Serve. The health service says that the process is alive ("") and its services are not ready."""
        # Last of the handlers, because it takes every name that nobody before it knew.
        self._server.add_generic_rpc_handlers((_Calls(handler, self._clock, self._sessions),))
        await self.set_ready(False)
        await self._server.start()

    async def set_ready(self, is_ready: bool) -> None:
        """Tell the health service whether the services take work."""
        response = health_pb2.HealthCheckResponse
        for service in self._services:
            await self._health.set(service, response.SERVING if is_ready else response.NOT_SERVING)

    async def announce_stop(self) -> None:
        """Tell the health service and all sessions that the process is going, for good."""
        await self._health.enter_graceful_shutdown()
        self._sessions.announce_stop()

    async def stop(self, grace_ms: int) -> None:
        """Take no further calls and wait for those under way; what is left after the grace is cancelled."""
        await self._server.stop(grace_ms / 1000)


def _try_to_bind(host: str, port: int, address: str) -> None:
    """Ask the system itself first: gRPC only says that it could not, not why."""
    try:
        family, kind, protocol, _, resolved = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as attempt:
            attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            attempt.bind(resolved)
    except OSError as error:
        hint = f": choose another port, or stop what listens on {address}" if error.errno == errno.EADDRINUSE else ""
        raise AddressRefused(f"cannot listen on {address}: {error.strerror}{hint}") from error


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
        ("grpc.keepalive_time_ms", _KEEPALIVE_MS),
        ("grpc.keepalive_timeout_ms", _KEEPALIVE_TIMEOUT_MS),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", _CLIENT_PING_INTERVAL_MS_MIN),
        ("grpc.max_connection_age_ms", _CONNECTION_AGE_MS_MAX),
        ("grpc.max_connection_age_grace_ms", _CONNECTION_AGE_GRACE_MS),
    ]
