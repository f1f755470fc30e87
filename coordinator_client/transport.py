"""What carries requests: one attempt of one request at a time, as far as whoever asks can see."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from coordinator_client.errors import Loss, wrong_setting
from coordinator_client.methods import ReplyT, RequestT, Rpc
from coordinator_protocol.limits import MEBI

SESSION: Final = "session"
GRPC_SESSION: Final = "grpc_session"
UNARY: Final = "unary"
TRANSPORTS: Final = (SESSION, GRPC_SESSION, UNARY)

TARGET_SCHEMES: Final = ("unix:", "unix-abstract:", "dns:", "ipv4:", "ipv6:")
"""How an endpoint begins that is a target of gRPC's instead of HOST:PORT."""

MESSAGE_BYTES_MAX: Final = 16 * MEBI

KEEPALIVE_MS: Final = 30_000
KEEPALIVE_TIMEOUT_MS: Final = 10_000

CHANNEL_OPTIONS: Final = (
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.keepalive_time_ms", KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
    # A server that restarts should be found again soon; the default waits up to two minutes between two looks.
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 500),
    # A proxy in the environment is meant for the web, and would be asked for the loopback address too.
    ("grpc.enable_http_proxy", 0),
)


class Call(Protocol):
    """One attempt on its way."""

    def cancel(self) -> object:
        """Stop waiting for it; the server may carry it out all the same."""
        ...


class Transport(Protocol):
    """Carries one attempt of one request, and reports exactly once what became of it."""

    @property
    def is_direct(self) -> bool:
        """Whether `ask` is the shorter way for one request that its thread waits for: nothing can share its way."""
        ...

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


def check_transport(name: str) -> None:
    """Raises: Misconfigured where there is no such way."""
    if name not in TRANSPORTS:
        raise wrong_setting("transport", name, f"must be one of {', '.join(TRANSPORTS)}")
