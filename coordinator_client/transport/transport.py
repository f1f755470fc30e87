"""Transport port: carries one attempt of one request at a time, as far as the caller can see."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from coordinator_client.calls import ReplyT, RequestT, Rpc
from coordinator_client.errors import Loss, wrong_setting
from coordinator_protocol.limits import MEBI

SESSION: Final = "session"
GRPC_SESSION: Final = "grpc_session"
UNARY: Final = "unary"
TRANSPORTS: Final = (SESSION, GRPC_SESSION, UNARY)

UNIX_SCHEMES: Final = ("unix:", "unix-abstract:")
TARGET_SCHEMES: Final = (*UNIX_SCHEMES, "dns:", "ipv4:", "ipv6:")
"""Prefixes of endpoints that are a gRPC target instead of HOST:PORT."""

MESSAGE_BYTES_MAX: Final = 16 * MEBI

KEEPALIVE_MS: Final = 30_000
KEEPALIVE_TIMEOUT_MS: Final = 10_000

CHANNEL_OPTIONS: Final = (
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.keepalive_time_ms", KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
    # A server that restarts should be found again soon; by default gRPC waits up to two minutes between attempts.
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 500),
    # A proxy in the environment is meant for the web, and would be used for the loopback address too.
    ("grpc.enable_http_proxy", 0),
)


class Attempt(Protocol):
    """One attempt in flight."""

    def cancel(self) -> object:
        """Stop waiting for the answer; the server may still carry out the request."""


class Transport(Protocol):
    """Carries one attempt of one request, and reports its answer or its loss exactly once."""

    @property
    def is_direct(self) -> bool:
        """True if `ask` is faster for a single request whose thread waits for it, because no other request could share
        a message with it."""

    def start(
        self,
        rpc: Rpc[RequestT, ReplyT],
        request: RequestT,
        *,
        timeout_ms: int,
        on_done: Callable[[ReplyT | Loss], None],
    ) -> Attempt:
        """Send a request and return at once. `on_done` is called with the answer or the loss, now or later, perhaps on
        another thread."""

    def ask(self, rpc: Rpc[RequestT, ReplyT], request: RequestT, *, timeout_ms: int) -> ReplyT | Loss:
        """Send a request, wait, and return its answer or its loss."""

    def close(self) -> None:
        """Close the transport; calls in flight may be reported as lost."""


def check_transport(name: str) -> None:
    """Check the name of a transport. Raises: Misconfigured if there is no such transport."""
    if name not in TRANSPORTS:
        raise wrong_setting("transport", name, f"must be one of {', '.join(TRANSPORTS)}")
