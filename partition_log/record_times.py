"""The first record of a batch from a time on, found in its payload: by a pure function of values, for another process.

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
"""Encoding, compression, record count, the first place in the batch that counts, the last one that there is, the time,
and the payload: plain values, for another process."""

_OF_RECORDS: Final = (Encoding.RECORDS_V1, Encoding.RECORDS_V2)


class NotOpened(Exception):
    """A payload that no reader can decode as its header says; the text says why."""


def sought(header: BatchHeader, payload: Buffer, first_delta: int, timestamp_ms: int) -> Sought:
    """Return what `first_since` is asked about a batch. `first_delta`: records at places before it do not count."""
    kind = int(header.encoding), int(header.compression), header.record_count
    return (*kind, first_delta, header.last_offset_delta, timestamp_ms, bytes(payload))


def first_since(asked: Sought) -> tuple[int, int] | None:
    """Return place and timestamp of the first record of a batch, in the order of offsets, whose timestamp is at least
    the one that is sought; None where there is none. Takes a few times `UNPACKED_BYTES_MAX` of memory at most. Raises:
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
    """Raises NotRecords, NotArrow, ValueError."""
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
