"""Search by time in the payload of one batch: its first record from a time on, and its newest record.

Each has two forms. `first_since` and `newest_since` take plain values, for another process. `first_at_or_after` and
`newest` take a header and its stored batch.

Source: KIP-79 (ListOffsets answers a record and not a batch); KIP-734 (the record with the largest timestamp).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Final

from coordinator_protocol.arrow_payload import NotArrow, placed_times
from coordinator_protocol.batch import (
    ENCODINGS_WITH_DELTAS,
    BatchHeader,
    Compression,
    Encoding,
    TimestampType,
    payload_of,
)
from coordinator_protocol.compression import NotUnpackable, unpack_as
from coordinator_protocol.kafka_records import NotKafkaRecords, kafka_record_times
from coordinator_protocol.wire import Buffer
from partition_log.batch_checks import record_pieces
from partition_log.codec import NotRecords, placed_times_of

Sought = tuple[int, int, int, int, int, int, int, bytes]
"""Argument of `first_since` and `newest_since`, as plain values for another process. From the header: encoding,
compression, record count, base timestamp. Then the first offset delta that counts, the last one of the batch, the time,
and the payload."""

_OF_RECORDS: Final = (Encoding.RECORDS_V1, Encoding.RECORDS_V2)


class NotOpened(Exception):
    """Error for a payload that no reader can decode as its header says. The text gives the reason."""


def first_at_or_after(header: BatchHeader, batch: Buffer, timestamp_ms: int) -> tuple[int, int] | None:
    """Return offset and timestamp of the first record of a stored batch that is not older than this time; None if there
    is none. Not for control batches. Raises: NotOpened."""
    if header.timestamp_type is not TimestampType.CREATE_TIME:
        return (header.base_offset, header.max_timestamp_ms) if header.max_timestamp_ms >= timestamp_ms else None
    return _placed(header, first_since(sought(header, payload_of(batch), 0, timestamp_ms)))


def newest(header: BatchHeader, batch: Buffer) -> tuple[int, int] | None:
    """Return offset and timestamp of the record with the largest timestamp in a stored batch, the first of several.
    None for a batch without records. Not for control batches. Raises: NotOpened."""
    if header.timestamp_type is not TimestampType.CREATE_TIME:
        # The log stamps all records of a batch alike.
        return header.base_offset, header.max_timestamp_ms
    return _placed(header, newest_since(sought(header, payload_of(batch), 0, 0)))


def sought(header: BatchHeader, payload: Buffer, first_delta: int, timestamp_ms: int) -> Sought:
    """Return the argument of `first_since` or `newest_since` for a batch. Records before `first_delta` do not
    count."""
    kind = int(header.encoding), int(header.compression), header.record_count, header.base_timestamp_ms
    return (*kind, first_delta, header.last_offset_delta, timestamp_ms, bytes(payload))


def first_since(asked: Sought) -> tuple[int, int] | None:
    """Return offset delta and timestamp of the first record, in the order of offsets, not older than the time asked
    for. None if there is none. Takes at most a few times `UNPACKED_BYTES_MAX` of memory. Raises: NotOpened."""
    *_, first_delta, _last_delta, timestamp_ms, _payload = asked
    for delta, time_ms in _checked_times(asked):
        if time_ms >= timestamp_ms and delta >= first_delta:
            return delta, time_ms
    return None


def newest_since(asked: Sought) -> tuple[int, int] | None:
    """Return offset delta and timestamp of the record with the largest timestamp, the first if there are several. None
    if no record counts. The time asked for does not matter. Memory and errors as for `first_since`."""
    *_, first_delta, _last_delta, _timestamp_ms, _payload = asked
    found = None
    for delta, time_ms in _checked_times(asked):
        if delta >= first_delta and (found is None or time_ms > found[1]):
            found = delta, time_ms
    return found


def _placed(header: BatchHeader, found: tuple[int, int] | None) -> tuple[int, int] | None:
    return None if found is None else (header.base_offset + found[0], found[1])


def _checked_times(asked: Sought) -> Iterator[tuple[int, int]]:
    """Yield offset delta and timestamp of each record, as many as the header says. Raises: NotOpened."""
    encoding, compression, record_count, base_timestamp_ms, _first_delta, last_delta, _timestamp_ms, payload = asked
    seen = 0
    try:
        plain = unpack_as(Encoding(encoding), payload, Compression(compression))
        for delta, time_ms in _placed_times(plain, Encoding(encoding), base_timestamp_ms):
            seen += 1
            if not 0 <= delta <= last_delta:
                raise NotOpened(f"it holds a record at place {delta} of a batch that ends at place {last_delta}")
            yield delta, time_ms
    except (NotUnpackable, NotRecords, NotArrow, NotKafkaRecords, ValueError) as error:
        raise NotOpened(str(error)) from error
    if seen != record_count:
        raise NotOpened(f"it holds {seen} records and its header says {record_count}")


def _placed_times(plain: bytes, encoding: Encoding, base_timestamp_ms: int) -> Iterator[tuple[int, int]]:
    """Yield offset delta and timestamp of each record. Raises NotRecords, NotArrow, NotKafkaRecords, ValueError."""
    if encoding is Encoding.KAFKA_V2:
        yield from kafka_record_times(plain, base_timestamp_ms)
        return
    has_deltas = encoding in ENCODINGS_WITH_DELTAS
    if encoding not in _OF_RECORDS:
        yield from zip(*placed_times(plain, has_deltas=has_deltas), strict=True)
        return
    follows = count()
    for piece in record_pieces(plain):
        for delta, time_ms in placed_times_of(piece):
            yield (delta if has_deltas else next(follows)), time_ms
