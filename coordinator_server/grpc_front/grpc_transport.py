"""The gRPC adapter: grpc.aio with generic handlers that see bytes.

The options come from measurements. Without the two for pending requests, C-core cancels calls at random once 1,000
wait, and clients do not retry CANCELLED. A gRPC server hands over one call after the other, so several servers share a
port. Then a client with many calls at once delays few others (`INSTANCES_MAX`). They would not notice another program
that shares the port, so the adapter checks for one.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import lru_cache, partial
from typing import Any, Final, cast

import grpc
from grpc import aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from coordinator_runtime.clock import Clock
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import COUNTED_BYTES_MIN, NO_ANSWER_LIMIT, AnswerLimit, CallContext, Connection
from coordinator_server.calls import Unanswered
from coordinator_server.connection_numbers import ConnectionNumbers
from coordinator_server.grpc_front.grpc_session import GrpcSessions, host_of, status_code
from coordinator_server.grpc_front.handler import Handler
from coordinator_server.grpc_front.session import SESSION_METHOD, SessionLimits
from coordinator_server.grpc_front.transports import (
    CONNECTION_AGE_GRACE_MS,
    CONNECTION_AGE_MS_MAX,
    HANDSHAKE_MS_MAX,
    KEEPALIVE_MS,
    KEEPALIVE_TIMEOUT_MS,
    TransportName,
    TransportOptions,
)
from coordinator_server.listening import (
    AddressRefused,
    close,
    established_connections,
    is_shared,
    is_unix,
    log_abuse,
    only_for_the_owner,
    take_unix_address,
    tcp_sockets,
)
from coordinator_server.security.authentication import Callers
from coordinator_server.security.reloading_credentials import ReloadingCredentials, Taken
from coordinator_server.security.tls import ClientAuth, Credentials

_PENDING_CALLS_MAX: Final = 16_384
"""Maximum number of calls that wait for the loop. `admission` limits the work, and answers its refusals. So many calls
gather only in a flood, or if the loop is blocked for long. Unauthenticated calls are among them, so this bounds
memory."""
_OTHERS_CALLS: Final = 512
"""Calls that may wait at each server instance, besides the most that one connection may have under way."""

INSTANCES_MAX: Final = 8
"""Maximum number of gRPC servers that share a port. Each hands over one call after the other, in order of arrival. So a
call waits behind those of all connections at the same server instance. The system assigns each connection to one."""
INSTANCE_CONNECTIONS_MIN: Final = 256
"""Minimum number of connections per server instance. The system does not spread them evenly. With fewer, a server
instance would often be full while others are not."""
_NEARLY_ALL: Final = 0.9
"""Share of the allowed connections from which some server instance may be full."""

_REQUESTS_PER_READ_MAX: Final = 32
"""Maximum number of calls of one connection that begin before those of others."""

_WATCH_SECONDS: Final = 10.0

_CLIENT_PING_INTERVAL_MS_MIN: Final = 20_000

_METHODS_KEPT: Final = 256
"""Size of the cache of method handlers. There are fewer methods."""
_PEERS_KEPT: Final = 1_024
"""Size of the cache of hosts by peer name."""

_Behavior = Callable[..., Awaitable[bytes]]
"""Serves a call from body, gRPC's context, and the caller if it is known already."""


