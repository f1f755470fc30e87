"""Frames of a connection: each has its size in 32 bits, and then that many bytes.

Bytes come in pieces of any size. A frame inside one piece is a view of that piece. A frame of several pieces has a
buffer of its own, so bytes are copied a few times at most however small the pieces are. The memory of a frame is never
written again, so records may stay views of it.
"""

from __future__ import annotations

from typing import Final

from coordinator_server.kafka_front.malformed import Malformed

_SIZE_BYTES: Final = 4
_OTHER_PROTOCOLS: Final = {
    b"\x16\x03": "a TLS handshake",
    b"GET ": "an HTTP request",
    b"HEAD": "an HTTP request",
    b"POST": "an HTTP request",
    b"PUT ": "an HTTP request",
    b"PRI ": "HTTP/2, perhaps of a gRPC client",
}


class Frames:
    """Cuts the bytes of a connection into frames."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        """Largest frame in bytes, without its size. A change applies to sizes that are not yet read."""
        self._head = b""
        """Beginning of a size."""
        self._buffer = bytearray()
        """Beginning of a frame. It grows with the bytes that come, never by a stated size alone."""
        self._size: int | None = None
        """Size of the frame in the buffer; None between frames."""

    @property
    def held_bytes(self) -> int:
        """Bytes that wait for the rest of their frame."""
        return len(self._head) + len(self._buffer)

    def feed(self, data: bytes) -> list[memoryview]:
        """Return the frames that are complete with these bytes, without their sizes.

        Raises Malformed for a negative size, or one above `bytes_max`. Nothing can be read after that.
        """
        frames: list[memoryview] = []
        if self._head:
            data = self._head + data
            self._head = b""
        view = memoryview(data)
        at = 0
        if self._size is not None:
            at = self._size - len(self._buffer)
            self._buffer += view[:at]
            if len(self._buffer) < self._size:
                return frames
            frames.append(self._taken())
        end = len(view)
        while end - at >= _SIZE_BYTES:
            size = self._checked(bytes(view[at : at + _SIZE_BYTES]))
            start, at = at + _SIZE_BYTES, at + _SIZE_BYTES + size
            if at > end:
                self._size = size
                self._buffer += view[start:]
                return frames
            frames.append(view[start:at])
        self._head = bytes(view[at:])
        return frames

    def _taken(self) -> memoryview:
        frame = memoryview(self._buffer).toreadonly()
        self._buffer, self._size = bytearray(), None
        return frame

    def _checked(self, head: bytes) -> int:
        size = int.from_bytes(head, "big", signed=True)
        if 0 <= size <= self.bytes_max:
            return size
        for start, protocol in _OTHER_PROTOCOLS.items():
            if head.startswith(start):
                raise Malformed(f"a frame of {size} bytes: its beginning looks like {protocol}")
        raise Malformed(f"a frame of {size} bytes; at most {self.bytes_max} are allowed")
