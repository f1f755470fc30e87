"""Connection to one server: opened at the first use, never at import, and shared by all its users in this process.

Producers and readers are given a `Connection`. It uses a `Transport`, which carries one attempt of one request. That is
the session of this process with the server (`session_transport`), or unary calls (`grpc_transport`). A session uses the
compiled channel if that is installed, else that of grpc.aio. Tests replace it by a scripted transport.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from types import ModuleType, TracebackType
from typing import Any, Final, Self, TypedDict, TypeVar, Unpack

from coordinator_api.v1.common_pb2 import RequestHeader
from coordinator_client.calls import Deadlines, ReplyT, RequestT, RetryingCall, Rpc
from coordinator_client.clock import Clock, SystemClock
from coordinator_client.errors import (
    Loss,
    OutcomeUnknown,
    ReplyFields,
    TransactionError,
    check_here,
    misconfigured,
    rejected,
)
from coordinator_client.flights import ATTEMPT_GRACE_MS
from coordinator_client.log import Answers
from coordinator_client.loops import AsyncioLoop, Loop, background_loop
from coordinator_client.process import THIS_PROCESS
from coordinator_client.random_source import RandomSource, SystemRandomSource
from coordinator_client.repeating import REPEATING
from coordinator_client.settings import duration_ms
from coordinator_client.throttle import Throttle
from coordinator_client.tls import Tls
from coordinator_client.transport.first_contact import GIVE_UP_MS, ContactFirst, FirstContact, Look
from coordinator_client.transport.grpc_library import note_use
from coordinator_client.transport.grpc_transport import GrpcChannel, UnaryTransport
from coordinator_client.transport.known_servers import (
    PORT_MAX,
    KnownServers,
    addresses_of,
    followed_servers,
    host_of,
)
from coordinator_client.transport.server_look import ServerLook, place_of
from coordinator_client.transport.session_transport import Channel, SessionTransport
from coordinator_client.transport.several import SeveralLooks, SeveralTransports
from coordinator_client.transport.transport import (
    GRPC_SESSION,
    SESSION,
    TARGET_SCHEMES,
    UNARY,
    UNIX_SCHEMES,
    Transport,
    check_transport,
)
from coordinator_protocol.errors import ErrorCode
from coordinator_protocol.methods import Method
from coordinator_protocol.names import check_client_id

REQUEST_TIMEOUT_MS: Final = 30_000

_NAME_LENGTH_MAX: Final = 64

_log = logging.getLogger("coordinator_client.connection")

T = TypeVar("T")


class ConnectionDependencies(TypedDict, total=False):
    """The ports that a connection depends on; tests pass their own."""

    open_transport: Callable[[str], Transport]
    look: Look | None
    clock: Clock
    random_source: RandomSource
    open_loop: Callable[[], Loop]
    servers: KnownServers | None


class Connection:
    """The address of a server, the client id of this program, and the transport once one is needed.

    It may be shared by several producers and readers of one process, and is closed once for all of them. It must not
    cross a fork after its first use: the child gets `Misconfigured` and makes its own.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        client_id: str = "",
        transport: str = SESSION,
        wait_ms: int | None = GIVE_UP_MS,
        tls: Tls | None = None,
        **dependencies: Unpack[ConnectionDependencies],
    ) -> None:
        """Store the address of the server; no connection is opened.

        `endpoint` is HOST:PORT, [IPv6]:PORT or a gRPC target such as unix:PATH. HOST:PORT,HOST:PORT names several
        servers with one store: requests go to the one that serves. A client also learns the addresses of the servers
        from the one that answers, and goes on to them when it is lost. `client_id` shows up in the server's history.

        `transport` is `session` by default: one stream for all producers and consumers of this process, at a fraction
        of the cost. It uses the compiled transport if that is installed. `grpc_session` is the same, but always by
        grpc.aio. `unary` makes a call for each request, as every client does with a server without sessions.

        `wait_ms` is the time for which a client that was never connected tries to reach its server before its calls
        raise Unreachable. Default 1,500. It counts from the start of the first try, and a call never takes longer than
        its own deadline. None: as long as each call may take. A client that was connected once always tries until the
        deadline.

        `tls`: how to verify the server and which credentials to present; default: no TLS.

        Raises: Rejected, Misconfigured or TypeError for an impossible argument.
        """
        self._endpoints = _checked_endpoints(endpoint)
        check_transport(transport)
        for each in self._endpoints:
            _check_tls(each, tls)
        check_here(check_client_id, client_id)
        self.endpoint = endpoint
        self.tls = tls
        self.client_id = client_id
        self.clock = dependencies.get("clock") or SystemClock()
        self.random_source = dependencies.get("random_source") or SystemRandomSource()
        self.answers = Answers(endpoint)
        """Log of the server's problems with answering, for the application; notified by every user of this
        connection."""
        self.throttle = Throttle(endpoint)
        """Pauses that the server asked for; every user of this connection respects them."""
        self.open_loop = dependencies.get("open_loop")
        """Opens the loop on which consumers run. None = blocking ones use the loop thread of this process, the others
        their own loop."""
        self._transport_name = transport
        self._open_transport = dependencies.get("open_transport")
        self._servers = self._servers_known(dependencies)
        self._contact = self._no_contact(
            dependencies.get("look"), None if wait_ms is None else duration_ms("wait_ms", wait_ms)
        )
        self._transports: dict[Callable[[], Loop], Transport] = {}
        self._stood_aside: list[ContactFirst] = []
        self._opened_by = 0
        self._is_closed = False
        # A signal handler may use the connection in the middle of a call that holds this.
        self._lock = threading.RLock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Connection({self.endpoint!r})"

    @property
    def known_servers(self) -> tuple[str, ...]:
        """Addresses of the servers with this store, as far as they are known."""
        return tuple(self._endpoints) if self._servers is None else self._servers.addresses

    def add_known_servers(self, addresses: Iterable[str]) -> None:
        """Try these addresses, too. They are `known_servers` of another process with the same endpoint."""
        if self._servers is not None:
            self._servers.add(addresses)

    @property
    def transport(self) -> Transport:
        """The transport for a caller that blocks its thread: a session then lives on the loop thread of this
        process."""
        return self.transport_on(self.open_loop or background_loop)

    def transport_on(self, open_loop: Callable[[], Loop]) -> Transport:
        """Return the transport, opened now if this is the first use in this process.

        `open_loop` opens the loop on which a session lives: an application with its own loop needs no hop to another
        thread. Raises: Misconfigured after a fork, Rejected after `close`.
        """
        transport = self._transports.get(open_loop)
        if transport is None:
            if self._is_closed:
                raise rejected(
                    ErrorCode.INVALID_REQUEST, f"the connection to {self.endpoint} is closed; open a new one"
                )
            with self._lock:
                transport = self._transports.get(open_loop)
                if transport is None:
                    transport = self._transports[open_loop] = self._met(self._opened(open_loop), open_loop)
        if self._opened_by != THIS_PROCESS.process_id:
            raise misconfigured(
                ErrorCode.INVALID_CONFIG,
                f"the connection to {self.endpoint} was opened by process {self._opened_by} and is used by its fork "
                f"{THIS_PROCESS.process_id}, where gRPC does not work; make the producer, reader or consumer inside "
                "the child process, and use none before the fork",
            )
        return transport

    def _opened(self, open_loop: Callable[[], Loop]) -> Transport:
        self._opened_by = self._opened_by or THIS_PROCESS.process_id
        if self._open_transport is not None:
            return next(iter(self._transports.values()), None) or self._over_all(self._open_transport)
        note_use()
        return self._over_all(partial(self._opened_to, open_loop))

    def _servers_known(self, dependencies: ConnectionDependencies) -> KnownServers | None:
        """Return the addresses to go on to; None if requests only go to the given one."""
        if "servers" in dependencies:
            return dependencies["servers"]
        if not dependencies.keys() & {"open_transport", "clock"}:
            return followed_servers(self.endpoint, self.tls, self.clock.monotonic_ms())
        return KnownServers(self._endpoints, self.clock.monotonic_ms()) if len(self._endpoints) > 1 else None

    def _over_all(self, open_one: Callable[[str], Transport]) -> Transport:
        """Return a transport to the given address, or over those to all known ones."""
        if self._servers is None:
            return open_one(self.endpoint)
        return SeveralTransports(open_one, self._servers, self.clock, self.client_id)

    def _opened_to(self, open_loop: Callable[[], Loop], endpoint: str) -> Transport:
        if self._transport_name == UNARY:
            return UnaryTransport(endpoint, self.tls)
        open_channel = open_grpc_channel if self._transport_name == GRPC_SESSION else open_best_channel
        return SessionTransport(endpoint, open_loop, open_channel, self.tls)

    def _no_contact(self, look: Look | None, patience_ms: int | None) -> FirstContact | None:
        """Return the first contact that must be made; None if the server cannot be checked beforehand."""
        if look is None and self._open_transport is None:
            look = self._look()
        if look is None:
            return None
        return FirstContact(
            self.endpoint,
            look,
            patience_ms=patience_ms,
            clock=self.clock,
            answers=self.answers,
            on_made=self._contact_made,
        )

    def _look(self) -> Look | None:
        """Return a check of the known addresses; None if only gRPC's resolvers know where one of them is."""
        if any(place_of(each) is None for each in self._endpoints):
            return None
        if self._servers is None:
            return self._look_at(self.endpoint)
        return SeveralLooks(self._look_at, self._servers, self.clock)

    def _look_at(self, address: str) -> Look:
        place = place_of(address)
        assert place is not None, "addresses that servers name have a host and a port"
        return ServerLook(place, self.clock, self.tls)

    def _met(self, transport: Transport, open_loop: Callable[[], Loop]) -> Transport:
        """Return the transport, behind the first contact until that is made."""
        if self._contact is None or self._contact.is_made:
            return transport
        return ContactFirst(transport, self._contact, open_loop)

    def _contact_made(self) -> None:
        """Remove the first contact from the path of every later request."""
        # Without the lock, which an interrupted call may hold. A transport opened meanwhile stays behind the contact,
        # which passes everything on from now on.
        for open_loop, known in list(self._transports.items()):
            if isinstance(known, ContactFirst):
                self._stood_aside.append(known)
                self._transports[open_loop] = known.transport

    @property
    def is_of_a_parent(self) -> bool:
        """True if this process was forked after the connection was opened, so that it is unusable here."""
        return self._opened_by not in (0, THIS_PROCESS.process_id)

    def header(self, request_id: bytes = b"") -> RequestHeader:
        """Return the header of a request; only requests that change something need an id."""
        return RequestHeader(client_id=self.client_id, request_id=request_id)

    def ask(
        self,
        rpc: Rpc[RequestT, ReplyT],
        request: RequestT,
        *,
        deadlines: Deadlines,
        items: Callable[[ReplyT], Iterable[ReplyFields]] | None = None,
    ) -> ReplyT:
        """Send a request until it has a final answer, and return the successful reply.

        `items` returns the parts of the reply that can fail individually; the first failed one fails the call.

        Raises: the TransactionError that the reply stands for; Retriable or OutcomeUnknown at the deadline. An
        OutcomeUnknown says if it is safe to repeat the call, and so does a note on an exception that interrupts it.
        """
        with _advice(rpc.method):
            call = RetryingCall(rpc, request, deadlines=deadlines, now_ms=self.clock.monotonic_ms(), items=items)
            while True:
                while (pause_ms := self._pause_ms(call)) > 0:
                    self.clock.pause(pause_ms)
                timeout_ms = call.begin_attempt(self.clock.monotonic_ms())
                end = self._end_of(call, self.transport.ask(rpc, request, timeout_ms=timeout_ms))
                if end is not None:
                    return end

    async def ask_on_loop(
        self,
        rpc: Rpc[RequestT, ReplyT],
        request: RequestT,
        *,
        deadlines: Deadlines,
        items: Callable[[ReplyT], Iterable[ReplyFields]] | None = None,
    ) -> ReplyT:
        """Do the same as `ask` on the loop of the running task, which other tasks use meanwhile."""
        with _advice(rpc.method):
            open_loop = self.open_loop or AsyncioLoop
            loop = open_loop()
            call = RetryingCall(rpc, request, deadlines=deadlines, now_ms=self.clock.monotonic_ms(), items=items)
            while True:
                while (pause_ms := self._pause_ms(call)) > 0:
                    await _timer(loop, pause_ms)
                timeout_ms = call.begin_attempt(self.clock.monotonic_ms())
                answer = await _attempt(self.transport_on(open_loop), loop, call, timeout_ms)
                end = self._end_of(call, answer)
                if end is not None:
                    return end

    def _end_of(self, call: RetryingCall[RequestT, ReplyT], answer: ReplyT | Loss) -> ReplyT | None:
        """Return the reply with which a call ends, or None if another attempt is due. Raises: its failure."""
        now_ms, method = self.clock.monotonic_ms(), call.rpc.method
        end = call.on_answer(answer, now_ms=now_ms, jitter=self.random_source.fraction())
        if not isinstance(answer, Loss):
            self.throttle.note(method, answer.throttle_ms, now_ms, is_refused=end is not answer)
        if end is not answer or self.answers.is_troubled:
            said = answer if isinstance(answer, Loss) else call.verdict_of(answer)
            self.answers.note(method, said, now_ms)
        if isinstance(end, TransactionError):
            raise end
        return end

    def _pause_ms(self, call: RetryingCall[Any, Any]) -> int:
        """Return the time until the due attempt may start (ms); 0 or less = it may start now."""
        now_ms = self.clock.monotonic_ms()
        self.throttle.hold(call, now_ms)
        assert call.due_ms is not None, "no end and no attempt in flight: another one is due"
        return call.due_ms - now_ms

    def close(self) -> None:
        """Close the transports; later calls are refused. A fork leaves those of its parent alone."""
        is_ours = not self.is_of_a_parent
        self._is_closed = True
        transports, self._transports = dict.fromkeys(self._transports.values()), {}
        self._opened_by = 0
        stood_aside, self._stood_aside = self._stood_aside, []
        if is_ours:
            for transport in transports:
                transport.close()
            for contact in stood_aside:
                contact.release()


