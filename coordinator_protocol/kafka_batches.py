"""Kafka's record batches of magic 2, from a Produce request to a stored batch and back to a Fetch answer.

Kafka's header has 61 bytes. Ours has the same, and then three of its own (`batch`). So a stored batch of the encoding
`KAFKA_V2` is Kafka's with three bytes put in and another length. The payload and its checksum are Kafka's:

```
Kafka's:  base offset, length, leader epoch | magic, checksum, attributes ... record count |         records
stored:   base offset, length, leader epoch | the same                                     | 3 bytes records
```
A batch on its way to a reader so needs 16 new bytes, and the rest is sent from where it lies. Base offset and leader
epoch are outside of both checksums.

A marker has another payload here than in Kafka, and is made anew (`marker_to_kafka`).

Source: Kafka's `DefaultRecordBatch`, `LogValidator` and `EndTransactionMarker`; KIP-98.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Final

from coordinator_protocol.batch import (
    HEADER_BYTES,
    KAFKA_HEADER_BYTES,
    LENGTH_ENDS_AT,
    OWN_BYTES,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Compression,
    Encoding,
    TimestampType,
    compression_of,
)
from coordinator_protocol.checksum import crc32c
from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.marker import Outcome
from coordinator_protocol.producers import NO_SEQUENCE
from coordinator_protocol.wire import Buffer

_MAGIC: Final = 2
_MAGIC_AT: Final = 16
_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_PLACE: Final = struct.Struct(">qii")
_LENGTH: Final = struct.Struct(">i")
_LENGTH_AT: Final = LENGTH_ENDS_AT - _LENGTH.size

_COMPRESSION_BITS: Final = 0b111
_TIMESTAMP_TYPE_BIT: Final = 1 << 3
_TRANSACTIONAL: Final = 1 << TRANSACTIONAL_BIT
_CONTROL: Final = 1 << 5
_KNOWN_BITS: Final = _COMPRESSION_BITS | _TIMESTAMP_TYPE_BIT | _TRANSACTIONAL | _CONTROL

_COVERED: Final = struct.Struct(">hiqqqhii")
_UNCOVERED: Final = struct.Struct(">qiibI")
_MARKER_KEY: Final = struct.Struct(">hh")
_MARKER_VALUE: Final = struct.Struct(">hi")
_MARKER_VERSION: Final = 0
_CACHED_MAX: Final = 1_024

assert _HEADER.size == KAFKA_HEADER_BYTES

KafkaBatch = tuple[BatchHeader, bytes, int]
"""A batch from a Kafka client: its header as the log takes it, its payload, and its checksum, which is not checked
yet."""


def from_kafka(records: Buffer) -> KafkaBatch:
    """Return the one batch in the field `records` of a Produce request. The payload is a copy, and was not looked into.

    Other checks are left to `check_client_batch`. Raises: Refused with CORRUPT_MESSAGE (no batch),
    UNSUPPORTED_FOR_MESSAGE_FORMAT (older formats), INVALID_RECORD (a batch that no client may send),
    UNSUPPORTED_COMPRESSION_TYPE or INVALID_TIMESTAMP."""
    if len(records) <= _MAGIC_AT:
        raise _corrupt(f"a batch does not fit into {len(records)} bytes")
    magic = records[_MAGIC_AT]
    if magic in (0, 1):
        raise Refused(
            ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
            f"messages of magic {magic} are not taken; use a client that writes record batches of magic {_MAGIC}",
        )
    if magic != _MAGIC:
        raise _corrupt(f"its magic is {magic} and must be {_MAGIC}")
    if len(records) < KAFKA_HEADER_BYTES:
        raise _corrupt(f"a batch begins with {KAFKA_HEADER_BYTES} bytes of header, and {len(records)} are there")
    (
        base_offset,
        length,
        _leader_epoch,
        _magic,
        crc,
        attributes,
        last_offset_delta,
        base_timestamp_ms,
        max_timestamp_ms,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    ) = _HEADER.unpack_from(records)
    _check_length(length, len(records))
    compression = _compression_of(attributes)
    if last_offset_delta != record_count - 1:
        raise _invalid(
            f"the batch says that it holds {record_count} records and that the last of them lies at offset "
            f"{last_offset_delta}; a client sends all records of a batch, from 0 on"
        )
    header = BatchHeader(
        base_offset,
        record_count,
        base_timestamp_ms,
        max_timestamp_ms,
        Encoding.KAFKA_V2,
        producer_id,
        producer_epoch,
        base_sequence,
        compression,
        TimestampType.CREATE_TIME,
        bool(attributes & _TRANSACTIONAL),
    )
    return header, bytes(memoryview(records)[KAFKA_HEADER_BYTES:]), crc


def _check_length(length: int, records_bytes: int) -> None:
    batch_bytes = LENGTH_ENDS_AT + length
    if batch_bytes < KAFKA_HEADER_BYTES or batch_bytes > records_bytes:
        raise _corrupt(f"the batch says that it takes {batch_bytes} bytes, and {records_bytes} are there")
    if batch_bytes < records_bytes:
        raise _invalid("a partition takes one batch in a request, and more bytes follow the first; send one batch")


def _compression_of(attributes: int) -> Compression:
    """Return the compression in the attributes. Raises Refused for attributes that no client may send."""
    if attributes & ~_KNOWN_BITS:
        raise _invalid(f"the attributes {attributes & 0xFFFF:#06x} have bits that mean nothing in a client's batch")
    if attributes & _CONTROL:
        raise _invalid("clients do not write control batches; end the transaction with EndTxn")
    if attributes & _TIMESTAMP_TYPE_BIT:
        raise Refused(
            ErrorCode.INVALID_TIMESTAMP,
            "only the log itself writes LOG_APPEND_TIME; send the timestamp type CREATE_TIME",
        )
    return compression_of(attributes & _COMPRESSION_BITS)


def to_kafka(header: BatchHeader, stored: Buffer) -> tuple[bytes, memoryview, memoryview]:
    """Return the pieces of Kafka's form of a stored batch of the encoding `KAFKA_V2`. Their bytes are to be sent one
    after the other.

    `stored` is the batch alone, without a marker's tail (`batches`). The second and third piece are views of it."""
    content = memoryview(stored)
    place = _PLACE.pack(header.base_offset, _stored_length(content) - OWN_BYTES, header.leader_epoch)
    return place, content[_MAGIC_AT:KAFKA_HEADER_BYTES], content[HEADER_BYTES:]


