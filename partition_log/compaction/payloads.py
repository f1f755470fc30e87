"""Work of a pass on payloads. All functions here are run by a worker process, because decoding takes microseconds for
each record.

The process remembers the newest offset of each key, in a table for each pass. If it dies, the table is lost. Then every
function raises TableLost, and the pass begins anew. A key is remembered by a hash of 16 bytes. Two keys with one hash
cannot be found, not even on purpose.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from hashlib import blake2b
from typing import Final, NamedTuple

from msgspec.structs import replace

from coordinator_protocol.batch import (
    HEADER_BYTES_COUNTED,
    BatchHeader,
    Compression,
    Encoding,
    decode_header,
    encode_offsetless,
    pack_place,
)
from coordinator_protocol.compression import UNPACKED_BYTES_MAX, pack_as
from coordinator_protocol.kafka_records import PlacedRecord, encode_kafka_records
from partition_log.codec import encode_records
from partition_log.compaction.rules import NewestOffset, live_records
from partition_log.conversion import NotConvertible, records_of_batch

TABLES_MAX: Final = 4
"""Largest number of tables. One pass is under way at a time; more servers than one run in one process in tests only."""
_HASH_BYTES: Final = 16

_tables: Final[dict[int, dict[bytes, int]]] = {}


class TableLost(Exception):
    """The process does not have the table of the pass."""


class KeysToNote(NamedTuple):
    """Argument of `note_keys`."""

    table: int
    batches: Sequence[bytes]
    """Stored batches in ascending order, without control batches and those of aborted transactions."""
    is_first: bool = False
    """True to begin a new table."""


class BatchesToCompact(NamedTuple):
    """Argument of `compact_batches`."""

    table: int
    batches: Sequence[bytes]
    """Stored batches, as for `KeysToNote`."""
    retired_below: int
    """Offset before which tombstones are no longer needed."""


class CompactedBatch(NamedTuple):
    """Rest of a batch after a pass."""

    batch: bytes | None
    """Stored batch with holes, which may have no record left; None if it stays as it is."""
    record_count: int
    is_readable: bool = True
    """False if its records cannot be decoded. Such a batch stays."""


def note_keys(asked: KeysToNote) -> int:
    """Note the newest offset of each key. Return the number of batches that cannot be decoded. Raises TableLost."""
    if asked.is_first:
        _tables[asked.table] = {}
        for oldest in sorted(_tables)[:-TABLES_MAX]:
            del _tables[oldest]
    table, unreadable = _table(asked.table), 0
    for batch in asked.batches:
        header = decode_header(batch)
        try:
            records = records_of_batch(header, batch)
        except NotConvertible:
            unreadable += 1
            continue
        for record in records:
            key = record[2]
            if key is not None:
                table[_hash(key)] = header.base_offset + record[0]
    return unreadable


def compact_batches(asked: BatchesToCompact) -> list[CompactedBatch]:
    """Return what stays of each batch. Raises TableLost."""
    newest, retired_below = partial(_newest, _table(asked.table)), asked.retired_below
    found = []
    for batch in asked.batches:
        compacted = _compacted(batch, newest, retired_below)
        if not compacted.is_readable:
            # It may hold older records of any key, so no tombstone behind it goes.
            retired_below = 0
        found.append(compacted)
    return found


def forget_table(table: int) -> None:
    """Free the memory of a table that is no longer needed."""
    _tables.pop(table, None)


def emptied(batch: bytes) -> bytes:
    """Return the batch with its offsets and without a record."""
    return _with_records(decode_header(batch), [])


def _table(number: int) -> dict[bytes, int]:
    table = _tables.get(number)
    if table is None:
        raise TableLost(number)
    return table


def _newest(table: dict[bytes, int], key: bytes) -> int:
    return table.get(_hash(key), -1)


def _hash(key: bytes) -> bytes:
    return blake2b(key, digest_size=_HASH_BYTES).digest()


def _compacted(batch: bytes, newest: NewestOffset, retired_below: int) -> CompactedBatch:
    header = decode_header(batch)
    try:
        records = records_of_batch(header, batch)
        kept = live_records(records, header.base_offset, newest, retired_below=retired_below)
        if len(kept) == len(records):
            return CompactedBatch(None, header.record_count)
        return CompactedBatch(_with_records(header, kept), len(kept))
    except NotConvertible:
        return CompactedBatch(None, header.record_count, is_readable=False)


def _with_records(header: BatchHeader, records: Sequence[PlacedRecord]) -> bytes:
    """Return the batch with these of its records. Raises NotConvertible."""
    encode: Callable[[], bytes]
    if header.encoding is Encoding.KAFKA_V2:
        encoding, encode = Encoding.KAFKA_V2, partial(encode_kafka_records, records, header.base_timestamp_ms)
    else:
        # No Arrow is written here: a server has no library for it, and every reader of Arrow takes these, too.
        encoding, encode = Encoding.RECORDS_V2, partial(encode_records, records, has_deltas=True)
    plain = encode()
    if len(plain) > UNPACKED_BYTES_MAX:
        raise NotConvertible(f"{len(plain)} bytes of records do not fit into a batch")
    compression = header.compression if records else Compression.NONE
    payload = pack_as(encoding, plain, compression)
    after = replace(
        header,
        encoding=encoding,
        compression=compression,
        record_count=len(records),
        hole_count=header.last_offset_delta + 1 - len(records),
        max_timestamp_ms=max((record[1] for record in records), default=header.max_timestamp_ms),
    )
    rest_of_header, _payload = encode_offsetless(after, payload)
    place = pack_place(header.base_offset, HEADER_BYTES_COUNTED + len(payload), header.leader_epoch)
    return b"".join((place, rest_of_header, payload))