@contextmanager
def _advice(method: Method) -> Iterator[None]:
    """Tell from each exception of a call whether it is safe to repeat it."""
    try:
        yield
    except OutcomeUnknown as error:
        error.action = REPEATING.get(method, error.action)
        raise
    except TransactionError:
        raise
    except BaseException as interruption:
        if method in REPEATING:
            interruption.add_note(f"{method} may have taken effect. {REPEATING[method]}")
        raise


async def _timer(loop: Loop, pause_ms: int) -> None:
    waiter = asyncio.get_running_loop().create_future()
    timer = loop.call_after(pause_ms, partial(_settle, waiter, None))
    try:
        await waiter
    finally:
        timer.cancel()


async def _attempt(
    transport: Transport, loop: Loop, call: RetryingCall[RequestT, ReplyT], timeout_ms: int
) -> ReplyT | Loss:
    """Make one attempt. An attempt that its transport never reports counts as lost."""
    waiter: asyncio.Future[ReplyT | Loss] = asyncio.get_running_loop().create_future()
    lost = Loss("DEADLINE_EXCEEDED", "the attempt was never reported back")
    timer = loop.call_after(timeout_ms + ATTEMPT_GRACE_MS, partial(_settle, waiter, lost))
    attempt = transport.start(
        call.rpc,
        call.request,
        timeout_ms=timeout_ms,
        on_done=lambda answer: loop.call_soon(partial(_settle, waiter, answer)),
    )
    try:
        return await waiter
    finally:
        timer.cancel()
        if waiter.cancelled():
            attempt.cancel()


