"""Headers of requests and responses: the part of a frame before the body.

A request's header has version 1 or, in flexible versions, 2, which adds tagged fields. Its client id has a length of 16
bits in both. A response's header is the correlation id, followed in flexible versions by tagged fields. That of
ApiVersions never has them, because a client asks for it before it knows any version.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from msgspec import Struct

from coordinator_server.kafka_front.malformed import Malformed
from coordinator_server.kafka_front.reading import bad_length, not_utf8, skip_tags

_START: Final = struct.Struct(">hhi")
_CLIENT_ID_START: Final = struct.Struct(">h")
_CORRELATION_ID: Final = struct.Struct(">i").pack
_FLEXIBLE: Final = struct.Struct(">ix").pack


class RequestStart(NamedTuple):
    """The part of a header that is the same in all its versions. It decides on the version of the rest."""

    api_key: int
    api_version: int
    correlation_id: int


class RequestHeader(Struct, frozen=True, gc=False):
    """The header of a request."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None = None


def request_start(frame: memoryview) -> RequestStart:
    """Return the beginning of a header, enough to refuse an unknown API or version. Raises: Malformed."""
    if len(frame) < _START.size:
        raise Malformed(f"a frame of {len(frame)} bytes has no room for a header")
    return RequestStart(*_START.unpack_from(frame))


def request_header(frame: memoryview, *, is_flexible: bool) -> tuple[RequestHeader, memoryview]:
    """Return header and body of a request whose version is known. Raises: Malformed."""
    start = request_start(frame)
    try:
        client_id, at = _client_id(frame, _START.size)
        if is_flexible:
            at = skip_tags(frame, at)
    except (IndexError, struct.error):
        raise Malformed("the frame ends within its header") from None
    return RequestHeader(*start, client_id), frame[at:]


def _client_id(frame: memoryview, at: int) -> tuple[str | None, int]:
    (length,) = _CLIENT_ID_START.unpack_from(frame, at)
    at += _CLIENT_ID_START.size
    if length == -1:
        return None, at
    stop = at + length
    if length < 0 or stop > len(frame):
        raise bad_length("client_id", length, len(frame) - at)
    try:
        return str(frame[at:stop], "utf-8"), stop
    except UnicodeDecodeError as error:
        raise not_utf8("client_id", error) from None


def response_header(correlation_id: int, *, is_flexible: bool) -> bytes:
    """Return the header of a response; that of ApiVersions is never flexible."""
    return _FLEXIBLE(correlation_id) if is_flexible else _CORRELATION_ID(correlation_id)
