"""Records of Kafka's record batch of version 2, decoded and encoded: the bytes after the header, unpacked.

```
length         varint      bytes of the record after this field
attributes     i8          0, read by nobody
timestamp      varlong     minus the base timestamp of the batch
offset delta   varint
key            varint, bytes     length -1 = null
value          varint, bytes     length -1 = null
header count   varint
each header    varint, name, varint, value     value of length -1 = null
```
Both kinds of numbers are zig-zag varints, of 32 and 64 bits. Timestamps wrap around 64 bits, as in Kafka.

Source: Kafka's documentation, "Record" in "Message format"; `DefaultRecord` and `ByteUtils` in its clients.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

from coordinator_protocol.wire import Buffer, varint

RecordHeaders: TypeAlias = tuple[tuple[bytes, bytes | None], ...]
"""Names and values of the headers of a record. A name is bytes, because a Kafka broker does not check that it is
text."""

PlacedRecord: TypeAlias = tuple[int, int, bytes | None, bytes | None, RecordHeaders]
"""A record of any encoding: offset delta, timestamp (ms), key, value and headers."""

RECORD_BYTES_MIN: Final = 7
"""Size of a record without key, value and headers, its length included."""

_MORE: Final = 0x80
_BITS: Final = 0x7F
_INT_BITS: Final = 32
_LONG_BITS: Final = 64
_INT64_MIN: Final = -(2**63)
_INT64_MAX: Final = 2**63 - 1
_INT64_COUNT: Final = 1 << 64
_NULL: Final = -1
_NULL_LENGTH: Final = b"\x01"
_SMALL: Final = tuple((byte >> 1) ^ -(byte & 1) for byte in range(_MORE))
"""Numbers of one byte, decoded."""
_ONE_BYTE: Final = tuple(bytes((byte,)) for byte in range(_MORE))


class NotKafkaRecords(Exception):
    """The bytes are no records of Kafka's version 2; the text has the reason."""


def decode_kafka_records(payload: Buffer, base_timestamp_ms: int) -> list[PlacedRecord]:
    """Return the records of an unpacked payload, in its order. Offset deltas are as stored, unchecked.

    Raises: NotKafkaRecords."""
    content = bytes(payload)
    records: list[PlacedRecord] = []
    at, size = 0, len(content)
    small = _SMALL
    try:
        while at < size:
            # A number of one byte is read here, because a call takes longer than everything else about it.
            length, at = (small[content[at]], at + 1) if content[at] < _MORE else _number(content, at, _INT_BITS)
            end = at + length
            at += 1
            delta_ms, at = (small[content[at]], at + 1) if content[at] < _MORE else _number(content, at, _LONG_BITS)
            place, at = (small[content[at]], at + 1) if content[at] < _MORE else _number(content, at, _INT_BITS)
            length, at = (small[content[at]], at + 1) if content[at] < _MORE else _number(content, at, _INT_BITS)
            key = None
            if length != _NULL:
                key, at = content[at : at + length], _behind(at, length)
            length, at = (small[content[at]], at + 1) if content[at] < _MORE else _number(content, at, _INT_BITS)
            value = None
            if length != _NULL:
                value, at = content[at : at + length], _behind(at, length)
            headers: RecordHeaders = ()
            if content[at]:
                headers, at = _headers(content, at)
            else:
                at += 1
            if at != end:
                raise NotKafkaRecords(f"record {len(records)} does not end where its length says")
            records.append((place, _wrapped(base_timestamp_ms + delta_ms), key, value, headers))
    except IndexError as error:
        raise _cut_off(len(records)) from error
    if at != size:
        raise _cut_off(len(records) - 1)
    return records


def kafka_record_times(payload: Buffer, base_timestamp_ms: int) -> Iterator[tuple[int, int]]:
    """Yield offset delta and timestamp (ms) of each record, in the order of the payload. The rest of a record is not
    looked at.

    Raises: NotKafkaRecords, after all records before."""
    content = bytes(payload)
    at, size, index = 0, len(content), 0
    try:
        while at < size:
            length, at = _number(content, at, _INT_BITS)
            end = at + length
            delta_ms, at = _number(content, at + 1, _LONG_BITS)
            place, at = _number(content, at, _INT_BITS)
            if not at < end <= size:
                raise NotKafkaRecords(f"record {index} does not end where its length says")
            yield place, _wrapped(base_timestamp_ms + delta_ms)
            at = end
            index += 1
    except IndexError as error:
        raise _cut_off(index) from error


def encode_kafka_records(records: Iterable[PlacedRecord], base_timestamp_ms: int) -> bytes:
    """Return the records as an unpacked payload."""
    encoded: list[bytes] = []
    for place, timestamp_ms, key, value, headers in records:
        parts = [b"\0", _zigzag(_wrapped(timestamp_ms - base_timestamp_ms)), _zigzag(place)]
        parts += (_NULL_LENGTH,) if key is None else (_zigzag(len(key)), key)
        parts += (_NULL_LENGTH,) if value is None else (_zigzag(len(value)), value)
        parts.append(_zigzag(len(headers)))
        for name, content in headers:
            parts += (_zigzag(len(name)), name)
            parts += (_NULL_LENGTH,) if content is None else (_zigzag(len(content)), content)
        record = b"".join(parts)
        encoded += (_zigzag(len(record)), record)
    return b"".join(encoded)


def _headers(content: bytes, at: int) -> tuple[RecordHeaders, int]:
    count, at = _number(content, at, _INT_BITS)
    if count < 0:
        raise NotKafkaRecords(f"a record says that it has {count} headers")
    headers: list[tuple[bytes, bytes | None]] = []
    for _ in range(count):
        length, at = _number(content, at, _INT_BITS)
        start, at = at, _behind(at, length)
        name = content[start:at]
        length, at = _number(content, at, _INT_BITS)
        if length == _NULL:
            headers.append((name, None))
        else:
            start, at = at, _behind(at, length)
            headers.append((name, content[start:at]))
    return tuple(headers), at


def _behind(at: int, length: int) -> int:
    """Return the end of `length` bytes. It may lie behind the end of the payload, where the next read fails."""
    if length < 0:
        raise NotKafkaRecords(f"{length} is no length, before byte {at}")
    return at + length


def _number(content: bytes, at: int, bits: int) -> tuple[int, int]:
    """Return the zig-zag number at `at`, and its end. Raises: IndexError if it is cut off; NotKafkaRecords if it is
    larger than its type."""
    value = shift = 0
    while (byte := content[at]) >= _MORE:
        value |= (byte & _BITS) << shift
        shift += 7
        at += 1
        if shift >= bits:
            raise _too_large(at)
    value |= byte << shift
    if value >> bits:
        raise _too_large(at)
    return (value >> 1) ^ -(value & 1), at + 1


def _zigzag(number: int) -> bytes:
    value = number << 1 if number >= 0 else (-number << 1) - 1
    return _ONE_BYTE[value] if value < _MORE else varint(value)


def _wrapped(number: int) -> int:
    """Return the number in 64 bits, as two's complement."""
    if _INT64_MIN <= number <= _INT64_MAX:
        return number
    return (number - _INT64_MIN) % _INT64_COUNT + _INT64_MIN


def _too_large(at: int) -> NotKafkaRecords:
    return NotKafkaRecords(f"the number before byte {at} is larger than its type")


def _cut_off(index: int) -> NotKafkaRecords:
    return NotKafkaRecords(f"record {index} is cut off")
