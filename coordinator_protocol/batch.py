"""The stored form of a record batch: Kafka's v2 header, three bytes of ours, then a payload.

```
 0 base_offset            i64    21 attributes          i16    51 producer_epoch   i16
 8 batch_length           i32    23 last_offset_delta   i32    53 base_sequence    i32
12 partition_leader_epoch i32    27 base_timestamp_ms   i64    57 record_count     i32
16 magic (2)              i8     35 max_timestamp_ms    i64    61 encoding         u8
17 crc                    u32    43 producer_id         i64    62 format_version   u8
                                                               63 reserved (0)     u8
```
All integers are big-endian. `batch_length` counts the bytes after itself, and `crc` covers everything after itself,
payload included. A batch takes the offsets and sequences up to `last_offset_delta`; `record_count` is smaller if
compaction removed records. So a batch is complete, with the checksum that the client computed, before the log assigns
its place, base offset and leader epoch.

A batch of the encoding `KAFKA_V2` is one of Kafka's with our three bytes put in (`kafka_batches`). Its checksum is
Kafka's, so it leaves those three bytes out. They are constant, and a wrong one is found by itself.

Source: design 6 and 10 (16-bit epochs); spec log-and-runtime 1.2; KIP-98.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from functools import partial
from typing import Final, TypeVar

from msgspec import Struct

from coordinator_protocol.checksum import KEEP_THE_GIL, crc32c
from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.producers import NO_SEQUENCE, SEQUENCE_MAX

BytesT = TypeVar("BytesT", bytes, memoryview)

HEADER_BYTES: Final = 64
FORMAT_VERSION: Final = 1
OWN_BYTES: Final = 3
"""Bytes at the end of the header that Kafka's header does not have: encoding, format version, reserved."""
KAFKA_HEADER_BYTES: Final = HEADER_BYTES - OWN_BYTES
"""Size of the header of Kafka's batch."""
NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_TIMESTAMP_MS: Final = -1
NO_LEADER_EPOCH: Final = -1

_MAGIC: Final = 2
LENGTH_ENDS_AT: Final = 12
TAIL_BYTES: Final = 38
"""Bytes of the tail that may follow a batch, in the same row of the log: its transaction's marker."""
HEADER_BYTES_COUNTED: Final = HEADER_BYTES - LENGTH_ENDS_AT
"""Bytes of the header that `batch_length` counts: all after that field."""
_MAGIC_AT: Final = 16
_CRC_STARTS_AT: Final = 17
_CRC_ENDS_AT: Final = 21
_COVERED_BYTES: Final = HEADER_BYTES - _CRC_ENDS_AT

pack_uncovered: Final = partial(struct.Struct(">bI").pack, _MAGIC)
"""Packs the fields between the place and the covered part, from the checksum."""
pack_covered: Final = struct.Struct(">hiqqqhiiBBB").pack
"""Packs the fields that the checksum covers besides the payload: from attributes to the reserved byte, in the order
shown above. For code that has the fields and needs no header value."""
TRANSACTIONAL_BIT: Final = 4
"""Kafka's bit for "part of a transaction" in the attributes; the lowest three bits are the compression."""
_HEADER: Final = struct.Struct(">qiibIhiqqqhiiBBB")
_CRC: Final = struct.Struct(">I")
_LENGTH: Final = struct.Struct(">i")
_DELTA: Final = struct.Struct(">i")
_DELTA_AT: Final = 23

pack_place: Final[Callable[[int, int, int], bytes]] = struct.Struct(">qii").pack
"""Packs the place, which the log puts before an offsetless batch: base offset, `batch_length` (`HEADER_BYTES_COUNTED`
and the payload), leader epoch."""

OffsetlessBatch = tuple[bytes, bytes]
"""A stored batch without its place: the rest of the header with its checksum, and the payload. They stay two pieces,
because they are copied anyway once the offset is known."""

ExamineBatch = Callable[[bytes, bytes, int], tuple[bytes, int, int | None]]
"""Function of the covered part of a header, the payload, and the largest number of items to count; 0 = count nothing.
Returns the rest of the header with the checksum, the checksum, and the number of records in the payload.

The payload is read as Kafka's records if the header says so, else as the message `Records`. Items are Kafka's records
and their headers; in the message there is no limit to them. The number is None if it was not requested, or if there are
more items. It is also None if the payload is not what it is read as, or if only parsing it would tell."""


class Encoding(IntEnum):
    """Format of the payload."""

    CONTROL = 0
    """The payload is one marker (see `marker`); only the server writes such a batch."""
    RECORDS_V1 = 1
    """The protobuf message `Records`."""
    ARROW_V1 = 2
    """One Arrow record batch of one fixed schema."""
    RECORDS_V2 = 3
    """The same message with an offset delta for each record. Only the log itself writes such a batch, when it removes
    records from one."""
    ARROW_V2 = 4
    """One Arrow record batch of the schema of ARROW_V1 with one more column, the offset delta."""
    KAFKA_V2 = 5
    """The records of a Kafka batch of magic 2, as they follow its header. Each has its offset delta."""