def _settle(waiter: asyncio.Future[T], answer: T) -> None:
    if not waiter.done():
        waiter.set_result(answer)


def client_id_for(kind: str, name: str | None) -> str:
    """Return the client id of a producer or consumer that was given none: `producer-ID` or `consumer-GROUP`, as in
    Kafka's clients. Long names are cut: every stored step of a transaction holds it."""
    return f"{kind}-{name[:_NAME_LENGTH_MAX]}" if name else kind


def connection_to(
    server: str | Connection,
    *,
    client_id: str = "",
    transport: str = SESSION,
    wait_ms: int | None = GIVE_UP_MS,
    tls: Tls | None = None,
) -> tuple[Connection, bool]:
    """Return a connection to the server, and True if it was made here and so must be closed here."""
    if isinstance(server, Connection):
        return server, False
    return Connection(server, client_id=client_id, transport=transport, wait_ms=wait_ms, tls=tls), True


def _check_tls(endpoint: str, tls: object) -> None:
    if tls is None:
        return
    if not isinstance(tls, Tls):
        raise TypeError(f"tls must be a Tls, such as Tls(ca_file='ca.pem'), not {type(tls).__name__}")
    if endpoint.startswith(UNIX_SCHEMES):
        raise misconfigured(
            ErrorCode.INVALID_CONFIG, f"a Unix socket has no TLS: leave it out for {endpoint}, or name HOST:PORT"
        )


