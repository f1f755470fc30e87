"""Our server in a measurement."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from bench.arena import WITH_FRONT
from bench.server import OwnServer


@pytest.mark.slow
def test_a_server_names_its_address_for_kafkas_clients(tmp_path: Path) -> None:
    server = OwnServer(tmp_path, arguments=WITH_FRONT)
    try:
        server.start()
        host, port = server.kafka_address().split(":")
        socket.create_connection((host, int(port))).close()
    finally:
        server.stop()
