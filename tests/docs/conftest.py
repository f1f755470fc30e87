"""A server as the README starts one: `txnctl dev`."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.fences import PROGRAMS


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """HOST:PORT of a fresh server on a free port."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TXN_")}
    command: list[str | Path] = [PROGRAMS / "txnctl", "dev", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as server:
        assert server.stdout is not None
        try:
            said = re.search(r"gRPC on (\S+),", server.stdout.readline())
            assert said is not None
            yield said[1]
        finally:
            server.send_signal(signal.SIGTERM)
    assert server.returncode == 0
