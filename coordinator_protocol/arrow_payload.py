"""Check that bytes are one Arrow record batch of the agreed schema, without the Arrow library.

The server accepts only payloads that every reader can decode. It does not carry Arrow, which is larger than everything
else together. One message of one fixed schema is simple. A description (a flatbuffer) lists the arrays and the places
of their buffers in the body. There are a few rules for the buffers of each array. So the description is read field by
field, and the buffers are checked as in Arrow's own full validation. Where this is stricter than Arrow, it refuses
payloads that no writer makes. A property test checks every payload that passes here with Arrow itself.

Source: the Arrow columnar format, "Encapsulated message format" and "RecordBatch message"; the schema in `log.proto`.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from coordinator_protocol.batch import misplaced_delta

_PREFIX: Final = struct.Struct("<Ii")
"""Start of a message: the continuation mark and the size of the description."""
_CONTINUATION: Final = 0xFFFFFFFF
_ALIGNMENT: Final = 8

_U16: Final = struct.Struct("<H")
_I32: Final = struct.Struct("<i")
_U32: Final = struct.Struct("<I")
_PAIR: Final = struct.Struct("<qq")
"""A node (length, null count) or a buffer (offset, length)."""

# Fields of the tables, by their position in the vtable.
_MESSAGE_VERSION: Final = 0
_MESSAGE_HEADER_TYPE: Final = 1
_MESSAGE_HEADER: Final = 2
_MESSAGE_BODY_LENGTH: Final = 3
_MESSAGE_METADATA: Final = 4
_BATCH_LENGTH: Final = 0
_BATCH_NODES: Final = 1
_BATCH_BUFFERS: Final = 2
_BATCH_COMPRESSION: Final = 3
_BATCH_VARIADIC: Final = 4

_VERSIONS: Final = (3, 4)
"""Metadata versions V4 and V5; a record batch of this schema looks the same in both."""
_HEADER_IS_BATCH: Final = 3

_OFFSET_BYTES: Final = 4
_TIME_BYTES: Final = 8
_CHUNK: Final = 1 << 16
"""Number of offsets checked at a time."""
_NODES: Final = 7
"""Nodes of a record batch: key, value, timestamp_ms, headers, and in headers: header, its key, its value. With
offset_delta there is one more, and two more buffers for it."""
_HEADER_NODE: Final = 4
_TIMES_BUFFER: Final = 7
"""Position of the timestamps among the buffers, after three each for keys and values and their own validity."""
_BUFFERS: Final = 17
"""Buffers of a record batch: three for each array of bytes, two for timestamps and for lists, one for structs."""


class NotArrow(Exception):
    """The bytes are no record batch of the agreed schema; the text has the reason."""


class _Described(Struct, frozen=True):
    """Content of the description of a message."""

    row_count: int
    nodes: list[tuple[int, int]]
    buffers: list[tuple[int, int]]
    body_at: int


def arrow_record_count(payload: bytes, *, headers_max: int | None = None) -> int | None:
    """Return the number of records in an Arrow payload, after checking every offset and text in it.

    None: it has more headers than `headers_max`, and was not checked any further. Raises: NotArrow."""
    described = _described(payload, has_deltas=False)
    if headers_max is not None and described.nodes[_HEADER_NODE][0] > headers_max:
        return None
    _check_arrays(memoryview(payload), described)
    return described.row_count


def placed_arrow_record_count(payload: bytes, last_offset_delta: int) -> int:
    """Return the number of records in an Arrow payload with offset deltas, checked as by `arrow_record_count`.

    The deltas must ascend up to `last_offset_delta`. Raises: NotArrow."""
    described = _described(payload, has_deltas=True)
    deltas = _check_arrays(memoryview(payload), described)
    wrong = misplaced_delta(deltas, last_offset_delta)
    if wrong is not None:
        raise NotArrow(f"its offset deltas do not ascend up to {last_offset_delta}, one is {wrong}")
    return described.row_count


def placed_times(payload: bytes, *, has_deltas: bool) -> tuple[Sequence[int], Sequence[int]]:
    """Return the offset deltas of the records of an Arrow payload, and their timestamps, checked as by
    `arrow_record_count`.

    `has_deltas`: the payload has an offset delta for each record; otherwise the records are consecutive. Raises:
    NotArrow."""
    described = _described(payload, has_deltas=has_deltas)
    deltas = _check_arrays(memoryview(payload), described)
    begin = described.body_at + described.buffers[_TIMES_BUFFER][0]
    times = struct.unpack_from(f"<{described.row_count}q", payload, begin)
    return deltas if has_deltas else range(described.row_count), times


class ArrowBuffers(Struct, frozen=True):
    """Checked buffers of an Arrow payload, for code that reads records out of them."""

    row_count: int
    places: list[tuple[int, int]]
    """Start and end of each buffer in the payload, in the order of the schema. A column has its validity, the offsets
    of variable parts, and the content."""
    null_counts: list[int]
    """Number of nulls of each array; where it is 0, the validity means nothing."""


def arrow_buffers(payload: bytes, *, has_deltas: bool) -> ArrowBuffers:
    """Return the buffers of an Arrow payload, checked as by `arrow_record_count`. Raises: NotArrow."""
    described = _described(payload, has_deltas=has_deltas)
    _check_arrays(memoryview(payload), described)
    begin = described.body_at
    places = [(begin + offset, begin + offset + length) for offset, length in described.buffers]
    return ArrowBuffers(described.row_count, places, [null_count for _length, null_count in described.nodes])


def _described(payload: bytes, *, has_deltas: bool) -> _Described:
    try:
        return _describe(payload, has_deltas=has_deltas)
    except struct.error as error:
        raise NotArrow(f"its description is cut off ({error})") from error


def _describe(payload: bytes, *, has_deltas: bool) -> _Described:
    if len(payload) < _PREFIX.size:
        raise NotArrow(f"a message begins with {_PREFIX.size} bytes and {len(payload)} are there")
    mark, description_bytes = _PREFIX.unpack_from(payload)
    body_at = _PREFIX.size + description_bytes
    if mark != _CONTINUATION or description_bytes <= 0 or body_at % _ALIGNMENT or body_at > len(payload):
        raise NotArrow("no message begins there")
    description = payload[_PREFIX.size : body_at]
    message = _Table(description, _follow(description, 0))
    version, header_type = message.number(_MESSAGE_VERSION, "<h"), message.number(_MESSAGE_HEADER_TYPE, "<B")
    if version not in _VERSIONS or header_type != _HEADER_IS_BATCH:
        raise NotArrow(f"the message is of format version {version} and kind {header_type}, not a record batch of V5")
    if message.at(_MESSAGE_METADATA) is not None:
        raise NotArrow("the message has metadata of its own; leave it out")
    body_length = message.number(_MESSAGE_BODY_LENGTH, "<q")
    if body_at + body_length != len(payload):
        raise NotArrow(f"the message says that {body_length} bytes follow, and {len(payload) - body_at} do")
    header_at = message.at(_MESSAGE_HEADER)
    if header_at is None:
        raise NotArrow("the message describes no record batch")
    batch = _Table(description, _follow(description, header_at))
    if batch.at(_BATCH_COMPRESSION) is not None or batch.at(_BATCH_VARIADIC) is not None:
        raise NotArrow("its buffers are compressed, or of a type that is not in the schema; compress the whole payload")
    nodes, buffers = batch.pairs(_BATCH_NODES), batch.pairs(_BATCH_BUFFERS)
    node_count, buffer_count = _NODES + has_deltas, _BUFFERS + 2 * has_deltas
    if len(nodes) != node_count or len(buffers) != buffer_count:
        raise NotArrow(
            f"it has {len(nodes)} arrays in {len(buffers)} buffers, and the schema takes {node_count} in {buffer_count}"
        )
    for offset, length in buffers:
        if offset < 0 or length < 0 or offset % _ALIGNMENT or offset + length > body_length:
            raise NotArrow(f"a buffer of {length} bytes at {offset} is not in the {body_length} bytes of the body")
    return _Described(batch.number(_BATCH_LENGTH, "<q"), nodes, buffers, body_at)


class _Table:
    """A table of a flatbuffer. Like Arrow's own verifier, it reads nothing outside the buffer and nothing unaligned."""

    def __init__(self, buffer: bytes, at: int) -> None:
        self._buffer = buffer
        self._at = at
        vtable = at - _read(buffer, at, _I32)
        self._vtable = vtable
        self._vtable_bytes = _read(buffer, vtable, _U16)
        if self._vtable_bytes % 2 or vtable + self._vtable_bytes > len(buffer):
            raise NotArrow("a table of its description is not where it is said to be")

    def at(self, field: int) -> int | None:
        """Return the position of the field; None if the table does not have it."""
        place = 4 + 2 * field
        if place + 2 > self._vtable_bytes:
            return None
        distance = _read(self._buffer, self._vtable + place, _U16)
        return self._at + distance if distance else None

    def number(self, field: int, form: str) -> int:
        """Return a number; 0 if the table does not have it."""
        at = self.at(field)
        return 0 if at is None else _read(self._buffer, at, struct.Struct(form))

    def pairs(self, field: int) -> list[tuple[int, int]]:
        """Return a vector of nodes or of buffers."""
        at = self.at(field)
        if at is None:
            return []
        at = _follow(self._buffer, at)
        count, begins_at = _read(self._buffer, at, _U32), at + _U32.size
        end = begins_at + count * _PAIR.size
        if end > len(self._buffer) or begins_at % _ALIGNMENT:
            raise NotArrow("a list of its description goes beyond its end, or is not aligned")
        return list(_PAIR.iter_unpack(self._buffer[begins_at:end]))


