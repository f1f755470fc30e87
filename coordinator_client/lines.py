"""Which way a session takes: the compiled transport where it is installed, else grpc.aio."""

from __future__ import annotations

import logging
from functools import cache
from types import ModuleType

from coordinator_client.grpc_line import GrpcLine
from coordinator_client.loops import AsyncioLoop
from coordinator_client.session_transport import Line
from coordinator_client.transport import TARGET_SCHEMES

_log = logging.getLogger(__name__)


def open_best_line(endpoint: str, loop: AsyncioLoop) -> Line:
    """Return the quickest way that is there; nothing is connected before it is needed."""
    compiled = _compiled()
    # Sockets of the file system, what only gRPC's resolvers understand, and zones of IPv6 are left to grpc.aio.
    if compiled is None or endpoint.startswith(TARGET_SCHEMES) or "%" in endpoint:
        return open_grpc_line(endpoint, loop)
    try:
        line: Line = compiled.NativeLine(endpoint, loop)
    except ValueError:
        # A name that a URL cannot have.
        return open_grpc_line(endpoint, loop)
    return line


def open_grpc_line(endpoint: str, loop: AsyncioLoop) -> Line:
    """Return the way that is always there."""
    return GrpcLine(endpoint, loop)


@cache
def _compiled() -> ModuleType | None:
    try:
        from coordinator_client import native_line
    except ModuleNotFoundError:
        return None
    except ImportError as error:
        _log.warning(
            "the compiled transport cannot be used (%s) and grpc.aio is: build it again (`make native`)", error
        )
        return None
    return native_line