class Compression(IntEnum):
    """Compression of the payload by the client, in Kafka's numbers."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class TimestampType(IntEnum):
    """Origin of the timestamps: the client or the log."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


_ENCODINGS: Final = tuple(Encoding)
_COMPRESSIONS: Final = tuple(Compression)
ENCODINGS_WITH_DELTAS: Final = frozenset((Encoding.RECORDS_V2, Encoding.ARROW_V2, Encoding.KAFKA_V2))
"""Encodings with an offset delta for each record, so that a batch may have holes. In all others records are
consecutive."""
ENCODINGS_OF_OLD_READERS: Final = frozenset(Encoding) - {Encoding.KAFKA_V2}
"""Encodings that every reader of version 1.0.0 takes. A reader names all others that it takes."""
_KAFKA: Final = Encoding.KAFKA_V2
"""Module-level alias, because every batch is compared with it: enum attribute lookup takes 0.1 us on CPython 3.11."""


class BatchHeader(Struct, frozen=True, gc=False):
    """The facts about a batch that need no look into its payload.

    A batch holds `record_count` records at offsets from `base_offset` to `last_offset`. A batch of no producer has -1
    as producer id, epoch and sequence."""

    base_offset: int
    record_count: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    encoding: Encoding
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    base_sequence: int = NO_SEQUENCE
    compression: Compression = Compression.NONE
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    is_transactional: bool = False
    is_control: bool = False
    hole_count: int = 0
    """Number of offsets in the batch without a record, because compaction removed it."""
    leader_epoch: int = NO_LEADER_EPOCH
    """Leader epoch of the partition when the batch was appended; -1 before that."""

    @property
    def last_offset_delta(self) -> int:
        """Distance from the first offset of the batch to the last."""
        return self.record_count + self.hole_count - 1

    @property
    def last_offset(self) -> int:
        """The last offset that the batch takes; the next batch starts after it."""
        return self.base_offset + self.record_count + self.hole_count - 1

    def records_between(self, start_offset: int, end_offset: int) -> int:
        """Return the number of its records in the half-open range.

        Exact if the whole batch is in the range or has no holes. Otherwise an upper bound, because only the payload
        shows the holes."""
        first, end = max(self.base_offset, start_offset), min(self.last_offset + 1, end_offset)
        return min(self.record_count, max(0, end - first))

    @property
    def last_sequence(self) -> int:
        """The last sequence that the batch takes, or -1 if it has none."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        # Wraps to 0 after SEQUENCE_MAX.
        return (self.base_sequence + self.record_count + self.hole_count - 1) & SEQUENCE_MAX


# All values of Kafka's attribute bits (0-2 compression, 3 timestamp type, 4 transactional, 5 control), in the order of
# the four fields. A missing value = not a batch of this version.
_FLAGS: Final[Mapping[int, tuple[Compression, TimestampType, bool, bool]]] = {
    compression | timestamp_type << 3 | is_transactional << 4 | is_control << 5: (
        compression,
        timestamp_type,
        is_transactional,
        is_control,
    )
    for compression in Compression
    for timestamp_type in TimestampType
    for is_transactional in (False, True)
    for is_control in (False, True)
}


def encode_offsetless(header: BatchHeader, payload: bytes) -> OffsetlessBatch:
    """Return the stored form of a batch whose place is not known yet, checksum included.

    The result of `pack_place` goes before it. The header must be valid: see `client_batch`."""
    covered = encode_covered(header)
    return pack_uncovered(crc32c(payload, crc32c(checked_part(covered)))) + covered, payload


def encode_covered(header: BatchHeader) -> bytes:
    """Return the fields that the checksum covers besides the payload.

    Raises: struct.error for a number that is too large for its field."""
    record_count = header.record_count
    return pack_covered(
        header.compression | header.timestamp_type << 3 | header.is_transactional << 4 | header.is_control << 5,
        record_count + header.hole_count - 1,
        header.base_timestamp_ms,
        header.max_timestamp_ms,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        record_count,
        header.encoding,
        FORMAT_VERSION,
        0,
    )


def covered_part(offsetless: OffsetlessBatch) -> bytes:
    """Return the header of a batch from the attributes on, as `pack_covered` returned it."""
    return offsetless[0][_CRC_ENDS_AT - _MAGIC_AT :]


def stored_bytes(batch: bytes | memoryview) -> int:
    """Return the size of a stored batch in bytes, its header included, even if the payload was cut off."""
    length: int = _LENGTH.unpack_from(batch, LENGTH_ENDS_AT - _LENGTH.size)[0]
    return LENGTH_ENDS_AT + length


def split_row(row: BytesT) -> tuple[BytesT, BytesT | None]:
    """Return the batch of a row of the log, and the tail after it if there is one (`marker`).

    If the row was cut, the batch is only its header. Bytes that are neither are left for `decode_header` to refuse."""
    if len(row) >= HEADER_BYTES + TAIL_BYTES:
        batch_ends_at: int = LENGTH_ENDS_AT + _LENGTH.unpack_from(row, LENGTH_ENDS_AT - _LENGTH.size)[0]
        tail_begins_at = len(row) - TAIL_BYTES
        if batch_ends_at == tail_begins_at or (tail_begins_at == HEADER_BYTES and batch_ends_at > len(row)):
            return row[:tail_begins_at], row[tail_begins_at:]
    return row, None


def cut_row(row: bytes) -> bytes:
    """Return a row of the log without the payload: the header of its batch, and the tail if there is one.

    A row that is hardly longer stays whole, because a cut row must not look like a whole row of the same length."""
    if len(row) <= HEADER_BYTES + 2 * TAIL_BYTES:
        return row
    batch, tail = split_row(memoryview(row))
    header = bytes(batch[:HEADER_BYTES])
    return header if tail is None else header + tail


def decode_header(buffer: bytes | memoryview, *, may_be_cut: bool = False) -> BatchHeader:
    """Return the header of exactly one stored batch; if `may_be_cut`, its payload may be missing.

    The checksum is not checked: see `verify_batch`.

    Raises: Refused (CORRUPT_MESSAGE) if `buffer` is not one whole batch of a format known here."""
    if len(buffer) < HEADER_BYTES:
        raise _too_short(buffer)
    (
        base_offset,
        length,
        leader_epoch,
        magic,
        _,
        attributes,
        last_offset_delta,
        base_timestamp_ms,
        max_timestamp_ms,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
        encoding,
        format_version,
        reserved,
    ) = _HEADER.unpack_from(buffer)
    flags = _FLAGS.get(attributes)
    if (
        (
            length != len(buffer) - LENGTH_ENDS_AT
            and not (may_be_cut and len(buffer) == HEADER_BYTES and length > HEADER_BYTES_COUNTED)
        )
        or magic != _MAGIC
        or format_version != FORMAT_VERSION
        or reserved
        or encoding >= len(_ENCODINGS)
        or flags is None
        or flags[3] is not (encoding == Encoding.CONTROL)
        or not (record_count == last_offset_delta + 1 > 0 or _may_have_holes(encoding, record_count, last_offset_delta))
    ):
        raise _why_corrupt(buffer)
    return BatchHeader(
        base_offset,
        record_count,
        base_timestamp_ms,
        max_timestamp_ms,
        _ENCODINGS[encoding],
        producer_id,
        producer_epoch,
        base_sequence,
        *flags,
        last_offset_delta + 1 - record_count,
        leader_epoch,
    )


def payload_of(encoded: bytes | memoryview) -> memoryview:
    """Return the payload of a stored batch without copying it; the view keeps the whole batch alive."""
    return memoryview(encoded)[HEADER_BYTES:]


def batch_crc(header: BatchHeader, payload: bytes | memoryview) -> int:
    """Return the CRC-32C that a client sends with a batch. It does not depend on the base offset."""
    return crc32c(payload, crc32c(checked_part(encode_covered(header))), KEEP_THE_GIL)


def checked_part(covered: bytes) -> bytes:
    """Return the bytes of a packed header that its checksum covers: all of `pack_covered`, or what Kafka's has."""
    is_kafka = len(covered) == _COVERED_BYTES and covered[-OWN_BYTES] == _KAFKA
    return covered[:-OWN_BYTES] if is_kafka else covered