def _follow(buffer: bytes, at: int) -> int:
    """Return the target of the reference at `at`."""
    distance = _read(buffer, at, _U32)
    if not 0 < distance < len(buffer) - at:
        raise NotArrow("a reference of its description points nowhere")
    return at + distance


def _read(buffer: bytes, at: int, form: struct.Struct) -> int:
    if at < 0 or at % form.size:
        raise NotArrow("a number of its description is not aligned")
    value: int
    (value,) = form.unpack_from(buffer, at)
    return value


def _check_arrays(payload: memoryview, described: _Described) -> Sequence[int]:
    """Check all arrays. Return the offset deltas of the records; empty if the batch has none."""
    buffers = iter(described.buffers)
    body = payload[described.body_at :]

    def next_buffer() -> memoryview:
        offset, length = next(buffers)
        return body[offset : offset + length]

    def is_present(name: str, length: int, null_count: int, *, nulls: bool) -> None:
        if not 0 <= null_count <= (length if nulls else 0):
            raise NotArrow(f"{name} has {null_count} nulls in {length} places")
        _check_nulls(name, next_buffer(), length, null_count)

    row_count = described.row_count
    key, value, times, headers, header, header_key, header_value = described.nodes[:_NODES]
    if not row_count == key[0] == value[0] == times[0] == headers[0]:
        raise NotArrow(f"the columns of its {row_count} records are not equally long")
    if not header[0] == header_key[0] == header_value[0]:
        raise NotArrow("the keys and values of its headers are not equally many")
    is_present("key", *key, nulls=True)
    _check_offsets("key", row_count, next_buffer(), len(next_buffer()))
    is_present("value", *value, nulls=True)
    _check_offsets("value", row_count, next_buffer(), len(next_buffer()))
    is_present("timestamp_ms", *times, nulls=False)
    if len(next_buffer()) < row_count * _TIME_BYTES:
        raise NotArrow(f"it has fewer than {row_count} timestamps")
    is_present("headers", *headers, nulls=True)
    _check_offsets("headers", row_count, next_buffer(), header[0])
    is_present("a header", *header, nulls=False)
    is_present("the key of a header", *header_key, nulls=False)
    offsets, texts = next_buffer(), next_buffer()
    _check_offsets("the key of a header", header_key[0], offsets, len(texts))
    _check_texts(offsets[: (header_key[0] + 1) * _OFFSET_BYTES], texts)
    is_present("the value of a header", *header_value, nulls=True)
    _check_offsets("the value of a header", header_value[0], next_buffer(), len(next_buffer()))
    if len(described.nodes) == _NODES:
        return ()
    deltas = described.nodes[_NODES]
    is_present("offset_delta", *deltas, nulls=False)
    places = next_buffer()
    if deltas[0] != row_count or len(places) < row_count * _OFFSET_BYTES:
        raise NotArrow(f"it has fewer than {row_count} offset deltas")
    return _numbers(places[: row_count * _OFFSET_BYTES])