class GrpcTransport:
    """Implements `ServerTransport` with grpc.aio."""

    name = TransportName.GRPC

    def __init__(self, services: Sequence[str], clock: Clock, options: TransportOptions) -> None:
        self._services = services
        self._clock = clock
        self.on_failure: Callable[[Exception], None] = lambda _failure: None
        """Never called: grpc.aio goes on, or ends the process."""
        self._options = options
        self._instances: list[aio.Server] = []
        self._port = 0
        callers = Callers(options.authenticator, options.principal, options.levels, options.idle)
        self._sessions = GrpcSessions(clock, callers, SessionLimits.within(options.message_bytes_max))
        self._health = health.aio.HealthServicer()
        self._next_watch: asyncio.TimerHandle | None = None

    def bind(self, host: str, port: int) -> int:
        if is_unix(host):
            self._bind_unix(host)
            return 0
        named = f"[{host}]" if ":" in host else host
        # Try the sockets first: gRPC reports that it could not listen, but not the reason.
        sockets = tcp_sockets(host, port)
        close(sockets)
        try:
            self._port = self._open_instances(named, port, len(sockets))
        except RuntimeError as error:
            raise AddressRefused(f"cannot listen on {named}:{port}: {error}") from error
        if is_shared(self._port):
            raise AddressRefused(
                f"cannot listen on {named}:{self._port}: another program does, and each would get some of the callers:"
                " choose another port, or stop it"
            )
        return self._port

    def _open_instances(self, host: str, port: int, addresses: int) -> int:
        """Return the port. gRPC counts connections by server instance and address, so each gets its share."""
        connections_max = self._options.connections_max // addresses
        instances = instances_of(connections_max)
        for _ in range(instances):
            instance = self._new_instance(max(1, connections_max // instances), instances)
            port = self._add_port(instance, f"{host}:{port}")
        return port

    def _add_port(self, server: aio.Server, address: str) -> int:
        credentials = self._options.credentials
        if credentials is None:
            return server.add_insecure_port(address)
        return server.add_secure_port(address, _server_credentials(credentials))

    def _new_instance(self, connections_max: int, instances: int = 1) -> aio.Server:
        instance = aio.server(options=_channel_options(self._options, connections_max, instances))
        self._instances.append(instance)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, instance)
        if self._options.has_reflection:
            names = (*self._services, health.SERVICE_NAME, reflection.SERVICE_NAME)
            reflection.enable_server_reflection(names, instance)
        return instance

    def _bind_unix(self, address: str) -> None:
        try:
            take_unix_address(address)
            with only_for_the_owner():
                self._new_instance(self._options.connections_max).add_insecure_port(address)
        except (OSError, RuntimeError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            raise AddressRefused(f"cannot listen on {address}: {reason}") from error

    async def start(self, handler: Handler, answer_limit: AnswerLimit = NO_ANSWER_LIMIT) -> None:
        assert self._instances, "bind comes before start"
        await self.set_ready(False)
        calls = _Calls(handler, self._clock, self._sessions, answer_limit)
        for instance in self._instances:
            # The last handler, because it takes every name that the earlier ones do not know.
            instance.add_generic_rpc_handlers((calls,))
            await instance.start()
        self._watch_connections()

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
        if self._next_watch is not None:
            self._next_watch.cancel()
        await asyncio.gather(*(instance.stop(grace_ms / 1000) for instance in self._instances))

    def numbers(self) -> ConnectionNumbers:
        credentials = self._options.credentials
        return ConnectionNumbers(
            self._options.connections_max,
            established_connections(self._port),
            handshakes=0 if credentials is None else credentials.handshakes,
        )

    def _watch_connections(self) -> None:
        """Log when about as many connections are open as allowed. gRPC refuses further ones without a report."""
        loop = asyncio.get_running_loop()
        self._next_watch = loop.call_later(_WATCH_SECONDS, self._watch_connections)
        # In a thread, because the system's table may be long. No state of ours is touched there.
        loop.run_in_executor(None, self._look_at_connections)

    def _look_at_connections(self) -> None:
        numbers = self.numbers()
        share = 1 if len(self._instances) == 1 else _NEARLY_ALL
        if (numbers.open_connections or 0) >= share * numbers.connections_max:
            log_abuse("connections", details=f"{numbers.open_connections} are open")


class _Calls(grpc.GenericRpcHandler):
    """Hands every call to the handler, including session streams."""

    def __init__(self, handler: Handler, clock: Clock, sessions: GrpcSessions, answer_limit: AnswerLimit) -> None:
        self._handler = handler
        self._answer_limit = answer_limit
        self._clock = clock
        self._sessions = sessions
        # Bounded, because callers choose the names. Unknown ones come here, too.
        self._method_handler = lru_cache(_METHODS_KEPT)(self._make_method_handler)
        self._host_of = lru_cache(_PEERS_KEPT)(host_of)

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes]:
        return self._method_handler(handler_call_details.method)

    def _make_method_handler(self, method: str) -> grpc.RpcMethodHandler[bytes, bytes]:
        if method == SESSION_METHOD:
            return self._sessions.method_handler(self._handler, self._answer_limit)
        serve = self._behavior(method)
        if not self._sessions.callers.are_asked:
            return grpc.unary_unary_rpc_method_handler(serve)

        async def ask_and_serve(bodies: AsyncIterator[bytes], context: aio.ServicerContext[bytes, bytes]) -> bytes:
            # As a stream of one request, because its body is read on demand. That of an unauthenticated caller is never
            # read.
            call = await self._caller(context)
            body = await anext(bodies, None)
            if body is None:
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the call ended without a request")
            return await serve(body, context, call)

        return grpc.stream_unary_rpc_method_handler(ask_and_serve)

    def _behavior(self, method: str) -> _Behavior:
        async def serve(
            body: bytes, context: aio.ServicerContext[bytes, bytes], call: CallContext | None = None
        ) -> bytes:
            call = call or await self._caller(context)
            held = _HeldAnswer(self._answer_limit, call.connection)
            pending = self._handler(method, body, call)
            # At once and not after the await: decisions in between must count it.
            pending.on_settled(held.hold)
            # A client that gives up cancels this coroutine, and awaiting passes that on to the Pending.
            try:
                answer = await pending
            except Unanswered as error:
                await context.abort(status_code(error.status), error.message)
            except asyncio.CancelledError:
                held.release()
                raise
            if held.size_bytes:
                # Called once gRPC has sent it, as HTTP/2 flow control allows, or the caller is gone.
                context.add_done_callback(cast("Any", held.release))
            return answer

        return serve

    async def _caller(self, context: aio.ServicerContext[bytes, bytes]) -> CallContext:
        """Return the context with the caller. Abort the call of an unauthenticated caller."""
        try:
            return self._call_context(context)
        except Unanswered as error:
            await context.abort(status_code(error.status), error.message)

    def _call_context(self, context: aio.ServicerContext[bytes, bytes]) -> CallContext:
        seconds_left = context.time_remaining()
        deadline_ms = None if seconds_left is None else self._clock.monotonic_ms() + int(seconds_left * 1000)
        peer = context.peer()
        host = self._host_of(peer)
        callers = self._sessions.callers
        principal = callers.principal(self._sessions.shown_by(context), host)
        by = callers.connection(principal, peer)
        return CallContext(principal=principal, host=host, deadline_ms=deadline_ms, connection=by)


class _HeldAnswer:
    """The answer of one call, while it counts among those that wait for their callers."""

    __slots__ = ("_answer_limit", "_connection", "_is_over", "size_bytes")

    def __init__(self, answer_limit: AnswerLimit, connection: Connection) -> None:
        self._answer_limit = answer_limit
        self._connection = connection
        self._is_over = False
        self.size_bytes = 0

    def hold(self, settled: Pending[bytes]) -> None:
        if self._is_over:
            # Staged work goes on after its caller has left. This answer is not taken, so it does not count.
            return
        if settled.error is not None:
            return
        size_bytes = len(settled.result())
        if size_bytes >= COUNTED_BYTES_MIN:
            self.size_bytes = size_bytes
            self._answer_limit.hold(self._connection, size_bytes)

    def release(self, _context: object = None) -> None:
        self._is_over = True
        if self.size_bytes:
            self._answer_limit.release(self._connection, self.size_bytes)
            self.size_bytes = 0


def _server_credentials(reloading: ReloadingCredentials) -> grpc.ServerCredentials:
    """Return gRPC credentials that reload the certificate files at every new connection. The C core of gRPC (BoringSSL)
    takes TLS 1.2 and 1.3 by default, which a test checks."""
    taken = Taken(reloading)
    # The types of grpc do not say that None means "unchanged".
    fetch = cast("Callable[[], grpc.ServerCertificateConfiguration]", partial(_changed_configuration, taken))
    is_required = reloading.client_auth is ClientAuth.REQUIRED
    return grpc.dynamic_ssl_server_credentials(_configuration(taken.current), fetch, is_required)


def _changed_configuration(taken: Taken) -> grpc.ServerCertificateConfiguration | None:
    """Return the new configuration, or None if it is unchanged. gRPC calls it at every new connection, on its own
    thread."""
    return _configuration(taken.current) if taken.renew() else None


def _configuration(credentials: Credentials) -> grpc.ServerCertificateConfiguration:
    pairs = [(credentials.key, credentials.certificate)]
    return grpc.ssl_server_certificate_configuration(pairs, credentials.client_ca)


def instances_of(connections_max: int) -> int:
    """Return the number of gRPC servers that share a port, for this many connections. Only Linux spreads
    connections."""
    return max(1, min(INSTANCES_MAX, connections_max // INSTANCE_CONNECTIONS_MIN)) if sys.platform == "linux" else 1


def _channel_options(options: TransportOptions, connections_max: int, instances: int) -> list[tuple[str, int]]:
    message_bytes_max = options.message_bytes_max
    pending_calls_max = max(_PENDING_CALLS_MAX // instances, options.streams_max + _OTHERS_CALLS)
    return [
        ("grpc.server.max_pending_requests", pending_calls_max),
        ("grpc.server.max_pending_requests_hard_limit", pending_calls_max),
        ("grpc.max_receive_message_length", message_bytes_max),
        ("grpc.max_send_message_length", message_bytes_max),
        ("grpc.so_reuseport", int(instances > 1)),
        ("grpc.max_allowed_incoming_connections", connections_max),
        ("grpc.max_concurrent_streams", options.streams_max),
        ("grpc.server_handshake_timeout_ms", HANDSHAKE_MS_MAX),
        # Not `grpc.http.overload_protection`: it resets calls of well-behaved callers when many begin at once.
        ("grpc.http2.max_requests_per_read", _REQUESTS_PER_READ_MAX),
        ("grpc.http2.ping_on_rst_stream_percent", 100),
        ("grpc.keepalive_time_ms", KEEPALIVE_MS),
        ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", _CLIENT_PING_INTERVAL_MS_MIN),
        ("grpc.max_connection_age_ms", CONNECTION_AGE_MS_MAX),
        ("grpc.max_connection_age_grace_ms", CONNECTION_AGE_GRACE_MS),
    ]
