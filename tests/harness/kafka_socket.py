"""A Kafka client of a few lines over a real socket, for tests of listeners."""

from __future__ import annotations

import re
import socket
import ssl
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from coordinator_server.addresses import Address, parse_address
from tests.harness.patience import DEADLINE_SECONDS
from tests.harness.server_process import ServerProcess

KAFKA_READY: Final = re.compile(r"Kafka's protocol on (?P<address>\S+)\n")


def kafka_address(server: ServerProcess) -> Address:
    """Return the address of a running server for Kafka's protocol."""
    return parse_address(server.read_until(KAFKA_READY)["address"])


class KafkaSocket:
    """One connection, with or without TLS."""

    def __init__(self, address: Address, ca_file: Path | None = None) -> None:
        plain = socket.create_connection((address.host, address.port), timeout=DEADLINE_SECONDS)
        self._socket: socket.socket = plain
        if ca_file is not None:
            context = ssl.create_default_context(cafile=str(ca_file))
            self._socket = context.wrap_socket(plain, server_hostname=address.host)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._socket.close()

    def ask(self, frame: bytes) -> bytes:
        """Send a frame. Return the answer without its size; b"" if the server closed the connection."""
        self._socket.sendall(frame)
        size = self._read(4)
        return self._read(int.from_bytes(size, "big")) if size else b""

    def _read(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            try:
                piece = self._socket.recv(size - len(found))
            except ConnectionResetError:
                piece = b""
            if not piece:
                return b""
            found += piece
        return found

    def is_closed_by_server(self) -> bool:
        """Wait for the end of the connection."""
        return self._read(1) == b""
