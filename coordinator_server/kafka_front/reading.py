"""Shared parts of the decoders: long lengths and texts, tagged fields, refusals.

A reader takes the data, an offset and the name of the field, and returns the value and the offset behind it. All raise
Malformed. IndexError and the error of struct say that the data ends too early; `read_bytes` and `read_view` turn them
into Malformed.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias, TypeVar

from coordinator_server.kafka_front.malformed import Malformed

T = TypeVar("T")
Data: TypeAlias = bytes | memoryview
Decode: TypeAlias = Callable[[bytes, int], tuple[T, int]]
DecodeView: TypeAlias = Callable[[memoryview, int], tuple[T, int]]
_SHORT: Final = struct.Struct(">h").unpack_from
STRING_BYTES_MAX: Final = 32_767
_VARINT_SHIFT_MAX: Final = 28


def read_bytes(name: str, decoders: Mapping[int, Decode[T]], body: memoryview, version: int) -> T:
    """Return the message that is the whole body. It keeps no part of the body alive."""
    return _read(name, decoders[version], bytes(body), version)


def read_view(name: str, decoders: Mapping[int, DecodeView[T]], body: memoryview, version: int) -> T:
    """Return the message that is the whole body. Its records are views of the body."""
    return _read(name, decoders[version], body, version)


DataT = TypeVar("DataT", bytes, memoryview)


def _read(name: str, decode: Callable[[DataT, int], tuple[T, int]], data: DataT, version: int) -> T:
    try:
        message, at = decode(data, 0)
    except (IndexError, struct.error):
        raise Malformed(f"{name} version {version}: the body ends within a field") from None
    except Malformed as error:
        raise Malformed(f"{name} version {version}: {error}") from None
    if at > len(data):
        raise Malformed(f"{name} version {version}: the body ends within a field")
    # As in Kafka, bytes after the last field are ignored: librdkafka sends three with Metadata.
    return message


def unsigned_varint(data: Data, at: int) -> tuple[int, int]:
    """Return an unsigned integer of up to 31 bits, in groups of 7 bits, the lowest first."""
    byte = data[at]
    if byte < 0x80:
        return byte, at + 1
    value, shift = byte & 0x7F, 7
    while True:
        at += 1
        byte = data[at]
        value |= (byte & 0x7F) << shift
        if value >> 31 or shift > _VARINT_SHIFT_MAX:
            raise Malformed("a variable-length integer has more than 31 bits")
        if byte < 0x80:
            return value, at + 1
        shift += 7


def string(data: Data, at: int, name: str) -> tuple[str, int]:
    """Return a text whose length has 16 bits."""
    (length,) = _SHORT(data, at)
    return _text(data, at + 2, length, name)


def compact_string(data: Data, at: int, name: str) -> tuple[str, int]:
    """Return a text whose length has variable size."""
    length, at = unsigned_varint(data, at)
    if length - 1 > STRING_BYTES_MAX:
        raise Malformed(f"{name}: a text of {length - 1} bytes")
    return _text(data, at, length - 1, name)


def compact_nullable_string(data: Data, at: int, name: str) -> tuple[str | None, int]:
    """Return a text, or None."""
    return (None, at + 1) if data[at] == 0 else compact_string(data, at, name)


def _text(data: Data, at: int, length: int, name: str) -> tuple[str, int]:
    stop = at + length
    if length < 0 or stop > len(data):
        raise bad_length(name, length, len(data) - at)
    try:
        return str(data[at:stop], "utf-8"), stop
    except UnicodeDecodeError as error:
        raise not_utf8(name, error) from None


def compact_bytes(data: bytes, at: int, name: str) -> tuple[bytes, int]:
    """Return bytes whose length has variable size."""
    length, at = unsigned_varint(data, at)
    stop = at + length - 1
    if length == 0 or stop > len(data):
        raise bad_length(name, length - 1, len(data) - at)
    return data[at:stop], stop


def nullable_records(data: memoryview, at: int, name: str) -> tuple[memoryview | None, int]:
    """Return a view of records whose length has 32 bits, or None."""
    length = int.from_bytes(data[at : at + 4], "big", signed=True)
    at += 4
    if length == -1 and at <= len(data):
        return None, at
    if length < 0 or at + length > len(data):
        raise bad_length(name, length, len(data) - at)
    return data[at : at + length], at + length


def compact_nullable_records(data: memoryview, at: int, name: str) -> tuple[memoryview | None, int]:
    """Return a view of records whose length has variable size, or None."""
    length, at = unsigned_varint(data, at)
    if length == 0:
        return None, at
    stop = at + length - 1
    if stop > len(data):
        raise bad_length(name, length - 1, len(data) - at)
    return data[at:stop], stop


def compact_count(data: Data, at: int, item_bytes_min: int, name: str) -> tuple[int, int]:
    """Return the count of an array, which the rest of the data has room for."""
    count, at = unsigned_varint(data, at)
    if count == 0 or (count - 1) * item_bytes_min > len(data) - at:
        raise bad_count(name, count - 1, len(data) - at)
    return count - 1, at


def tag_head(data: Data, at: int, last: int) -> tuple[int, int, int]:
    """Return tag, offset of the content and offset behind it. Tags ascend from `last`, as KIP-482 has it."""
    tag, at = unsigned_varint(data, at)
    size, at = unsigned_varint(data, at)
    if tag <= last:
        raise Malformed(f"tag {tag} of a field follows tag {last}")
    if at + size > len(data):
        raise bad_length(f"tag {tag}", size, len(data) - at)
    return tag, at, at + size


def skip_tags(data: Data, at: int) -> int:
    """Return the offset behind tagged fields of which none is known."""
    count, at = unsigned_varint(data, at)
    last = -1
    for _ in range(count):
        last, _start, at = tag_head(data, at, last)
    return at


def bad_length(name: str, length: int, left: int) -> Malformed:
    """Return the refusal of a length."""
    if length == -1:
        return Malformed(f"{name} is null")
    return Malformed(f"{name}: a length of {length} bytes, with {left} left")


def bad_count(name: str, count: int, left: int) -> Malformed:
    """Return the refusal of the count of an array."""
    if count == -1:
        return Malformed(f"{name} is null")
    return Malformed(f"{name}: a count of {count}, with {left} bytes left")


def bad_marker(name: str, marker: int) -> Malformed:
    """Return the refusal of a marker other than null and present."""
    return Malformed(f"{name}: a marker of {marker}, neither null nor present")


def bad_tag_size(tag: int) -> Malformed:
    """Return the refusal of a tagged field with a wrong size."""
    return Malformed(f"tag {tag} of a field has another size than it states")


def not_utf8(name: str, error: UnicodeDecodeError) -> Malformed:
    """Return the refusal of a text."""
    return Malformed(f"{name}: text that is not UTF-8 ({error.reason} at byte {error.start})")