def _check_nulls(name: str, bitmap: memoryview, length: int, null_count: int) -> None:
    # Without nulls, readers do not read the bitmap.
    if not null_count:
        return
    # Checked first, because a mask takes as much memory as the length, which only the sender claims so far.
    if len(bitmap) * 8 < length:
        raise NotArrow(f"{name} does not say which of its {length} places are null")
    bits = int.from_bytes(bitmap[: (length + 7) // 8], "little") & ((1 << length) - 1)
    if length - bits.bit_count() != null_count:
        raise NotArrow(f"{name} does not have the {null_count} nulls that it names")


def _check_offsets(name: str, length: int, offsets: memoryview, end: int) -> None:
    """Raise NotArrow unless there are `length` + 1 offsets that ascend, from 0 or more up to `end` at most."""
    if length == 0 and not offsets:
        return
    if len(offsets) < (length + 1) * _OFFSET_BYTES:
        raise NotArrow(f"{name} has fewer than {length + 1} offsets")
    numbers, before = _numbers(offsets[: (length + 1) * _OFFSET_BYTES]), 0
    for start in range(0, length + 1, _CHUNK):
        chunk = list(numbers[start : start + _CHUNK])
        # Sorting a list that is in order passes over it once, in C.
        if chunk[0] < before or chunk != sorted(chunk):
            raise NotArrow(f"the offsets of {name} do not ascend")
        before = chunk[-1]
    if before > end:
        raise NotArrow(f"the offsets of {name} end at {before}, behind the {end} that are there")


def _check_texts(offsets: memoryview, texts: memoryview) -> None:
    """Raise NotArrow unless every text is UTF-8: the joined texts are UTF-8, and none begins within a character."""
    if not offsets:
        return
    numbers = _numbers(offsets)
    first, last = numbers[0], numbers[-1]
    together = bytes(texts[first:last])
    if together.isascii():
        return
    try:
        together.decode()
    except UnicodeDecodeError as error:
        raise NotArrow(f"the key of a header is no UTF-8 ({error.reason})") from error
    if any(0x80 <= together[at - first] < 0xC0 for at in numbers if at < last):
        raise NotArrow("the key of a header begins within a character")


def _numbers(offsets: memoryview) -> Sequence[int]:
    if sys.byteorder == "little":
        return offsets.cast("i")
    return struct.unpack(f"<{len(offsets) // _OFFSET_BYTES}i", offsets)
