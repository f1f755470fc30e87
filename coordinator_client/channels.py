"""Chooses the channel of a session: the compiled transport where it is installed, else grpc.aio."""

from __future__ import annotations

import logging
from functools import cache
from types import ModuleType

from coordinator_client.grpc_channel import GrpcChannel
from coordinator_client.loops import AsyncioLoop
from coordinator_client.session_transport import Channel
from coordinator_client.transport import TARGET_SCHEMES

_log = logging.getLogger(__name__)


def open_best_channel(endpoint: str, loop: AsyncioLoop) -> Channel:
    """Return the fastest channel that is installed. It connects when it is first needed."""
    compiled = _compiled()
    # Unix sockets, targets that only gRPC's resolvers understand, and IPv6 zones are left to grpc.aio.
    if compiled is None or endpoint.startswith(TARGET_SCHEMES) or "%" in endpoint:
        return open_grpc_channel(endpoint, loop)
    try:
        channel: Channel = compiled.NativeChannel(endpoint, loop)
    except ValueError:
        # The endpoint cannot be written as a URL.
        return open_grpc_channel(endpoint, loop)
    return channel


def open_grpc_channel(endpoint: str, loop: AsyncioLoop) -> Channel:
    """Return the channel that needs nothing beside gRPC."""
    return GrpcChannel(endpoint, loop)


@cache
def _compiled() -> ModuleType | None:
    try:
        from coordinator_client import native_channel
    except ModuleNotFoundError:
        return None
    except ImportError as error:
        _log.warning(
            "the compiled transport cannot be used (%s) and grpc.aio is: build it again (`make native`)", error
        )
        return None
    return native_channel
