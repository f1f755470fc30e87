"""Search for the first record of a batch from a time on, in its payload. A pure function of plain values, for another
process.

Source: KIP-79 (ListOffsets answers a record and not a batch).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Final

from coordinator_protocol.arrow_payload import NotArrow, placed_times
from coordinator_protocol.batch import ENCODINGS_WITH_DELTAS, BatchHeader, Compression, Encoding
from coordinator_protocol.compression import NotUnpackable, unpack
from coordinator_protocol.wire import Buffer, has_more_fields, open_field, pieces
from partition_log.batch_checks import FIELDS_MAX, PIECE_BYTES
from partition_log.codec import RECORD_FIELD, NotRecords, placed_times_of

Sought = tuple[int, int, int, int, int, int, bytes]
"""Argument of `first_since`: encoding, compression, record count, first offset delta that counts, last offset delta of
the batch, the time, and the payload. Plain values, for another process."""

_OF_RECORDS: Final = (Encoding.RECORDS_V1, Encoding.RECORDS_V2)


class NotOpened(Exception):
    """Error for a payload that no reader can decode as its header says. The text gives the reason."""


def sought(header: BatchHeader, payload: Buffer, first_delta: int, timestamp_ms: int) -> Sought:
    """Return the argument of `first_since` for a batch. Records before `first_delta` do not count."""
    kind = int(header.encoding), int(header.compression), header.record_count
    return (*kind, first_delta, header.last_offset_delta, timestamp_ms, bytes(payload))


def first_since(asked: Sought) -> tuple[int, int] | None:
    """Return offset delta and timestamp of the first record, in the order of offsets, that is not older than the time
    asked for; None if there is none. Takes at most a few times `UNPACKED_BYTES_MAX` of memory. Raises:
    NotOpened."""
    encoding, compression, record_count, first_delta, last_delta, timestamp_ms, payload = asked
    seen = 0
    try:
        plain = unpack(payload, Compression(compression))
        for delta, time_ms in _placed_times(plain, Encoding(encoding)):
            seen += 1
            if delta > last_delta:
                raise NotOpened(f"it holds a record at place {delta} of a batch that ends at place {last_delta}")
            if time_ms >= timestamp_ms and delta >= first_delta:
                return delta, time_ms
    except (NotUnpackable, NotRecords, NotArrow, ValueError) as error:
        raise NotOpened(str(error)) from error
    if seen != record_count:
        raise NotOpened(f"it holds {seen} records and its header says {record_count}")
    return None


def _placed_times(plain: bytes, encoding: Encoding) -> Iterator[tuple[int, int]]:
    """Yield offset delta and timestamp of each record. Raises NotRecords, NotArrow, ValueError."""
    has_deltas = encoding in ENCODINGS_WITH_DELTAS
    if encoding not in _OF_RECORDS:
        yield from zip(*placed_times(plain, has_deltas=has_deltas), strict=True)
        return
    follows = count()
    for start, end in pieces(plain, PIECE_BYTES):
        if end - start > PIECE_BYTES:
            number, content = open_field(plain, start)
            if number == RECORD_FIELD and has_more_fields(plain, content, end, FIELDS_MAX):
                raise NotRecords(f"a record has more than {FIELDS_MAX} fields")
        for delta, time_ms in placed_times_of(plain[start:end]):
            yield (delta if has_deltas else next(follows)), time_ms