def marker_to_kafka(header: BatchHeader, outcome: Outcome, coordinator_epoch: int) -> bytes:
    """Return Kafka's control batch for a marker with this header."""
    payload = _marker_payload(outcome, coordinator_epoch)
    covered = _COVERED.pack(
        _TRANSACTIONAL | _CONTROL,
        0,
        header.base_timestamp_ms,
        header.max_timestamp_ms,
        header.producer_id,
        header.producer_epoch,
        NO_SEQUENCE,
        1,
    )
    length = KAFKA_HEADER_BYTES - LENGTH_ENDS_AT + len(payload)
    crc = crc32c(payload, crc32c(covered))
    return _UNCOVERED.pack(header.base_offset, length, header.leader_epoch, _MAGIC, crc) + covered + payload


@lru_cache(_CACHED_MAX)
def _marker_payload(outcome: Outcome, coordinator_epoch: int) -> bytes:
    """Return the one record of a control batch. All of its numbers fit a byte of their own."""
    key = _MARKER_KEY.pack(_MARKER_VERSION, outcome)
    value = _MARKER_VALUE.pack(_MARKER_VERSION, coordinator_epoch)
    # Attributes, timestamp and offset are 0, and there are no headers. A length is doubled, because it is zig-zag.
    body = b"\0\0\0" + bytes([2 * len(key)]) + key + bytes([2 * len(value)]) + value + b"\0"
    return bytes([2 * len(body)]) + body


def _stored_length(stored: memoryview) -> int:
    length: int
    (length,) = _LENGTH.unpack_from(stored, _LENGTH_AT)
    return length


def _corrupt(what: str) -> Refused:
    return Refused(ErrorCode.CORRUPT_MESSAGE, f"not a record batch: {what}")


def _invalid(what: str) -> Refused:
    return Refused(ErrorCode.INVALID_RECORD, what)
