"""Check of the records of a Kafka batch of magic 2, without making an object of any.

They follow the header of the batch, one after the other:

```
length         varint      of the rest of the record
attributes     i8          unused
timestamp      varlong     minus the base timestamp of the batch
offset         varint      minus the base offset of the batch
key, value     varint each, bytes       length (-1 = null)
headers        varint, each a name and a value like the above; a name is never null
```
All numbers are zig-zag. One that is larger than its type is refused, and so is a length below -1. Kafka takes both,
but no writer makes either, and readers might disagree about it.

The compiled transport has the same check for the log (`examine_batch`).

Source: Kafka's `DefaultRecord.readFrom` and `LogValidator`; decision 22.
"""

from __future__ import annotations

from typing import Final

from coordinator_protocol.kafka_records import NotKafkaRecords

HEADERS_MAX: Final = 1 << 17
"""Largest number of headers of a record. A record with more is refused, as in the other encodings."""

_INT_BITS: Final = 32
_LONG_BITS: Final = 64
_MORE: Final = 0x80
_NULL: Final = -1
_ATTRIBUTES_BYTES: Final = 1


class TooManyItems(Exception):
    """There are more records and headers than were to be looked at."""


def kafka_record_count(
    plain: bytes, last_offset_delta: int, *, items_max: int | None = None, records_max: int | None = None
) -> int:
    """Return the number of records in an unpacked payload, after checking every length and number in it.

    The offset deltas must ascend up to `last_offset_delta`. `records_max`: the check stops behind one record more.

    Raises: NotKafkaRecords; TooManyItems if records and headers are more than `items_max` together."""
    at, end, found, items, behind = 0, len(plain), 0, 0, -1
    try:
        while at < end:
            if records_max is not None and found > records_max:
                return found
            length, at = _number(plain, at, _INT_BITS)
            record_ends_at = at + length
            if record_ends_at > end:
                raise _cut_off(found)
            _delta_ms, at = _number(plain, at + _ATTRIBUTES_BYTES, _LONG_BITS)
            delta, at = _number(plain, at, _INT_BITS)
            at = _behind_bytes(plain, _behind_bytes(plain, at))
            header_count, at = _number(plain, at, _INT_BITS)
            if not 0 <= header_count <= HEADERS_MAX:
                raise NotKafkaRecords(f"a record has {header_count} headers, and it may have 0 to {HEADERS_MAX}")
            items += 1 + header_count
            if items_max is not None and items > items_max:
                raise TooManyItems
            if header_count:
                at = _behind_headers(plain, at, header_count, record_ends_at)
            if at != record_ends_at:
                raise NotKafkaRecords(f"record {found} does not end where its length says")
            if not behind < delta <= last_offset_delta:
                raise NotKafkaRecords(
                    f"its records do not lie in ascending places up to {last_offset_delta}, record {found} is at "
                    f"{delta}"
                )
            behind = delta
            found += 1
    except IndexError:
        raise _cut_off(found) from None
    return found


def _behind_headers(plain: bytes, at: int, count: int, end: int) -> int:
    for _ in range(count):
        if at >= end:
            raise NotKafkaRecords("a record ends before its headers do")
        name_bytes, at = _number(plain, at, _INT_BITS)
        if name_bytes < 0:
            raise NotKafkaRecords(f"the name of a header has the length {name_bytes}")
        at = _behind_bytes(plain, at + name_bytes)
    return at


def _behind_bytes(plain: bytes, at: int) -> int:
    """Return the place behind bytes that may be null, which may be past the end."""
    length, at = _number(plain, at, _INT_BITS)
    if length < _NULL:
        raise NotKafkaRecords(f"the length before byte {at} is {length}")
    return at if length == _NULL else at + length


def _number(plain: bytes, at: int, bits: int) -> tuple[int, int]:
    """Return a zig-zag number, and the place behind it. Raises: IndexError if it is cut off; NotKafkaRecords."""
    byte = plain[at]
    at += 1
    if byte < _MORE:
        return (byte >> 1) ^ -(byte & 1), at
    number, shift = byte - _MORE, 7
    while shift < bits:
        byte = plain[at]
        at += 1
        number |= (byte & ~_MORE) << shift
        if byte < _MORE:
            if number >> bits:
                break
            return (number >> 1) ^ -(number & 1), at
        shift += 7
    raise NotKafkaRecords(f"the number before byte {at} is larger than its type")


def _cut_off(record: int) -> NotKafkaRecords:
    return NotKafkaRecords(f"record {record} is cut off")
