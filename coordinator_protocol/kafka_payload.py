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

`_behind_usual` is the fast path over the first records: those without headers and with short numbers, in a third of the
time. It judges nothing. Everything else is left to the loop behind it, errors included.

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
_NULL_DOUBLED: Final = 1
_ATTRIBUTES_BYTES: Final = 1


class TooManyItems(Exception):
    """There are more records and headers than were to be looked at."""


def kafka_record_count(
    plain: bytes, last_offset_delta: int, *, items_max: int | None = None, records_max: int | None = None
) -> int:
    """Return the number of records in an unpacked payload, after checking every length and number in it.

    The offset deltas must ascend up to `last_offset_delta`. `records_max`: the check stops behind one record more.

    Raises: NotKafkaRecords; TooManyItems if records and headers are more than `items_max` together."""
    end = len(plain)
    usual_max = min(end if items_max is None else items_max, end if records_max is None else records_max)
    at, found, behind = _behind_usual(plain, last_offset_delta, usual_max)
    items = found
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


def _behind_usual(plain: bytes, last_offset_delta: int, records_max: int) -> tuple[int, int, int]:
    """Pass over the first records of the usual shape. Return the place behind them, their number, and the last offset
    delta (-1 if there is none).

    Length, offset delta and value length have at most two bytes. The key length has one, and there are no headers.
    Numbers stay doubled, as zig-zag has those from 0 on: odd ones are negative."""
    at, found, behind, last = 0, 0, -1, last_offset_delta << 1
    more = _MORE
    try:
        while found < records_max:
            length = plain[at]
            here = at + 1
            if length >= more:
                if (high := plain[here]) >= more:
                    break
                length += (high << 7) - more
                here += 1
            ends_at = here + (length >> 1)
            here += 2
            if plain[here - 1] >= more:
                here = here + 1 if plain[here] < more else _number(plain, here - 1, _LONG_BITS)[1]
            delta = plain[here]
            here += 1
            if delta >= more:
                if (high := plain[here]) >= more:
                    break
                delta += (high << 7) - more
                here += 1
            size = plain[here]
            if size >= more or (size & 1 and size != _NULL_DOUBLED):
                break
            here += 1 + (size >> 1)
            size = plain[here]
            here += 1
            if size >= more:
                if (high := plain[here]) >= more:
                    break
                size += (high << 7) - more
                here += 1
            here += size >> 1
            has_headers = plain[here] != 0
            is_negative = (length | delta) & 1 or (size & 1 and size != _NULL_DOUBLED)
            if has_headers or here + 1 != ends_at or is_negative or not behind < delta <= last:
                break
            at, found, behind = ends_at, found + 1, delta
    except (IndexError, NotKafkaRecords):
        pass
    return at, found, behind >> 1


def keyless_kafka_records(plain: bytes) -> tuple[int, ...]:
    """Return the places of the records without a key in an unpacked payload, from 0 on.

    Only the bytes before a key are read: the time is a quarter of what decoding takes. Raises: NotKafkaRecords if they
    cannot be read."""
    found, at, place, end, more = list[int](), 0, 0, len(plain), _MORE
    try:
        while at < end:
            # Small numbers are read here, because a call takes longer than everything else about them.
            first = plain[at]
            length, here = _number(plain, at, _INT_BITS) if first >= more or first & 1 else (first >> 1, at + 1)
            if length < 0:
                raise _cut_off(place)
            at = here + length
            here += _ATTRIBUTES_BYTES
            # Passes over the two deltas.
            here += 1 if plain[here] < more else 2 if plain[here + 1] < more else _bytes_of(plain, here, _LONG_BITS)
            here += 1 if plain[here] < more else 2 if plain[here + 1] < more else _bytes_of(plain, here, _INT_BITS)
            if plain[here] == _NULL_DOUBLED or (plain[here] >= more and _number(plain, here, _INT_BITS)[0] == _NULL):
                found.append(place)
            place += 1
    except IndexError:
        raise _cut_off(place) from None
    return tuple(found)


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


def _bytes_of(plain: bytes, at: int, bits: int) -> int:
    return _number(plain, at, bits)[1] - at


def _cut_off(record: int) -> NotKafkaRecords:
    return NotKafkaRecords(f"record {record} is cut off")
