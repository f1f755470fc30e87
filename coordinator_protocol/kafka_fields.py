"""Kafka's plain field layouts, as its embedded formats use them: big-endian numbers, strings and lists with a length.

Only for bytes that Kafka's own clients must understand; everything else of ours is protobuf.

Source: Kafka's protocol guide, "Protocol Primitive Types" (non-flexible versions).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

from coordinator_protocol.errors import ErrorCode, Refused

FieldT = TypeVar("FieldT")

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_STRING_BYTES_MAX: Final = 2**15 - 1
_NULL: Final = -1


class FieldReader:
    """Reads fields one after the other; what is left at the end is for later versions.

    Every method raises Refused (INVALID_REQUEST), with the field and the byte it starts at, where the bytes do not hold
    the field. A length is checked against the bytes that are there before anything of that length is made.
    """

    __slots__ = ("_at", "_buffer", "_what")

    def __init__(self, what: str, buffer: bytes) -> None:
        self._what = what
        self._buffer = buffer
        self._at = 0

    def int16(self, name: str) -> int:
        value: int
        (value,) = _INT16.unpack(self._next(_INT16.size, name))
        return value

    def int32(self, name: str) -> int:
        value: int
        (value,) = _INT32.unpack(self._next(_INT32.size, name))
        return value

    def string(self, name: str) -> str:
        """Read a string that must not be null."""
        text = self.nullable_string(name)
        if text is None:
            raise self.malformed(name, "it is null and must not be")
        return text

    def nullable_string(self, name: str) -> str | None:
        size = self.int16(name)
        if size == _NULL:
            return None
        encoded = self._next(size, name)
        try:
            return encoded.decode()
        except UnicodeDecodeError:
            raise self.malformed(name, f"its {size} bytes are not UTF-8") from None

    def nullable_bytes(self, name: str) -> bytes | None:
        size = self.int32(name)
        return None if size == _NULL else self._next(size, name)

    def list_of(self, read: Callable[[str], FieldT], name: str) -> list[FieldT]:
        """Read a list of fields that take at least two bytes each."""
        count = self.int32(name)
        left = len(self._buffer) - self._at
        if not 0 <= count <= left // _INT16.size:
            raise self.malformed(name, f"it should hold {count} entries, and {left} bytes are left")
        return [read(name) for _ in range(count)]

    def int32_list(self, name: str) -> tuple[int, ...]:
        count = self.int32(name)
        if count < 0:
            raise self.malformed(name, f"it should hold {count} entries")
        return struct.unpack(f">{count}i", self._next(_INT32.size * count, name))

    def topic_partitions(self, name: str) -> dict[str, tuple[int, ...]]:
        """Read partitions by topic, both ascending. A topic that comes twice is read as one; one without partitions is
        dropped."""
        found: dict[str, set[int]] = {}
        for topic, partitions in self.list_of(self._topic_partitions, name):
            found.setdefault(topic, set()).update(partitions)
        return {topic: tuple(sorted(partitions)) for topic, partitions in found.items() if partitions}

    def malformed(self, name: str, why: str) -> Refused:
        """Return the error to raise about a field."""
        return Refused(
            ErrorCode.INVALID_REQUEST,
            f"not a {self._what}: its {name}, before byte {self._at} of {len(self._buffer)}, is wrong: {why}",
        )

    def _topic_partitions(self, name: str) -> tuple[str, tuple[int, ...]]:
        return self.string(name), self.int32_list(name)

    def _next(self, size: int, name: str) -> bytes:
        start, end = self._at, self._at + size
        if size < 0 or end > len(self._buffer):
            raise self.malformed(name, f"it should take {size} bytes, and {len(self._buffer) - start} are left")
        self._at = end
        return self._buffer[start:end]


def pack_int16(value: int) -> bytes:
    return _INT16.pack(value)


def pack_int32(value: int) -> bytes:
    return _INT32.pack(value)


def pack_string(text: str | None) -> bytes:
    """Return a string with its length before it. Raises: Refused (INVALID_REQUEST) where the text takes more than
    32,767 bytes of UTF-8."""
    if text is None:
        return _INT16.pack(_NULL)
    encoded = text.encode()
    if len(encoded) > _STRING_BYTES_MAX:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"the string {text[:40]!r}... takes {len(encoded)} bytes and Kafka's layout allows {_STRING_BYTES_MAX}",
        )
    return _INT16.pack(len(encoded)) + encoded


def pack_bytes(value: bytes | None) -> bytes:
    return _INT32.pack(_NULL) if value is None else _INT32.pack(len(value)) + value


def pack_list(items: Sequence[bytes]) -> bytes:
    """Return a list of packed fields with their number before it."""
    return b"".join((_INT32.pack(len(items)), *items))


def pack_topic_partitions(partitions: Mapping[str, Sequence[int]]) -> bytes:
    """Return a list of topics with their partitions, both ascending, so that equal sets are equal bytes."""
    return pack_list(
        [
            pack_string(topic)
            + struct.pack(f">i{len(partitions[topic])}i", len(partitions[topic]), *sorted(partitions[topic]))
            for topic in sorted(partitions)
        ]
    )
