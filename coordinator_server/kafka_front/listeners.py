"""The listeners for Kafka's protocol of one server, opened and served.

Their addresses are taken at the start, and served once the state is loaded. Until then the system lets clients wait.
A server that waits for its store serves them at once, and refuses what only the owner can answer (`waiting.py`).
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Final

from coordinator_runtime.clock import Clock
from coordinator_runtime.ports import AnswerLimit, Connection, Levels
from coordinator_server.addresses import Address, NodeAddress, parse_address
from coordinator_server.connection_numbers import ConnectionNumbers
from coordinator_server.idle_sessions import IdleSessions
from coordinator_server.kafka_front.abuses import Abuses
from coordinator_server.kafka_front.begun_requests import BegunRequests
from coordinator_server.kafka_front.connection import KafkaConnection, Service
from coordinator_server.kafka_front.entrance import Entrance
from coordinator_server.kafka_front.frame_limits import frame_limits
from coordinator_server.kafka_front.kafka_call import ApiEndpoint
from coordinator_server.kafka_front.partial_requests import PartialRequests
from coordinator_server.kafka_front.places import Places
from coordinator_server.kafka_front.sasl import Authentication
from coordinator_server.listeners import Identities, KafkaListener
from coordinator_server.listening import close, tcp_sockets
from coordinator_server.security.authentication import Authenticator, Callers
from coordinator_server.security.reloading_credentials import ReloadingCredentials
from coordinator_server.security.server_tls import reloading_context
from coordinator_server.settings.access_config import KAFKA_PREFIX
from coordinator_server.traffic.metering import Keeper

AUTHENTICATION_MS_MAX: Final = 10_000
"""Time for a new connection to authenticate, after its TLS handshake."""
_BACKLOG: Final = 4_096


@dataclass(frozen=True, slots=True)
class KafkaOptions:
    """Options that all listeners share."""

    node_id: int
    message_bytes_max: int
    connections_max: int
    begun_bytes_max: int
    begun_calls_max: int
    """Bytes and number of requests that may have begun, for each listener. They are below the limits of the core, which
    refuses work beyond those."""
    levels: Levels | None = None
    idle: IdleSessions | None = None


@dataclass(slots=True)
class OpenKafkaListener:
    """A listener that has its address."""

    listener: KafkaListener
    address: Address
    """Address with the port that was taken."""
    sockets: Sequence[socket.socket]
    credentials: ReloadingCredentials | None
    """Credentials for TLS; None without TLS."""
    authenticator: Authenticator | None
    abuses: Abuses
    connections: dict[KafkaConnection, None] = field(default_factory=dict)
    entrances: list[Entrance] = field(default_factory=list)

    @property
    def advertised(self) -> Address:
        """Address at which clients look for the server after their first connection."""
        advertised = self.listener.advertised
        return self.address if advertised is None else parse_address(advertised)


@dataclass(frozen=True, slots=True)
class CoreOfConnections:
    """Parts of the core that know connections."""

    answer_limit: AnswerLimit
    on_lost: Callable[[Connection], None]
    """Called with each connection that ends."""


class KafkaListeners:
    """All listeners for Kafka's protocol. On the loop only, except for `numbers`."""

    def __init__(self, clock: Clock, options: KafkaOptions) -> None:
        self._clock = clock
        self._options = options
        self._connection_numbers = count(1)
        self.opened: list[OpenKafkaListener] = []
        self._services: list[Service] = []

    def open(self, wanted: Sequence[KafkaListener], identities: Identities) -> None:
        """Take all the addresses. If one of them fails, `give_back` releases the earlier ones. Raises AddressRefused,
        TlsRefused."""
        for listener in wanted:
            credentials = listener.credentials(self._clock, KAFKA_PREFIX)
            authenticator = identities.authenticator(listener.methods, credentials, self._clock)
            host, port = listener.address
            sockets = tcp_sockets(host, port)
            address = Address(host, sockets[0].getsockname()[1])
            abuses = Abuses(self._clock)
            self.opened.append(OpenKafkaListener(listener, address, sockets, credentials, authenticator, abuses))

    def give_back(self) -> None:
        """Release the addresses without having served them."""
        for each in self.opened:
            close(each.sockets)

    async def serve(self, endpoints: Mapping[int, ApiEndpoint], keeper: Keeper, core: CoreOfConnections) -> None:
        """Serve on all listeners."""
        for each in self.opened:
            service = self._service(each, endpoints, keeper, core)
            self._services.append(service)
            connect = partial(self._connect, service)
            context = None if each.credentials is None else reloading_context(each.credentials)
            each.entrances += [Entrance(plug, context, connect, each.abuses) for plug in each.sockets]
            for entrance in each.entrances:
                entrance.open(_BACKLOG)

    def go_on_with(self, endpoints: Mapping[int, ApiEndpoint], keeper: Keeper, core: CoreOfConnections) -> None:
        """Give the requests that begin from now on to others, on all listeners. The connections stay."""
        for each in self._services:
            each.endpoints, each.keeper = endpoints, keeper
            each.answer_limit, each.on_lost = core.answer_limit, core.on_lost

    def _service(
        self, each: OpenKafkaListener, endpoints: Mapping[int, ApiEndpoint], keeper: Keeper, core: CoreOfConnections
    ) -> Service:
        options, listener, advertised = self._options, each.listener, each.advertised
        callers = Callers(each.authenticator, listener.principal, options.levels, options.idle)
        return Service(
            endpoints=endpoints,
            keeper=keeper,
            clock=self._clock,
            node=NodeAddress(options.node_id, advertised.host, advertised.port),
            callers=callers,
            authentication=partial(Authentication, listener.methods, callers),
            message_bytes_max=options.message_bytes_max,
            frame_limits=frame_limits(options.message_bytes_max),
            partial_requests=PartialRequests(),
            begun_requests=BegunRequests(options.begun_bytes_max, options.begun_calls_max, _later),
            unauthenticated_ms_max=AUTHENTICATION_MS_MAX,
            answer_limit=core.answer_limit,
            abuses=each.abuses,
            open_connections=each.connections,
            places=Places(
                self._clock,
                max(1, options.connections_max // len(self.opened)),
                knows_all=each.credentials is None and each.authenticator is None,
            ),
            later=_later,
            on_lost=core.on_lost,
        )

    def _connect(self, service: Service, host: str) -> KafkaConnection:
        return KafkaConnection(service, next(self._connection_numbers), host)

    @property
    def addresses(self) -> list[Address]:
        """Address of each listener, that of `kafka_listen` first."""
        return [each.address for each in self.opened]

    @property
    def authenticators(self) -> Sequence[Authenticator | None]:
        """Authenticator of each listener; None without authentication."""
        return [each.authenticator for each in self.opened]

    def credentials_by_address(self) -> dict[str, ReloadingCredentials | None]:
        """Return the credentials of every listener; None without TLS."""
        return {str(each.address): each.credentials for each in self.opened}

    def numbers(self) -> ConnectionNumbers:
        """Return the sums of all listeners. On any thread."""
        abuses: Counter[str] = Counter()
        for each in self.opened:
            abuses.update(each.abuses.counts)
        return ConnectionNumbers(
            self._options.connections_max,
            sum(len(each.connections) for each in self.opened),
            abuses,
            handshakes=sum(each.credentials.handshakes for each in self.opened if each.credentials is not None),
        )

    def announce_stop(self) -> None:
        """Take no more connections and requests. Requests that have begun are answered."""
        for each in self.opened:
            for entrance in each.entrances:
                entrance.close()
            for connection in list(each.connections):
                connection.announce_stop()

    async def stop(self, grace_ms: int) -> None:
        """Wait for the last answers to leave, and close every connection."""
        if closed := [connection.closed for connection in self._open()]:
            await asyncio.wait(closed, timeout=grace_ms / 1_000)
        for connection in self._open():
            connection.cut()
        self.give_back()

    def _open(self) -> list[KafkaConnection]:
        return [connection for each in self.opened for connection in each.connections]


def _later(delay_ms: int, act: Callable[[], None]) -> asyncio.TimerHandle:
    return asyncio.get_running_loop().call_later(delay_ms / 1_000, act)
