"""Functions of the compiled module that a server uses with any transport."""

from __future__ import annotations

from functools import cache

from coordinator_protocol.batch import ExamineBatch, decode_header
from partition_log.codec import examine_batch
from partition_log.conversion import (
    ConvertPayload,
    kafka_batch_of,
    kafka_payload_of,
    records_batch_of,
    records_payload_of,
)


def fastest_examine_batch() -> ExamineBatch:
    """Return the compiled function, or the Python one if no usable compiled module is installed."""
    try:
        from coordinator_server.native_interface import compiled_examine_batch
    except ImportError:
        return examine_batch
    return compiled_examine_batch


def to_kafka(batch: bytes) -> bytes:
    """Return `kafka_batch_of` of a whole stored batch, by the fastest functions there are. A module-level function of
    plain values, so that another process can run it. Raises: NotConvertible."""
    convert, _ = fastest_conversions()
    return kafka_batch_of(decode_header(batch), batch, convert)


def to_records(batch: bytes) -> bytes:
    """Return `records_batch_of` of a whole stored batch, as `to_kafka` does. Raises: NotConvertible."""
    _, convert = fastest_conversions()
    return records_batch_of(decode_header(batch), batch, convert)


@cache
def fastest_conversions() -> tuple[ConvertPayload, ConvertPayload]:
    """Return the functions that convert payloads to Kafka's records and to `Records`: compiled, or in Python as for
    `fastest_examine_batch`."""
    try:
        from coordinator_server.native_interface import compiled_kafka_payload_of, compiled_records_payload_of
    except ImportError:
        return kafka_payload_of, records_payload_of
    return compiled_kafka_payload_of, compiled_records_payload_of
