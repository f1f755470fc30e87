"""The transport of a test's servers: the one that TXN_TRANSPORT names, else the best that is installed."""

from __future__ import annotations

import importlib.util
import os

import pytest

from coordinator_server.grpc_front.transports import TransportName
from tests.harness.long_cases import long_but

VARIABLE = "TXN_TRANSPORT"
BOTH = (TransportName.GRPC, TransportName.NATIVE)
IS_NATIVE_INSTALLED = importlib.util.find_spec("txn_native_transport") is not None
ONE_SHORT = long_but(lambda name: (name is TransportName.NATIVE) is IS_NATIVE_INSTALLED, BOTH)
"""The cases of a test whose run on one transport stands for both in `make test`: on the compiled one, where it is."""


def wanted_transport() -> TransportName:
    return TransportName(os.environ.get(VARIABLE, TransportName.AUTO))


def skip_what_is_missing(name: TransportName) -> None:
    """Skip the test, with the reason, where the compiled transport is not installed."""
    if name is TransportName.NATIVE and not IS_NATIVE_INSTALLED:
        pytest.skip("the compiled transport is not installed (make native)")
