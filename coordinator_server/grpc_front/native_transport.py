"""The adapter of the compiled transport: tonic in a thread of its own, which never waits for Python.

Both sides exchange batches. The loop is woken through one descriptor, takes all arrivals, and passes the calls to the
handler. At the end of its turn it hands over all output in one call. So a single call costs two thread switches, and
under load many calls share them.

It keeps the promises of `grpc_transport`, and the same tests run against both. `native_exchange` and `native_streams`
handle calls and streams; the compiled half is the crate in `native_transport/`.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import structlog
from grpc_health.v1 import health, health_pb2

from coordinator_protocol.limits import MEBI
from coordinator_runtime.clock import Clock
from coordinator_runtime.ports import NO_ANSWER_LIMIT, AnswerLimit, CallContext
from coordinator_server.connection_numbers import ConnectionNumbers
from coordinator_server.grpc_front.handler import Handler
from coordinator_server.grpc_front.native_exchange import Exchange
from coordinator_server.grpc_front.native_services import health_methods, reflection_methods
from coordinator_server.grpc_front.native_streams import (
    CREDIT_MESSAGES,
    LoopStream,
    ServicerStream,
    SessionStream,
    StreamHandle,
)
from coordinator_server.grpc_front.session import SESSION_METHOD, Session, SessionLimits
from coordinator_server.grpc_front.transports import (
    CONNECTION_AGE_GRACE_MS,
    CONNECTION_AGE_MS_MAX,
    KEEPALIVE_MS,
    KEEPALIVE_TIMEOUT_MS,
    NO_UNIX_SOCKETS,
    TransportName,
    TransportOptions,
)
from coordinator_server.listening import AddressRefused, close, is_unix, listen, tcp_sockets
from coordinator_server.native_interface import native
from coordinator_server.security.authentication import Callers, Presented
from coordinator_server.security.reloading_credentials import ReloadingCredentials
from coordinator_server.security.tls import ClientAuth, Credentials, TlsRefused

_WAITING_CALLS_MAX: Final = 16_384
"""Maximum number of new calls that wait for the loop. So many gather only if the loop is blocked for long."""
_WAITING_BYTES_MAX: Final = 64 * MEBI

_log = structlog.get_logger("transport")


class TransportFailed(Exception):
    """The I/O thread ended unexpectedly. The message has the reason."""


class NativeTransport:
    """Implements `ServerTransport` with the compiled module."""

    name = TransportName.NATIVE

    def __init__(self, services: Sequence[str], clock: Clock, options: TransportOptions) -> None:
        self._services = services
        self._clock = clock
        self._health = health.aio.HealthServicer()
        self._servicers = dict(health_methods(self._health))
        if options.has_reflection:
            self._servicers |= reflection_methods(services)
        self._server = native.Server(
            streams=[SESSION_METHOD, *self._servicers],
            open_methods=None if options.authenticator is None else list(self._servicers),
            message_bytes_max=options.message_bytes_max,
            stream_credit=CREDIT_MESSAGES,
            waiting_calls_max=_WAITING_CALLS_MAX,
            waiting_bytes_max=_WAITING_BYTES_MAX,
            keepalive_ms=KEEPALIVE_MS,
            keepalive_timeout_ms=KEEPALIVE_TIMEOUT_MS,
            connection_age_ms_max=CONNECTION_AGE_MS_MAX,
            connection_age_grace_ms=CONNECTION_AGE_GRACE_MS,
            connections_max=options.connections_max,
            streams_max=options.streams_max,
            unauthenticated_max=options.unauthenticated_max,
        )
        if options.credentials is not None:
            self._serve_with_tls(options.credentials)
        self._limits = SessionLimits.within(options.message_bytes_max)
        self._connections_max = options.connections_max
        self._callers = Callers(options.authenticator, options.principal, options.levels, options.idle)
        self._sockets: list[socket.socket] = []
        self._exchange: Exchange | None = None
        self._is_stopping = False
        self._has_stopped = asyncio.Event()
        self.on_failure: Callable[[Exception], None] = lambda failure: _log.error("failed", failure=str(failure))

    def _serve_with_tls(self, reloading: ReloadingCredentials) -> None:
        """Serve with TLS. Raises TlsRefused if the compiled TLS cannot use the files, for example a rare kind of
        key."""
        reloading.on_changed = self._use
        try:
            self._use(reloading.current)
        except ValueError as error:
            raise TlsRefused(f"{reloading.files.certificate_file} and what belongs to it: {error}") from error

    def _use(self, new: Credentials) -> None:
        """Serve new connections with these credentials. On any thread. Raises ValueError."""
        is_required = new.client_auth is ClientAuth.REQUIRED
        try:
            self._server.set_credentials(new.certificate, new.key, new.client_ca, is_required)
        except ValueError as error:
            raise ValueError(f"the compiled transport cannot use them ({error}); transport = grpc may") from error

    def bind(self, host: str, port: int) -> int:
        if is_unix(host):
            raise AddressRefused(f"cannot listen on {host}: {NO_UNIX_SOCKETS}")
        bound = tcp_sockets(host, port)
        self._sockets += bound
        listen(bound)
        taken: int = bound[0].getsockname()[1]
        return taken

    async def start(self, handler: Handler, answer_limit: AnswerLimit = NO_ANSWER_LIMIT) -> None:
        await self.set_ready(False)

        def open_stream(method: str, call: CallContext, shown: Presented, handle: StreamHandle) -> LoopStream:
            if method != SESSION_METHOD:
                return ServicerStream(self._servicers[method], handle)
            stream = SessionStream(Session(handler, self._clock, call, self._limits, answer_limit), handle)
            self._callers.watch(stream, shown, call.host, call.principal)
            stream.on_gone = partial(self._callers.forget, stream)
            if self._is_stopping:
                stream.announce_stop()
            return stream

        self._exchange = Exchange(self._server, self._clock, handler, open_stream, answer_limit, self._callers)
        self._exchange.on_stopped = self._on_stopped
        asyncio.get_running_loop().add_reader(self._server.fileno(), self._exchange.on_arrivals)
        for each in self._sockets:
            each.setblocking(False)
        self._server.start([each.detach() for each in self._sockets])

    async def set_ready(self, is_ready: bool) -> None:
        for service in self._services:
            await self.set_health(service, is_serving=is_ready)

    async def set_health(self, name: str, *, is_serving: bool) -> None:
        response = health_pb2.HealthCheckResponse
        await self._health.set(name, response.SERVING if is_serving else response.NOT_SERVING)

    def numbers(self) -> ConnectionNumbers:
        open_connections, handshakes, abuses = self._server.connections()
        return ConnectionNumbers(self._connections_max, open_connections, dict(abuses), handshakes=handshakes)

    async def announce_stop(self) -> None:
        await self._health.enter_graceful_shutdown()
        self._is_stopping = True
        if self._exchange is not None:
            for stream in self._exchange.streams:
                stream.announce_stop()

    async def stop(self, grace_ms: int) -> None:
        if self._exchange is None:
            close(self._sockets)
        else:
            # Answers of this turn go before the request to stop.
            self._exchange.end_turn()
            self._server.stop(grace_ms)
            await self._has_stopped.wait()

    def _on_stopped(self, failure: str | None) -> None:
        asyncio.get_running_loop().remove_reader(self._server.fileno())
        self._has_stopped.set()
        if failure is not None:
            self.on_failure(TransportFailed(failure))
