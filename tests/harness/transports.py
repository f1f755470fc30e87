"""Which transport the servers of a test use: the one that TXN_TRANSPORT names, else the best that is installed."""

from __future__ import annotations

import importlib.util
import os

import pytest

from coordinator_server.grpc_front.transports import TransportName

VARIABLE = "TXN_TRANSPORT"
BOTH = (TransportName.GRPC, TransportName.NATIVE)


def wanted_transport() -> TransportName:
    return TransportName(os.environ.get(VARIABLE, TransportName.AUTO))


def skip_what_is_missing(name: TransportName) -> None:
    """Skip the test, with the reason, where the compiled transport is not installed."""
    if name is TransportName.NATIVE and importlib.util.find_spec("txn_native_transport") is None:
        pytest.skip("the compiled transport is not installed (make native)")
