"""Common parts of the transports: the interface, the options of an operator, the limits. `transport_choice` opens one
of them; nothing inside knows which one runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

from coordinator_protocol.acls import ANONYMOUS
from coordinator_runtime.ports import NO_ANSWER_LIMIT, AnswerLimit, Levels
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
"""Time limit of a peer for the handshakes of TLS and HTTP/2. The compiled transport has the same."""

UNAUTHENTICATED_SHARE: Final = 8
UNAUTHENTICATED_LEAST: Final = 8
"""An eighth of all connections may be those of unauthenticated callers, and never fewer than eight."""

NO_UNIX_SOCKETS: Final = (
    "the compiled transport does not serve Unix sockets, because callers built on gRPC's C core name the path as "
    "authority there, which its HTTP/2 takes for malformed; use transport = auto or grpc"
)

NO_REQUESTED_CERTIFICATES: Final = (
    "the transport grpc cannot ask callers for a certificate without demanding it; use the compiled transport (`make"
    " native`), tls_client_auth = required, or none on a second listener"
)


class TransportName(StrEnum):
    """Transports that an operator may ask for."""

    AUTO = "auto"
    """The compiled one if it is installed and the address is no Unix socket, else grpc.aio."""
    GRPC = "grpc"
    NATIVE = "native"


@dataclass(frozen=True, slots=True)
class TransportOptions:
    """Options that an operator may set for any transport."""

    message_bytes_max: int
    """Largest request and response."""
    has_reflection: bool = False
    """True if tools may query the names and messages of the services (gRPC reflection)."""
    connections_max: int = 10_000
    streams_max: int = 4_096
    """Calls and streams of one connection that have not ended."""
    credentials: ReloadingCredentials | None = None
    """Credentials for TLS; None without TLS."""
    authenticator: Authenticator | None = None
    """Authenticates callers; None if every caller is `principal`."""
    principal: str = ANONYMOUS
    levels: Levels | None = None
    """Quotas on the sessions and connections of each principal; None without quotas."""
    idle: IdleSessions | None = None
    """Ends idle sessions; None if they stay open."""

    @property
    def unauthenticated_max(self) -> int:
        """Maximum number of open connections of unauthenticated callers. Without authentication it limits the
        connections whose TLS handshake is under way. Only the compiled transport can tell them apart."""
        return max(UNAUTHENTICATED_LEAST, self.connections_max // UNAUTHENTICATED_SHARE)


class ServerTransport(Protocol):
    """A gRPC server for one handler. Made inside a running event loop; then call `bind`, `start`, and finally
    `stop`."""

    name: TransportName
    on_failure: Callable[[Exception], None]
    """Callback for an unexpected end of the transport."""

    def bind(self, host: str, port: int) -> int:
        """Take the port, without serving it yet, and return it. It differs from `port` only if that was 0. A host
        `unix:PATH` is a Unix socket, whose file is created for its owner only; there is no port.

        Raises AddressRefused.
        """

    async def start(self, handler: Handler, answer_limit: AnswerLimit = NO_ANSWER_LIMIT) -> None:
        """Serve, and count in `answer_limit` the bytes that callers have not taken. The health service reports that the
        process is alive ("") and its services are not ready."""

    async def set_ready(self, is_ready: bool) -> None:
        """Set the state of the services in the health service: taking work or not."""

    async def set_health(self, name: str, *, is_serving: bool) -> None:
        """Set the state of something else that has a name in the health service."""

    def numbers(self) -> ConnectionNumbers:
        """Return the counts of connections. On any thread."""

    async def announce_stop(self) -> None:
        """Tell the health service and all sessions that the process is shutting down."""

    async def stop(self, grace_ms: int) -> None:
        """Take no further calls and wait for those under way. The rest is cancelled after the grace period."""