def kafka_covered(record_count: int, last_offset_delta: int) -> bytes:
    """Return a packed header of Kafka's with these numbers, for `ExamineBatch`; its other fields mean nothing."""
    return pack_covered(0, last_offset_delta, 0, 0, -1, -1, -1, record_count, _KAFKA, FORMAT_VERSION, 0)


def last_offset_delta_of(covered: bytes) -> int:
    """Return the last offset delta in a packed header, as `pack_covered` returns it."""
    delta: int
    (delta,) = _DELTA.unpack_from(covered, _DELTA_AT - _CRC_ENDS_AT)
    return delta


def stored_crc(encoded: bytes | memoryview) -> int:
    """Return the checksum written in a stored batch, unchecked."""
    if len(encoded) < HEADER_BYTES:
        raise _too_short(encoded)
    crc: int
    (crc,) = _CRC.unpack_from(encoded, _CRC_STARTS_AT)
    return crc


def verify_batch(encoded: bytes | memoryview) -> None:
    """Return only if `encoded` is one whole batch with the bytes that were written.

    Raises: Refused (CORRUPT_MESSAGE)."""
    decode_header(encoded)
    written, found = stored_crc(encoded), _crc_of(encoded)
    if written != found:
        raise _corrupt(f"the checksum says {written:#010x} and the bytes say {found:#010x}; restore them from a copy")


