"""A peer that speaks HTTP/2 by hand, and so can do what client libraries do not, such as to send requests and never
read.

For measurements and tests of a server's resistance. Use it only against a server of our own on this machine.
"""

from __future__ import annotations

import socket
import ssl
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Final, Self

HOST: Final = "127.0.0.1"

DATA: Final = 0
HEADERS: Final = 1
RST_STREAM: Final = 3
SETTINGS: Final = 4
PING: Final = 6
GOAWAY: Final = 7
WINDOW_UPDATE: Final = 8
CONTINUATION: Final = 9

END_STREAM: Final = 1
ACK: Final = 1
END_HEADERS: Final = 4

_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_CANCEL: Final = struct.pack(">I", 8)
_WINDOW_MAX: Final = (1 << 31) - 1
_WINDOW_DEFAULT: Final = 65_535
_INITIAL_WINDOW_SETTING: Final = 4
_INTEGER_PREFIX: Final = 127
_READ_BYTES: Final = 1 << 16
_FRAME_BYTES_MAX: Final = 1 << 14
_HEADER_BYTES: Final = 9
_NOT_NOW: Final = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
"""Errors of a non-blocking socket that would block."""

STREAMS_AT_ONCE: Final = 100
"""Number of streams in one write of a flood."""

WithStream = Callable[[int], bytes]
"""Function that returns the frames of one stream, by its number."""