def _checked_endpoints(endpoint: str) -> list[str]:
    """Return the addresses of an endpoint. Raises: Rejected or TypeError."""
    if not isinstance(endpoint, str):
        raise TypeError(f"the endpoint must be a text like '127.0.0.1:7070', not {type(endpoint).__name__}")
    endpoints = addresses_of(endpoint)
    for each in endpoints:
        _check_endpoint(each)
    return endpoints


def _check_endpoint(endpoint: str) -> None:
    if endpoint.startswith(TARGET_SCHEMES):
        return
    if host_of(endpoint) is None:
        raise rejected(
            ErrorCode.INVALID_REQUEST,
            f"{endpoint!r} is no address of a server: write HOST:PORT with a port from 1 to {PORT_MAX}, or unix:PATH",
        )


def open_best_channel(endpoint: str, loop: AsyncioLoop, tls: Tls | None = None) -> Channel:
    """Return the fastest installed channel. It connects when it is first needed."""
    compiled = _compiled()
    if compiled is not None and tls is not None:
        _tell_of_tls()
    # TLS, Unix sockets, targets that only gRPC's resolvers understand, and IPv6 zones are left to grpc.aio.
    if compiled is None or tls is not None or endpoint.startswith(TARGET_SCHEMES) or "%" in endpoint:
        return open_grpc_channel(endpoint, loop, tls)
    try:
        channel: Channel = compiled.NativeChannel(endpoint, loop)
    except ValueError:
        # The endpoint cannot be written as a URL.
        return open_grpc_channel(endpoint, loop)
    return channel


def open_grpc_channel(endpoint: str, loop: AsyncioLoop, tls: Tls | None = None) -> Channel:
    """Return the channel that needs nothing beside gRPC."""
    return GrpcChannel(endpoint, loop, tls)


@cache
def _tell_of_tls() -> None:
    _log.info("the compiled transport has no TLS for clients: sessions with TLS use grpc.aio")


@cache
def _compiled() -> ModuleType | None:
    try:
        from coordinator_client.transport import native_channel
    except ModuleNotFoundError:
        return None
    except ImportError as error:
        _log.warning(
            "the compiled transport cannot be used (%s) and grpc.aio is: build it again (`make native`)", error
        )
        return None
    return native_channel
