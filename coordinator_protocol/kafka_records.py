"""Records of Kafka's record batch of version 2, decoded and encoded: the bytes after the header, unpacked.

```
length         varint      bytes of the record after this field
attributes     i8          0, and ignored
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

_MORE: Final = 0x80
_BITS: Final = 0x7F
_INT_BITS: Final = 32
_LONG_BITS: Final = 64
_INT64_MIN: Final = -(2**63)
_INT64_MAX: Final = 2**63 - 1
_INT64_COUNT: Final = 1 << 64
_NULL: Final = -1
_NULL_LENGTH: Final = b"\x01"
_NO_ATTRIBUTES: Final = b"\0"
_NO_HEADERS: Final = b"\0"
_SMALL: Final = tuple((byte >> 1) ^ -(byte & 1) for byte in range(_MORE))
"""Numbers of one byte, decoded."""
_SMALL_MIN: Final = -64
_SMALL_END: Final = 1_024
_ENCODED: Final = tuple(varint(2 * number) for number in range(_SMALL_END)) + tuple(
    varint(-2 * number - 1) for number in range(_SMALL_MIN, 0)
)
"""Small numbers, encoded, at their own index: those below 0 count from the end."""


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
            if length >= 0:
                key, at = content[at : at + length], at + length
            elif length != _NULL:
                raise _no_length(length, at)
            length, at = (small[content[at]], at + 1) if content[at] < _MORE else _number(content, at, _INT_BITS)
            value = None
            if length >= 0:
                value, at = content[at : at + length], at + length
            elif length != _NULL:
                raise _no_length(length, at)
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
    small, encoded = _ENCODED, list[bytes]()
    for place, timestamp_ms, key, value, headers in records:
        delta_ms = timestamp_ms - base_timestamp_ms
        parts = [
            _NO_ATTRIBUTES,
            small[delta_ms] if _SMALL_MIN <= delta_ms < _SMALL_END else _zigzag(_wrapped(delta_ms)),
            small[place] if 0 <= place < _SMALL_END else _zigzag(place),
        ]
        for content in (key, value):
            if content is None:
                parts.append(_NULL_LENGTH)
            else:
                length = len(content)
                parts += (small[length] if length < _SMALL_END else _zigzag(length), content)
        if headers:
            parts.append(_zigzag(len(headers)))
            for name, content in headers:
                parts += (_zigzag(len(name)), name)
                parts += (_NULL_LENGTH,) if content is None else (_zigzag(len(content)), content)
        else:
            parts.append(_NO_HEADERS)
        record = b"".join(parts)
        length = len(record)
        encoded += (small[length] if length < _SMALL_END else _zigzag(length), record)
    return b"".join(encoded)


def _headers(content: bytes, at: int) -> tuple[RecordHeaders, int]:
    count, at = _number(content, at, _INT_BITS)
    if count < 0:
        raise NotKafkaRecords(f"a record says that it has {count} headers")
    headers: list[tuple[bytes, bytes | None]] = []
    small = _SMALL
    for _ in range(count):
        length, at = (small[content[at]], at + 1) if content[at] < _MORE else _number(content, at, _INT_BITS)
        if length < 0:
            raise _no_length(length, at)
        name, at = content[at : at + length], at + length
        length, at = (small[content[at]], at + 1) if content[at] < _MORE else _number(content, at, _INT_BITS)
        if length >= 0:
            headers.append((name, content[at : at + length]))
            at += length
        elif length == _NULL:
            headers.append((name, None))
        else:
            raise _no_length(length, at)
    return tuple(headers), at


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
    if _SMALL_MIN <= number < _SMALL_END:
        return _ENCODED[number]
    return varint(number << 1 if number >= 0 else (-number << 1) - 1)


def _wrapped(number: int) -> int:
    """Return the number in 64 bits, as two's complement."""
    if _INT64_MIN <= number <= _INT64_MAX:
        return number
    return (number - _INT64_MIN) % _INT64_COUNT + _INT64_MIN


def _too_large(at: int) -> NotKafkaRecords:
    return NotKafkaRecords(f"the number before byte {at} is larger than its type")


def _no_length(number: int, at: int) -> NotKafkaRecords:
    return NotKafkaRecords(f"{number} is no length, before byte {at}")


def _cut_off(index: int) -> NotKafkaRecords:
    return NotKafkaRecords(f"record {index} is cut off")
