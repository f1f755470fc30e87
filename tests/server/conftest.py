"""The tests that a server's transport could fail run with each of them: `pytest.mark.usefixtures("transport")`."""

from __future__ import annotations

import pytest

from coordinator_server.grpc_front.transports import TransportName
from tests.harness.transports import BOTH, VARIABLE, skip_what_is_missing


@pytest.fixture(params=BOTH)
def transport(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> TransportName:
    """The transport of every server that the test starts."""
    skip_what_is_missing(request.param)
    monkeypatch.setenv(VARIABLE, request.param)
    return TransportName(request.param)