def _crc_of(encoded: bytes | memoryview) -> int:
    """Return the checksum of the bytes of a whole stored batch."""
    content = memoryview(encoded)
    if content[KAFKA_HEADER_BYTES] == _KAFKA:
        return crc32c(content[HEADER_BYTES:], crc32c(content[_CRC_ENDS_AT:KAFKA_HEADER_BYTES]), KEEP_THE_GIL)
    return crc32c(content[_CRC_ENDS_AT:], 0, KEEP_THE_GIL)


def encoding_of(number: int) -> Encoding:
    """Return the payload encoding with this number on the wire.

    Raises: Refused (UNSUPPORTED_FOR_MESSAGE_FORMAT) if this version does not know it."""
    if not 0 <= number < len(_ENCODINGS):
        raise Refused(
            ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
            f"payload encoding {number} is not known here; use RECORDS_V1 (1) or ARROW_V1 (2), or a newer server",
        )
    return _ENCODINGS[number]


def compression_of(number: int) -> Compression:
    """Return the compression with this number on the wire.

    Raises: Refused (UNSUPPORTED_COMPRESSION_TYPE) if this version does not know it."""
    if not 0 <= number < len(_COMPRESSIONS):
        raise Refused(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"compression {number} is not known here; use one of {', '.join(f'{c.name} ({c})' for c in Compression)}",
        )
    return _COMPRESSIONS[number]


def misplaced_delta(deltas: Sequence[int], last_offset_delta: int, *, behind: int = -1) -> int | None:
    """Return the first offset delta that is out of order or past the last offset; None if all are valid.

    `behind`: the delta before the first of them."""
    for delta in deltas:
        if not behind < delta <= last_offset_delta:
            return delta
        behind = delta
    return None


def has_possible_counts(header: BatchHeader) -> bool:
    """Return True if a batch of this encoding can have this number of records and of holes."""
    count, delta = header.record_count, header.last_offset_delta
    return count == delta + 1 > 0 or _may_have_holes(header.encoding, count, delta)


def _may_have_holes(encoding: int, record_count: int, last_offset_delta: int) -> bool:
    return encoding in ENCODINGS_WITH_DELTAS and 0 <= record_count <= last_offset_delta + 1 and last_offset_delta >= 0


def _why_corrupt(buffer: bytes | memoryview) -> Refused:
    """Return the error for the first defect of a header that `decode_header` did not accept."""
    _, length, _, magic, _, attributes, delta, *_, count, encoding, version, reserved = _HEADER.unpack_from(buffer)
    if magic != _MAGIC:
        return _corrupt(f"magic is {magic} and must be {_MAGIC}")
    if version != FORMAT_VERSION:
        return _corrupt(
            f"format version {version} is not known here, only {FORMAT_VERSION}; read it with a newer version"
        )
    size = length + LENGTH_ENDS_AT
    if size > len(buffer):
        return _corrupt(f"the batch says it takes {size} bytes and is cut off after {len(buffer)}")
    if size < len(buffer):
        return _corrupt(f"the batch says it takes {size} bytes and {len(buffer) - size} more follow")
    if encoding >= len(_ENCODINGS):
        if stored_crc(buffer) == crc32c(memoryview(buffer)[_CRC_ENDS_AT:], 0, KEEP_THE_GIL):
            # The bytes are as they were written, so there is no damage.
            text = f"payload encoding {encoding} is not known to this version"
            return Refused(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, text)
        return _corrupt(f"payload encoding {encoding} is not known here; read it with a newer version")
    if attributes not in _FLAGS or reserved:
        return _corrupt(
            f"attributes {attributes & 0xFFFF:#06x} or the reserved byte {reserved} mean nothing in this version"
        )
    if not (count == delta + 1 > 0 or _may_have_holes(encoding, count, delta)):
        return _corrupt(
            f"the record count {count} does not fit the last offset delta {delta} and the encoding "
            f"{Encoding(encoding).name}"
        )
    return _corrupt(f"the control bit does not fit the encoding {Encoding(encoding).name}")


def _too_short(buffer: bytes | memoryview) -> Refused:
    return _corrupt(f"a batch starts with {HEADER_BYTES} bytes of header and {len(buffer)} are there")


def _corrupt(what: str) -> Refused:
    return Refused(ErrorCode.CORRUPT_MESSAGE, f"not a stored batch: {what}")
