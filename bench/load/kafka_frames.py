"""Requests of Kafka's protocol over bare asyncio connections, for loads of many connections.

Bytes are those of Kafka's definitions: ApiVersions 0, and Fetch 11, the last version with a fixed form.
"""

from __future__ import annotations

import asyncio
import struct
from typing import Final, Self

_FETCH: Final = struct.Struct(">iiiibii")
_FETCHED_PARTITION: Final = struct.Struct(">iiqqi")
_NO_EPOCH: Final = -1
_READ_COMMITTED: Final = 1
_ANSWER_BYTES_MAX: Final = 1 << 20
_FETCH_KEY: Final = 1
_FETCH_VERSION: Final = 11
_API_VERSIONS_KEY: Final = 18


class KafkaLine:
    """One connection, with one request under way."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def open(cls, bootstrap: str) -> Self:
        """Connect."""
        host, _, port = bootstrap.rpartition(":")
        return cls(*await asyncio.open_connection(host, int(port)))

    async def ask(self, request: bytes) -> bytes:
        """Send a request; return the body of its answer."""
        self._writer.write(request)
        size = int.from_bytes(await self._reader.readexactly(4))
        return (await self._reader.readexactly(size))[4:]

    def close(self) -> None:
        """Close the connection."""
        self._writer.close()


def api_versions_request() -> bytes:
    """Return the request that every client sends first."""
    return _framed(_API_VERSIONS_KEY, 0, b"")


def fetch_request(topic: str, partition: int, offset: int, max_wait_ms: int) -> bytes:
    """Return a request for at least one byte from an offset on."""
    body = _FETCH.pack(-1, max_wait_ms, 1, _ANSWER_BYTES_MAX, _READ_COMMITTED, 0, _NO_EPOCH)
    body += _array(1) + _text(topic) + _array(1)
    body += _FETCHED_PARTITION.pack(partition, _NO_EPOCH, offset, -1, _ANSWER_BYTES_MAX)
    return _framed(_FETCH_KEY, _FETCH_VERSION, body + _array(0) + _text(""))


def is_empty_fetch(answer: bytes, topic: str) -> bool:
    """Return True if the answer has no error and no record."""
    throttle_ms, error, _session, topics = struct.unpack_from(">ihii", answer)
    at = 14 + 2 + len(topic.encode()) + 4
    _partition, partition_error, *_offsets, aborted, _replica, size = struct.unpack_from(">ihqqqiii", answer, at)
    return (throttle_ms, error, topics, partition_error, size) == (0, 0, 1, 0, 0) and aborted <= 0


def _framed(api_key: int, version: int, body: bytes) -> bytes:
    message = struct.pack(">hhi", api_key, version, 0) + _text("bench") + body
    return len(message).to_bytes(4) + message


def _text(value: str) -> bytes:
    encoded = value.encode()
    return len(encoded).to_bytes(2) + encoded


def _array(count: int) -> bytes:
    return count.to_bytes(4)
