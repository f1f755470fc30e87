"""Protobuf's wire format by hand, for the few messages with bytes that are too large to be copied.

A field of bytes, or of a message, is its tag, its length and its content; a message is its fields one after the other.
Source: protobuf's encoding guide.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

Buffer: TypeAlias = bytes | memoryview

_NUMBER: Final = 0
_LENGTH_DELIMITED: Final = 2
_KIND: Final = 7
"""Bits of a tag with the wire type, which tells how the field ends."""
_MORE: Final = 0x80
"""Set in every byte of a number but its last one; the other bits are digits."""
_BITS: Final = 0x7F
_SHIFT_MAX: Final = 56
"""Greatest shift of a digit that another one may follow: a number has ten digits at most."""
_FIXED_BYTES: Final = {1: 8, 5: 4}
"""Size of a value by its wire type."""
_GROUP: Final = (3, 4)
"""Beginning and end of a group, an old way to write a message: parsers take both for fields without content."""


class Pieces:
    """A message in pieces that were not joined, for senders that can send them one after the other."""

    __slots__ = ("_size_bytes", "parts")

    def __init__(self, parts: Sequence[Buffer], size_bytes: int) -> None:
        """`parts` are `bytes` and views of such, with `size_bytes` bytes in total."""
        self.parts: Final = list(parts)
        self._size_bytes = size_bytes

    def __len__(self) -> int:
        return self._size_bytes

    def __add__(self, more: bytes) -> Pieces:
        """Return the message with more fields after it, as for bytes."""
        return Pieces([*self.parts, more], self._size_bytes + len(more))


def bytes_field(number: int) -> bytes:
    """Return the tag of a field of bytes."""
    return varint(number << 3 | _LENGTH_DELIMITED)


def field_prefix(tag: bytes, size: int) -> bytes:
    """Return the bytes before `size` bytes of content."""
    return tag + varint(size)


def split(message: Buffer, start: int, end: int, tag: bytes) -> tuple[bytes, list[tuple[int, int]]]:
    """Split the message between `start` and `end`: return its other fields, joined, and the range of the content of
    each field with this tag.

    Raises: ValueError if the bytes are no message."""
    contents: list[tuple[int, int]] = []
    others: list[Buffer] = []
    at = began = others_from = start
    tag_begins, tag_bytes = tag[0], len(tag)
    try:
        while at < end:
            began = at
            if message[at] == tag_begins and (tag_bytes == 1 or message[at : at + tag_bytes] == tag):
                size, content = _length(message, at + tag_bytes)
                at = content + size
                contents.append((content, at))
                others.append(message[others_from:began])
                others_from = at
            else:
                at = _behind(message, at)
    except (IndexError, KeyError) as error:
        raise ValueError(f"no field begins at byte {began}") from error
    if at != end:
        raise ValueError(f"the field at byte {began} goes beyond the end of its message")
    others.append(message[others_from:end])
    return b"".join(others), contents


def pieces(message: bytes, bytes_max: int) -> Iterator[tuple[int, int]]:
    """Cut a message between its fields, and yield the start and end of each piece.

    A piece is a message of `bytes_max` at most, or a single field that is larger.

    Raises: ValueError if the bytes are no message, after all pieces before."""
    start = at = began = 0
    try:
        while at < len(message):
            began = at
            at = _behind(message, at)
            if at - start > bytes_max and began > start:
                yield start, began
                start = began
    except (IndexError, KeyError) as error:
        raise ValueError(f"no field begins at byte {began}") from error
    if at != len(message):
        raise ValueError(f"the field at byte {began} goes beyond the end of its message")
    yield start, at


def open_field(message: bytes, at: int) -> tuple[int, int]:
    """Return the number of the field of bytes at `at`, and the start of its content. Raises: ValueError."""
    tag, at = _length(message, at)
    _, at = _length(message, at)
    return tag >> 3, at


def fields(message: Buffer, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield the fields of the message between `start` and `end`, in order: number, and start and end of the content.

    The content is empty for fields that are neither bytes nor a message. Raises: ValueError if the bytes are no
    message."""
    at = start
    try:
        while at < end:
            tag, content = _length(message, at)
            kind = tag & _KIND
            if kind == _LENGTH_DELIMITED:
                size, content = _length(message, content)
                at = content + size
            elif kind in _GROUP:
                at = content
            else:
                at = content = _behind(message, at)
            if at > end:
                raise ValueError(f"the field before byte {at} goes beyond the end of its message")
            yield tag >> 3, content, at
    except (IndexError, KeyError) as error:
        raise ValueError(f"no field begins at byte {at}") from error


def has_more_fields(message: bytes, start: int, end: int, count_max: int) -> bool:
    """Return True if the message between `start` and `end` has more than `count_max` fields.

    Stops looking once it has, or at bytes that are no field."""
    at = start
    try:
        for _ in range(count_max):
            if at >= end:
                return False
            at = _length(message, at)[1] if message[at] & _KIND in _GROUP else _behind(message, at)
    except (IndexError, KeyError, ValueError):
        return False
    return at < end


def _behind(message: Buffer, at: int) -> int:
    """Return the end of the field that begins at `at`."""
    kind = message[at] & _KIND
    while message[at] >= _MORE:
        at += 1
    at += 1
    if kind == _NUMBER:
        while message[at] >= _MORE:
            at += 1
        return at + 1
    if kind == _LENGTH_DELIMITED:
        size, at = _length(message, at)
        return at + size
    return at + _FIXED_BYTES[kind]


def _length(message: Buffer, at: int) -> tuple[int, int]:
    """Return the number that begins at `at`, and its end. Raises: ValueError."""
    value = shift = 0
    while (byte := message[at]) >= _MORE:
        if shift > _SHIFT_MAX:
            # Each digit costs as much as all digits before it: a megabyte of them would keep a processor busy for
            # minutes.
            raise ValueError(f"the length before byte {at} has more digits than any number")
        value |= (byte & _BITS) << shift
        shift += 7
        at += 1
    return value | byte << shift, at + 1


def varint(value: int) -> bytes:
    """Return a number that is not negative, as protobuf writes it."""
    encoded = bytearray()
    while value >= _MORE:
        encoded.append(value & _BITS | _MORE)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
