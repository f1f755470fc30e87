"""The batches that a client may send: what the log checks of a header and its payload before it stores them.

Source: spec log-and-runtime 1.2 and 1.3 step 1; Kafka's `LogValidator`.
"""

from __future__ import annotations

import struct
from typing import Final

from coordinator_protocol.batch import (
    HEADER_BYTES,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP_MS,
    OWN_BYTES,
    BatchHeader,
    Compression,
    Encoding,
    ExamineBatch,
    OffsetlessBatch,
    TimestampType,
    batch_crc,
    compression_of,
    encode_covered,
    encoding_of,
)
from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.producers import NO_SEQUENCE, SEQUENCE_MAX

_EPOCH_MAX: Final = 2**15 - 1
_INT32_MAX: Final = 2**31 - 1
_INT64_MAX: Final = 2**63 - 1
_CLIENT_ENCODINGS: Final = (Encoding.RECORDS_V1, Encoding.ARROW_V1, Encoding.KAFKA_V2)
_CLIENT_KINDS: Final = frozenset(
    (0, TimestampType.CREATE_TIME, encoding, compression)
    for encoding in _CLIENT_ENCODINGS
    for compression in Compression
)
"""Combinations of base offset, timestamp type, encoding and compression that a client may send."""

KAFKA_EXTRA_BYTES: Final = 15
"""Bytes by which a stored batch of Kafka's may be larger than `batch_bytes_max`. Kafka's own limit is 12 bytes more
than a round number, and its header 3 bytes shorter. So what fits the default there fits the default here."""


def check_client_batch(header: BatchHeader, payload: bytes, *, crc: int | None, batch_bytes_max: int) -> None:
    """Return only if a client may send this batch. The partition checks its place in the producer's sequence.

    `crc` is the client's result of `batch_crc`, or None if it left that to the server. `batch_bytes_max` bounds the
    stored form, header included; Kafka's batches may have `KAFKA_EXTRA_BYTES` more.

    Raises: Refused with INVALID_RECORD (shape), UNSUPPORTED_FOR_MESSAGE_FORMAT, UNSUPPORTED_COMPRESSION_TYPE,
    INVALID_TIMESTAMP, MESSAGE_TOO_LARGE or CORRUPT_MESSAGE.

    Source: spec log-and-runtime 1.2 and 1.3 step 1; Kafka's `LogValidator`."""
    size, size_max = HEADER_BYTES + len(payload), batch_bytes_max
    if header.encoding == Encoding.KAFKA_V2:
        # The refusal names sizes as Kafka's clients count them.
        size, size_max = size - OWN_BYTES, size_max + KAFKA_EXTRA_BYTES - OWN_BYTES
    if size > size_max:
        raise Refused(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the batch takes {size} bytes and at most {size_max} are allowed; send fewer records in one batch",
        )
    _check_format(header)
    _check_range(header, payload)
    _check_producer(header)
    # Last, because it is the only check that reads the payload, and because only now every field is known to fit its
    # bytes.
    if crc is not None and crc != batch_crc(header, payload):
        raise _wrong_crc(crc)


def encode_client_batch(
    header: BatchHeader, payload: bytes, *, crc: int | None, batch_bytes_max: int, examine: ExamineBatch, items_max: int
) -> tuple[OffsetlessBatch, int | None]:
    """Return a batch that a client may send, and the number of records found in it, if they were counted.

    `items_max`: third argument of `examine`. The checksum is computed once. Raises: Refused as
    `check_client_batch`."""
    payload_bytes = len(payload)
    if (
        not 0 < payload_bytes <= batch_bytes_max - HEADER_BYTES
        or header.record_count < 1
        or header.hole_count
        or not NO_TIMESTAMP_MS <= header.base_timestamp_ms <= header.max_timestamp_ms
        or (header.base_offset, header.timestamp_type, header.encoding, header.compression) not in _CLIENT_KINDS
        or header.is_control
        or header.producer_id < 0
        or header.producer_epoch < 0
        or header.base_sequence < 0
    ):
        # Raises the specific error, or accepts a batch of no producer, which is valid.
        check_client_batch(header, payload, crc=None, batch_bytes_max=batch_bytes_max)
    try:
        covered = encode_covered(header)
    except struct.error:
        # A number is too large for its bytes: the packer checks all of them anyway.
        check_client_batch(header, payload, crc=None, batch_bytes_max=batch_bytes_max)
        raise
    rest_of_header, found, record_count = examine(covered, payload, items_max)
    if crc is not None and crc != found:
        raise _wrong_crc(crc)
    return (rest_of_header, payload), record_count


def _check_format(header: BatchHeader) -> None:
    if header.is_control or header.encoding not in _CLIENT_ENCODINGS:
        raise _why_no_client_writes(header)
    compression_of(header.compression)


def _why_no_client_writes(header: BatchHeader) -> Refused:
    if header.is_control or header.encoding == Encoding.CONTROL:
        return _invalid("clients do not write control batches; end the transaction with EndTxn")
    encoding = encoding_of(header.encoding)
    return _invalid(
        f"clients do not write the encoding {encoding.name}, which compaction leaves; use RECORDS_V1 or ARROW_V1"
    )


def _check_range(header: BatchHeader, payload: bytes) -> None:
    if header.base_offset != 0:
        raise _invalid(f"the base offset is {header.base_offset} and must be 0: the log assigns offsets")
    if not 1 <= header.record_count <= _INT32_MAX:
        raise _invalid(f"the record count is {header.record_count} and must be between 1 and {_INT32_MAX}")
    if header.hole_count:
        raise _invalid(
            f"the batch says that {header.hole_count} of its offsets are without a record, and only compaction takes "
            "records away: send a hole_count of 0 and all records of the batch"
        )
    if not payload:
        raise _invalid(f"the payload is empty and cannot hold {header.record_count} records")
    if header.timestamp_type != TimestampType.CREATE_TIME:
        raise Refused(
            ErrorCode.INVALID_TIMESTAMP,
            "only the log itself writes LOG_APPEND_TIME; send the timestamp type CREATE_TIME",
        )
    if not NO_TIMESTAMP_MS <= header.base_timestamp_ms <= header.max_timestamp_ms <= _INT64_MAX:
        raise Refused(
            ErrorCode.INVALID_TIMESTAMP,
            f"the base timestamp {header.base_timestamp_ms} ms must not be before {NO_TIMESTAMP_MS} (none) "
            f"or after the maximum timestamp {header.max_timestamp_ms} ms",
        )


def _check_producer(header: BatchHeader) -> None:
    producer_id, epoch, sequence = header.producer_id, header.producer_epoch, header.base_sequence
    if producer_id == NO_PRODUCER_ID and epoch == NO_PRODUCER_EPOCH and sequence == NO_SEQUENCE:
        if header.is_transactional:
            raise _invalid("a transactional batch needs producer id, epoch and sequence; call InitProducerId first")
    elif not (0 <= producer_id <= _INT64_MAX and 0 <= epoch <= _EPOCH_MAX and 0 <= sequence <= SEQUENCE_MAX):
        raise _invalid(
            f"producer id {producer_id}, epoch {epoch} and sequence {sequence} must all be in range, or all be -1; "
            "they come from InitProducerId"
        )


def _wrong_crc(crc: int) -> Refused:
    return Refused(
        ErrorCode.CORRUPT_MESSAGE,
        f"the batch came with checksum {crc:#010x}, which its bytes do not have; send it again",
    )


def _invalid(what: str) -> Refused:
    return Refused(ErrorCode.INVALID_RECORD, what)
