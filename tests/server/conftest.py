"""The tests that a server's transport could fail run with each of them: `pytest.mark.usefixtures("transport")`. Tests
of authentication share a certificate authority and a tokens file.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from coordinator_server.grpc_front.transports import TransportName
from tests.harness.certificates import Authority
from tests.harness.transports import BOTH, VARIABLE, skip_what_is_missing
from tests.server.asking_server import Tokens


@pytest.fixture(params=BOTH)
def transport(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> TransportName:
    """The transport of every server that the test starts."""
    skip_what_is_missing(request.param)
    monkeypatch.setenv(VARIABLE, request.param)
    return TransportName(request.param)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "ca")


@pytest.fixture
def tokens(tmp_path: Path) -> Tokens:
    return Tokens(tmp_path)
