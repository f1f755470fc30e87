"""Check that a gRPC server listens at an address, or else identify the program there. Only this module of the client
uses sockets.

It connects, by TLS if the client does, greets as HTTP/2 does, reads the first frame and closes. Every gRPC server
answers that, however busy, and no other program does.

Source: RFC 9113, 3.4 (connection preface: the first frame of a server is SETTINGS).
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from typing import Final

from coordinator_client.clock import Clock
from coordinator_client.loops import AsyncioLoop, Loop
from coordinator_client.tls import ALPN, Tls, TlsProblem, new_context, why_no_handshake, why_silent

_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\x04\0\0\0\0\0"
"""Connection preface of an HTTP/2 client, with SETTINGS that change nothing."""

_FRAME_HEADER_BYTES: Final = 9
_SETTINGS: Final = 4

Place = tuple[str, int] | str
"""A host and a port, or the path of a Unix socket."""


def place_of(endpoint: str) -> Place | None:
    """Return the address to connect to; None if only gRPC's resolvers know it."""
    if endpoint.startswith("unix-abstract:"):
        return "\0" + endpoint.removeprefix("unix-abstract:")
    if endpoint.startswith("unix:"):
        return endpoint.removeprefix("unix:").removeprefix("//")
    for scheme in ("dns:", "ipv4:", "ipv6:"):
        endpoint = endpoint.removeprefix(scheme)
    host, _, port = endpoint.rpartition(":")
    if not host or not port.isdecimal() or "," in host or "/" in host:
        return None
    return host.removeprefix("[").removesuffix("]"), int(port)


def what_is_wrong(opening: bytes) -> str | None:
    """Return a description of the program that sent these first bytes; None for an HTTP/2 server."""
    if not opening:
        return (
            "something listens there and closes the connection without a word: it may want TLS (name a CA file), or"
            " take no more"
        )
    # Some servers answer an unknown version of HTTP with a page and no status line.
    if opening.startswith((b"HTTP/", b"<")):
        return "an HTTP/1 server listens there, such as a page for people or for metrics: this is another port"
    if opening.startswith(b"\x15\x03"):
        return "a TLS server listens there: name the CA file to check it with"
    if len(opening) < _FRAME_HEADER_BYTES or opening[3] != _SETTINGS or any(opening[5:9]):
        return f"something listens there that does not speak HTTP/2: it began with {opening[:_FRAME_HEADER_BYTES]!r}"
    return None


def look_at(endpoint: str, clock: Clock, tls: Tls | None = None) -> ServerLook | None:
    """Return a check of this address; None if only gRPC's resolvers know where it is."""
    place = place_of(endpoint)
    return None if place is None else ServerLook(place, clock, tls)


class ServerLook:
    """Connects, with TLS if requested, greets, reads the first frame, and closes."""

    def __init__(self, place: Place, clock: Clock, tls: Tls | None = None) -> None:
        self._place = place
        self._clock = clock
        self._tls = tls

    def now(self, timeout_ms: int) -> str | None:
        ends_ms = self._clock.monotonic_ms() + timeout_ms
        said = "nothing answers there"
        try:
            with self._plug(ends_ms) as plug:
                said = "something accepts connections there and says nothing"
                return self._greet(plug, ends_ms) if self._tls is None else self._greet_safely(plug, ends_ms, self._tls)
        except TimeoutError:
            return said
        except TlsProblem as problem:
            return str(problem)
        except OSError as error:
            return error.strerror or str(error)
        except UnicodeError as error:
            # The name cannot be that of a host, such as `a..b`, so it was not even looked up.
            return f"it is no name of a host: {error}"

    def soon(self, loop: Loop, timeout_ms: int, on_done: Callable[[str | None], None]) -> None:
        assert isinstance(loop, AsyncioLoop), "sockets need an asyncio loop"
        # Runs in a thread of the loop's pool, because a name lookup blocks; it has its own time limit.
        future = loop.asyncio_loop.run_in_executor(None, self.now, timeout_ms)
        future.add_done_callback(lambda done: None if done.cancelled() else on_done(done.result()))

    def _greet(self, plug: socket.socket, ends_ms: int) -> str | None:
        plug.sendall(_PREFACE)
        return what_is_wrong(self._opening(plug, ends_ms))

    def _greet_safely(self, plug: socket.socket, ends_ms: int, tls: Tls) -> str | None:
        assert not isinstance(self._place, str), "a Unix socket has no TLS"
        host = tls.server_name or self._place[0]
        plug.settimeout(self._left_seconds(ends_ms))
        try:
            safe = new_context(tls).wrap_socket(plug, server_hostname=host)
        except ssl.SSLError as error:
            return why_no_handshake(error, host)
        except ConnectionResetError:
            return "something listens there and cuts the connection in the TLS handshake"
        with safe:
            if safe.selected_alpn_protocol() != ALPN:
                return "a TLS server listens there that does not speak HTTP/2, and so no gRPC"
            try:
                safe.sendall(_PREFACE)
                opening = self._opening(safe, ends_ms)
            except ssl.SSLError:
                opening = b""
            return what_is_wrong(opening) if opening else why_silent(tls)

    def _plug(self, ends_ms: int) -> socket.socket:
        if not isinstance(self._place, str):
            return socket.create_connection(self._place, timeout=self._left_seconds(ends_ms))
        plug = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            plug.settimeout(self._left_seconds(ends_ms))
            plug.connect(self._place)
        except OSError:
            plug.close()
            raise
        return plug

    def _opening(self, plug: socket.socket, ends_ms: int) -> bytes:
        opening = b""
        while len(opening) < _FRAME_HEADER_BYTES:
            plug.settimeout(self._left_seconds(ends_ms))
            try:
                more = plug.recv(_FRAME_HEADER_BYTES - len(opening))
            except ConnectionResetError:
                break
            if not more:
                break
            opening += more
        return opening

    def _left_seconds(self, ends_ms: int) -> float:
        return max(1, ends_ms - self._clock.monotonic_ms()) / 1_000
