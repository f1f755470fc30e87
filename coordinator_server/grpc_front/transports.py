"""What the transports have in common: the interface, the options of an operator, the numbers of connections.
`transport_choice` opens one of them; nothing inside knows which one runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

from coordinator_protocol.acls import ANONYMOUS
from coordinator_runtime.ports import BOUNDLESS_ROOM, AnswerRoom, Levels
from coordinator_server.connection_numbers import ConnectionNumbers
from coordinator_server.grpc_front.handler import Handler
from coordinator_server.idle_sessions import IdleSessions
from coordinator_server.security.authentication import Authenticator
from coordinator_server.security.reloading_credentials import ReloadingCredentials

KEEPALIVE_MS: Final = 30_000
KEEPALIVE_TIMEOUT_MS: Final = 10_000
CONNECTION_AGE_MS_MAX: Final = 3_600_000
CONNECTION_AGE_GRACE_MS: Final = 60_000
HANDSHAKE_MS_MAX: Final = 10_000
"""How long a peer may take for the handshakes of TLS and HTTP/2. The compiled transport has the same."""

UNAUTHENTICATED_SHARE: Final = 8
UNAUTHENTICATED_LEAST: Final = 8
"""An eighth of all connections may be those of callers who are not known yet, and never fewer than eight."""

NO_UNIX_SOCKETS: Final = (
    "the compiled transport does not serve Unix sockets, because callers built on gRPC's C core name the path as "
    "authority there, which its HTTP/2 takes for malformed; use transport = auto or grpc"
)

NO_REQUESTED_CERTIFICATES: Final = (
    "the transport grpc cannot ask callers for a certificate without demanding it; use the compiled transport (`make"
    " native`), tls_client_auth = required, or none on a second listener"
)


class TransportName(StrEnum):
    """The transports that an operator may ask for."""

    AUTO = "auto"
    """The compiled one if it is installed and the address is no Unix socket, else grpc.aio."""
    GRPC = "grpc"
    NATIVE = "native"


@dataclass(frozen=True, slots=True)
class TransportOptions:
    """What an operator may change, whichever transport it is."""

    message_bytes_max: int
    """Largest request and response."""
    has_reflection: bool = False
    """Whether tools may ask for the names and messages of the services."""
    connections_max: int = 10_000
    streams_max: int = 4_096
    """Calls and streams of one connection that have not ended."""
    credentials: ReloadingCredentials | None = None
    """What TLS is served with; None: no TLS."""
    authenticator: Authenticator | None = None
    """Says who calls; None: everybody is `principal`."""
    principal: str = ANONYMOUS
    levels: Levels | None = None
    """How many sessions and connections each principal may have; None: as many as it wants."""
    idle: IdleSessions | None = None
    """Ends the sessions that are idle; None: they stay open."""

    @property
    def unauthenticated_max(self) -> int:
        """Connections that may be open on which no caller is known yet, or, where nobody is asked who calls, whose
        handshake of TLS goes on. The compiled transport alone can tell them apart."""
        return max(UNAUTHENTICATED_LEAST, self.connections_max // UNAUTHENTICATED_SHARE)


class ServerTransport(Protocol):
    """A gRPC server for one handler. Made inside a running event loop; then `bind`, `start`, at last `stop`."""

    name: TransportName
    on_failure: Callable[[Exception], None]
    """Told if it cannot serve any more although nobody stopped it."""

    def bind(self, host: str, port: int) -> int:
        """Take the port, without serving it yet; returns it, which differs from the one asked for only if that was 0.
        A host `unix:PATH` is a Unix socket: the file is made, for its owner only, and there is no port.

        Raises AddressRefused."""

    async def start(self, handler: Handler, room: AnswerRoom = BOUNDLESS_ROOM) -> None:
        """Serve, and count in `room` what callers have not taken. The health service says that the process is alive
        ("") and its services are not ready."""

    async def set_ready(self, is_ready: bool) -> None:
        """Tell the health service whether the services take work."""

    async def set_health(self, name: str, *, is_serving: bool) -> None:
        """Tell the health service of something else that has a name there."""

    def numbers(self) -> ConnectionNumbers:
        """What there is of connections. On any thread."""

    async def announce_stop(self) -> None:
        """Tell the health service and all sessions that the process is going, for good."""

    async def stop(self, grace_ms: int) -> None:
        """Take no further calls and wait for those under way; what is left after the grace is cancelled."""
