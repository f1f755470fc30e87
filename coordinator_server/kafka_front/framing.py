"""Frames of a connection: each has its size in 32 bits, and then that many bytes.

Bytes come in pieces of any size. A frame inside one piece is a view of that piece. A frame of several pieces has a
buffer of its own, so bytes are copied a few times at most however small the pieces are. The memory of a frame is never
written again, so records may stay views of it.
"""

from __future__ import annotations

from typing import Final

from coordinator_server.kafka_front.frame_limits import FrameLimits
from coordinator_server.kafka_front.malformed import Malformed, TooLarge

_SIZE_BYTES: Final = 4
_KEY_BYTES: Final = 2
"""A request begins with the key of its API."""
_PLAUSIBLE_BYTES_MAX: Final = 100 << 20
"""Largest size that a request of Kafka's protocol may have; beyond, the bytes are of another protocol. Source: Kafka's
`socket.request.max.bytes`."""
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

    def __init__(self, limits: FrameLimits) -> None:
        self.limits = limits
        """Largest frames. A change applies to sizes that are not yet read."""
        self.number = 0
        """Number of complete frames so far."""
        self._head = b""
        """Beginning of a size."""
        self._buffer = bytearray()
        """Beginning of a frame. It grows with the bytes that come, never by a stated size alone."""
        self._size: int | None = None
        """Size of the frame in the buffer; None between frames."""

    @property
    def held_bytes(self) -> int:
        """Bytes that wait for the rest of their frame, or of its size."""
        return len(self._head) + len(self._buffer)

    def feed(self, data: bytes) -> list[memoryview]:
        """Return the frames that are complete with these bytes, without their sizes.

        Raises Malformed for a negative size, and TooLarge for one above the limit of its API. Nothing can be read after
        that.
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
            self._check_api(self._size, self._buffer)
            if len(self._buffer) < self._size:
                return frames
            frames.append(self._taken())
        end = len(view)
        while end - at >= _SIZE_BYTES:
            size = self._checked(bytes(view[at : at + _SIZE_BYTES]))
            start, at = at + _SIZE_BYTES, at + _SIZE_BYTES + size
            self._check_api(size, view[start:])
            if at > end:
                self._size = size
                self._buffer += view[start:]
                return frames
            frames.append(view[start:at])
            self.number += 1
        self._head = bytes(view[at:])
        return frames

    def _taken(self) -> memoryview:
        frame = memoryview(self._buffer).toreadonly()
        self._buffer, self._size = bytearray(), None
        self.number += 1
        return frame

    def _check_api(self, size: int, begun: bytearray | memoryview) -> None:
        """Check the size of a frame as soon as its API is known. Raises TooLarge."""
        limits = self.limits
        if size <= limits.common_bytes_max or len(begun) < _KEY_BYTES:
            return
        api_key = int.from_bytes(begun[:_KEY_BYTES], "big", signed=True)
        bytes_max = limits.of_api(api_key)
        if size > bytes_max:
            raise TooLarge(f"a frame of {size} bytes for API {api_key}; at most {bytes_max} are allowed")

    def _checked(self, head: bytes) -> int:
        size = int.from_bytes(head, "big", signed=True)
        bytes_max = self.limits.bytes_max
        if 0 <= size <= bytes_max:
            return size
        for start, protocol in _OTHER_PROTOCOLS.items():
            if head.startswith(start):
                raise Malformed(f"a frame of {size} bytes: its beginning looks like {protocol}")
        kind = TooLarge if 0 <= size <= _PLAUSIBLE_BYTES_MAX else Malformed
        raise kind(f"a frame of {size} bytes; at most {bytes_max} are allowed")
