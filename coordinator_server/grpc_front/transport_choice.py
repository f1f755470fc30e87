"""Choice of the transport: the compiled one if it is installed, or grpc.aio, which always is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import structlog

from coordinator_runtime.clock import Clock
from coordinator_server.grpc_front.transports import (
    NO_REQUESTED_CERTIFICATES,
    ServerTransport,
    TransportName,
    TransportOptions,
)
from coordinator_server.security.tls import ClientAuth

_HOW_TO_GET_IT: Final = (
    "install txn-coordinator[native], in a checkout by `make native`; "
    "the server runs without it where transport is auto or grpc"
)

_log = structlog.get_logger("transport")


class TransportMissing(Exception):
    """The requested transport is not installed, or cannot do what was asked of it. The message says what to do."""


def open_transport(
    name: TransportName, services: Sequence[str], clock: Clock, options: TransportOptions
) -> ServerTransport:
    """Return the transport of that name, or the best one available. Raises TransportMissing."""
    if name is not TransportName.GRPC:
        try:
            from coordinator_server.grpc_front.native_transport import NativeTransport
        except ImportError as error:
            if name is TransportName.NATIVE:
                raise TransportMissing(
                    f"transport = native, and it is not there ({error}): {_HOW_TO_GET_IT}"
                ) from error
            if not isinstance(error, ModuleNotFoundError):
                _log.warning("native_transport_unusable", reason=str(error), advice="build it again: `make native`")
        else:
            return NativeTransport(services, clock, options)
    if options.credentials is not None and options.credentials.client_auth is ClientAuth.REQUESTED:
        raise TransportMissing(f"tls_client_auth = requested: {NO_REQUESTED_CERTIFICATES}")
    from coordinator_server.grpc_front.grpc_transport import GrpcTransport

    return GrpcTransport(services, clock, options)
