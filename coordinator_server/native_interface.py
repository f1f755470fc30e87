"""The compiled module, if it has the interface that this server knows: its transport, and functions for the core.

Importing this raises ImportError if the module is not installed or has another interface.
"""

from __future__ import annotations

from typing import Final

import txn_native_transport as native

from coordinator_protocol.arrow_payload import NotArrow, arrow_buffers
from coordinator_protocol.batch import ENCODINGS_WITH_DELTAS, BatchHeader, Encoding, ExamineBatch
from partition_log.conversion import kafka_payload_of, records_payload_of

__all__ = ["compiled_examine_batch", "compiled_kafka_payload_of", "compiled_records_payload_of", "native"]

_INTERFACE: Final = 16
_OF_RECORDS: Final = (Encoding.RECORDS_V1, Encoding.RECORDS_V2)
if native.INTERFACE != _INTERFACE:
    raise ImportError(f"txn_native_transport has interface {native.INTERFACE}, and this server knows {_INTERFACE}")

compiled_examine_batch: Final[ExamineBatch] = native.examine_batch


def compiled_kafka_payload_of(header: BatchHeader, plain: bytes) -> bytes:
    """Implements `ConvertPayload` as `kafka_payload_of`, which also judges what the compiled function does not
    convert."""
    has_deltas = header.encoding in ENCODINGS_WITH_DELTAS
    expected = header.record_count, header.last_offset_delta, header.base_timestamp_ms
    if header.encoding in _OF_RECORDS:
        found = native.kafka_of_records(plain, has_deltas, *expected)
    else:
        found = _kafka_of_arrow(header, plain, has_deltas=has_deltas)
    return kafka_payload_of(header, plain) if found is None else found


def compiled_records_payload_of(header: BatchHeader, plain: bytes) -> bytes:
    """Implements `ConvertPayload` as `records_payload_of`, which also judges what the compiled function does not
    convert."""
    expected = header.record_count, header.last_offset_delta, header.base_timestamp_ms
    found = native.records_of_kafka(plain, header.hole_count > 0, *expected)
    return records_payload_of(header, plain) if found is None else found


def _kafka_of_arrow(header: BatchHeader, plain: bytes, *, has_deltas: bool) -> bytes | None:
    try:
        buffers = arrow_buffers(plain, has_deltas=has_deltas)
    except NotArrow:
        return None
    if buffers.row_count != header.record_count:
        return None
    return native.kafka_of_arrow(
        plain,
        buffers.places,
        buffers.null_counts,
        header.record_count,
        header.last_offset_delta,
        header.base_timestamp_ms,
    )