def http2_over_tls(ca_file: Path) -> ssl.SSLContext:
    """Return a TLS context for a peer that checks the server against this CA and speaks HTTP/2."""
    tls = ssl.create_default_context(cafile=ca_file)
    tls.set_alpn_protocols(["h2"])
    return tls


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """Return a frame of HTTP/2."""
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def request_headers(method: str, extra: tuple[tuple[str, str], ...] = ()) -> bytes:
    """Return the header block of a call of a method with this full name."""
    fields = (
        (":method", "POST"),
        (":scheme", "http"),
        (":path", method),
        (":authority", "here"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
        *extra,
    )
    return b"".join(_literal(name.encode(), value.encode()) for name, value in fields)


def call(stream: int, method: str, body: bytes, extra: tuple[tuple[str, str], ...] = ()) -> bytes:
    """Return the frames of a whole unary call."""
    return frame(HEADERS, END_HEADERS, stream, request_headers(method, extra)) + frame(
        DATA, END_STREAM, stream, message(body)
    )


def message(body: bytes) -> bytes:
    """Return a message with gRPC's framing."""
    return b"\0" + struct.pack(">I", len(body)) + body


def connected(port: int, by: str = HOST) -> socket.socket:
    """Return a connection from this local address, which a server treats as a host. Raises OSError."""
    return socket.create_connection((HOST, port), source_address=(by, 0))


class RawPeer:
    """One connection. Its windows are the defaults of HTTP/2 unless set: 65,535 bytes, for all streams together."""

    def __init__(
        self,
        port: int,
        *,
        stream_window_bytes: int = _WINDOW_DEFAULT,
        tls: ssl.SSLContext | None = None,
        by: str = HOST,
    ) -> None:
        """Connect from the local address `by`, with TLS if there is a context. Raises OSError."""
        self._socket = connected(port, by)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            self._socket = tls.wrap_socket(self._socket, server_hostname=HOST)
        self._heard = _Heard()
        setting = struct.pack(">HI", _INITIAL_WINDOW_SETTING, stream_window_bytes)
        self.send(_PREFACE + frame(SETTINGS, 0, 0, setting))

    def begin(self, stream: int, headers: bytes, part: bytes) -> None:
        """Begin a call and send this part of its request, at the pace of the other end, until that refuses more of it.
        Raises OSError."""
        self.send(frame(HEADERS, END_HEADERS, stream, headers))
        for start in range(0, len(part), _FRAME_BYTES_MAX):
            piece = part[start : start + _FRAME_BYTES_MAX]
            while not self._heard.takes(stream, len(piece)):
                self._heard.hear(self._socket.recv(_READ_BYTES))
            if stream in self._heard.ended:
                break
            self.send(frame(DATA, 0, stream, piece))

    def send(self, frames: bytes) -> None:
        """Send all frames, and wait as long as that needs. Raises OSError."""
        self._socket.sendall(frames)

    def open_window(self, stream: int = 0) -> None:
        """Allow the other end to send as much as HTTP/2 can express: on one stream, or on the connection."""
        self.send(frame(WINDOW_UPDATE, 0, stream, struct.pack(">I", _WINDOW_MAX - _WINDOW_DEFAULT)))

    def read_until_closed(self, seconds_max: float) -> bool:
        """Read and discard data. Returns True once the other end has closed, False if it does not."""
        until = time.monotonic() + seconds_max
        try:
            while (left := until - time.monotonic()) > 0:
                self._socket.settimeout(left)
                if not self._socket.recv(_READ_BYTES):
                    return True
        except TimeoutError:
            return False
        except OSError:
            return True
        return False

    def flood(self, frames: Iterator[bytes], seconds_max: float) -> bool:
        """Send as fast as the other end accepts, and discard its data, until it closes (True) or the time is over."""
        until = time.monotonic() + seconds_max
        self._socket.setblocking(False)
        waiting = b""
        while time.monotonic() < until:
            waiting = waiting or next(frames, b"")
            if not waiting:
                return self.read_until_closed(until - time.monotonic())
            try:
                waiting = waiting[self._socket.send(waiting) :]
            except _NOT_NOW:
                time.sleep(0.001)
            except OSError:
                return True
            if self._has_closed():
                return True
        return False

    def _has_closed(self) -> bool:
        try:
            return not self._socket.recv(_READ_BYTES)
        except _NOT_NOW:
            return False
        except OSError:
            return True

    def shut(self) -> None:
        """Close both directions, even while another thread reads."""
        self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close without a GOAWAY frame."""
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()


class _Heard:
    """Flow control and resets from the other end. Its settings do not count before they are acknowledged."""

    def __init__(self) -> None:
        self.ended: set[int] = set()
        """Streams of which the other end wants no more."""
        self._windows = {0: _WINDOW_DEFAULT}
        self._bytes = b""

    def takes(self, stream: int, size: int) -> bool:
        """Return True if this many bytes may be sent now; they then count as sent."""
        if stream in self.ended:
            return True
        if size > min(self._windows.setdefault(stream, _WINDOW_DEFAULT), self._windows[0]):
            return False
        for each in (0, stream):
            self._windows[each] -= size
        return True

    def hear(self, received: bytes) -> None:
        """Process received bytes. Raises ConnectionError once the other end has ended the connection."""
        self._bytes += received
        while len(self._bytes) >= _HEADER_BYTES:
            size, kind = int.from_bytes(self._bytes[:3]), self._bytes[3]
            end = _HEADER_BYTES + size
            if len(self._bytes) < end:
                break
            self._judge(kind, int.from_bytes(self._bytes[5:9]), self._bytes[_HEADER_BYTES:end])
            self._bytes = self._bytes[end:]
        if not received:
            raise ConnectionResetError("the other end has closed")

    def _judge(self, kind: int, stream: int, payload: bytes) -> None:
        match kind:
            case _ if kind == WINDOW_UPDATE:
                self._windows[stream] = self._windows.get(stream, _WINDOW_DEFAULT) + int.from_bytes(payload)
            case _ if kind == RST_STREAM:
                self.ended.add(stream)
            case _ if kind == GOAWAY:
                raise ConnectionAbortedError(payload[8:].decode(errors="replace"))


def floods(method: str, extra: tuple[tuple[str, str], ...] = ()) -> dict[str, Iterator[bytes]]:
    """Return, by name, endless sequences of frames that cost a server work. `extra` are further headers of calls."""
    headers = request_headers(method, extra)
    begin = frame(HEADERS, END_HEADERS, 1, headers)
    return {
        "resets": _streams(lambda n: frame(HEADERS, END_HEADERS, n, headers) + frame(RST_STREAM, 0, n, _CANCEL)),
        "streams without data": _streams(lambda n: frame(HEADERS, END_HEADERS, n, headers)),
        "calls that are not read": _streams(lambda n: call(n, method, b"", extra)),
        "pings": _same(frame(PING, 0, 0, bytes(8))),
        "settings": _same(frame(SETTINGS, 0, 0)),
        "window updates": _same(frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", 1))),
        "empty data": _after(begin, frame(DATA, 0, 1)),
        "small pieces": _after(begin + frame(DATA, 0, 1, message(b"x" * 65_535)[:5]), frame(DATA, 0, 1, b"x")),
        "continuations": _after(frame(HEADERS, 0, 1, headers), frame(CONTINUATION, 0, 1, _literal(b"x-a", b"y" * 999))),
    }


def _streams(frames: WithStream) -> Iterator[bytes]:
    first = 1
    while first < _WINDOW_MAX - 2 * STREAMS_AT_ONCE:
        yield b"".join(frames(first + 2 * index) for index in range(STREAMS_AT_ONCE))
        first += 2 * STREAMS_AT_ONCE


def _same(frames: bytes) -> Iterator[bytes]:
    many = frames * STREAMS_AT_ONCE
    while True:
        yield many


def _after(first: bytes, frames: bytes) -> Iterator[bytes]:
    yield first
    yield from _same(frames)


def _literal(name: bytes, value: bytes) -> bytes:
    return b"\0" + _integer(len(name)) + name + _integer(len(value)) + value


def _integer(number: int) -> bytes:
    if number < _INTEGER_PREFIX:
        return bytes([number])
    encoded, number = bytes([_INTEGER_PREFIX]), number - _INTEGER_PREFIX
    while number > _INTEGER_PREFIX:
        encoded, number = encoded + bytes([number % 128 + 128]), number // 128
    return encoded + bytes([number])
