"""Records out of an Arrow payload, without the Arrow library: for the server, which does not carry it."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Final

from coordinator_protocol.arrow_payload import ArrowBuffers, arrow_buffers
from coordinator_protocol.kafka_records import PlacedRecord

_KEY_NULLS: Final = 0
_VALUE_NULLS: Final = 1
_HEADERS_NULLS: Final = 3
_HEADER_VALUE_NULLS: Final = 6
"""Positions of arrays that may have nulls, among all arrays."""
_KEY: Final = 0
_VALUE: Final = 3
_TIMES: Final = 7
_HEADERS: Final = 8
_HEADER_KEY: Final = 11
_HEADER_VALUE: Final = 14
_DELTAS: Final = 18
"""Positions of the first buffer of an array, and of the two that are numbers without more, among all buffers."""


def placed_arrow_records(payload: bytes, *, has_deltas: bool) -> list[PlacedRecord]:
    """Return the records of an Arrow payload. They are consecutive from 0 on unless each `has_deltas`.

    Raises: NotArrow."""
    found = arrow_buffers(payload, has_deltas=has_deltas)
    count = found.row_count
    keys = _contents(payload, found, _KEY, _KEY_NULLS, count)
    values = _contents(payload, found, _VALUE, _VALUE_NULLS, count)
    times_ms = struct.unpack_from(f"<{count}q", payload, found.places[_TIMES][0])
    places: Sequence[int] = range(count)
    if has_deltas:
        places = struct.unpack_from(f"<{count}i", payload, found.places[_DELTAS][0])
    headers_end = _numbers(payload, found, _HEADERS + 1, count)
    if headers_end[0] == headers_end[-1]:
        return [(*record, ()) for record in zip(places, times_ms, keys, values, strict=True)]
    header_count = headers_end[-1]
    names = _contents(payload, found, _HEADER_KEY, None, header_count)
    contents = _contents(payload, found, _HEADER_VALUE, _HEADER_VALUE_NULLS, header_count)
    pairs = [(name or b"", content) for name, content in zip(names, contents, strict=True)]
    has_headers = _validity(payload, found, _HEADERS, _HEADERS_NULLS, count)
    headers = [
        tuple(pairs[headers_end[row] : headers_end[row + 1]]) if is_there else ()
        for row, is_there in enumerate(has_headers)
    ]
    return list(zip(places, times_ms, keys, values, headers, strict=True))


def _contents(
    payload: bytes, found: ArrowBuffers, buffer: int, nulls: int | None, count: int
) -> Sequence[bytes | None]:
    """Return the elements of an array of bytes; None for a null."""
    begin = found.places[buffer + 2][0]
    ends = _numbers(payload, found, buffer + 1, count)
    contents = [payload[begin + ends[row] : begin + ends[row + 1]] for row in range(count)]
    if nulls is None or not found.null_counts[nulls]:
        return contents
    is_there = _validity(payload, found, buffer, nulls, count)
    return [content if there else None for content, there in zip(contents, is_there, strict=True)]


def _numbers(payload: bytes, found: ArrowBuffers, buffer: int, count: int) -> Sequence[int]:
    """Return the offsets of an array of so many elements. An empty array may have none."""
    start, end = found.places[buffer]
    return struct.unpack_from(f"<{count + 1}i", payload, start) if end > start else (0,)


def _validity(payload: bytes, found: ArrowBuffers, buffer: int, nulls: int, count: int) -> Iterator[bool]:
    """Yield for each element of an array whether it is not null."""
    if not found.null_counts[nulls]:
        return iter([True] * count)
    begin = found.places[buffer][0]
    return (bool(payload[begin + (row >> 3)] >> (row & 7) & 1) for row in range(count))
