"""Conversion of stored batches for readers of another encoding. Kafka's consumers get records of ours, and readers that
know only `Records` get batches of Kafka's producers.

A converted batch has the offsets, sequences, producer, timestamps and holes of the stored one, and the bit of its
transaction. It is not compressed, and its checksum is computed anew. What is stored stays as it is.

These are pure functions of values. Conversion takes microseconds for each record, so a large batch (`is_large`) belongs
into the worker. `coordinator_server.compiled` has the same functions with a compiled inside.

Source: decision 22 (the log stores what the client wrote); Kafka's `RecordBatch`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from msgspec.structs import replace

from coordinator_protocol.arrow_payload import NotArrow
from coordinator_protocol.arrow_records import placed_arrow_records
from coordinator_protocol.batch import (
    ENCODINGS_WITH_DELTAS,
    HEADER_BYTES,
    HEADER_BYTES_COUNTED,
    OWN_BYTES,
    BatchHeader,
    Compression,
    Encoding,
    encode_offsetless,
    misplaced_delta,
    pack_place,
    stored_bytes,
)
from coordinator_protocol.compression import NotUnpackable, unpack_as
from coordinator_protocol.kafka_records import (
    NotKafkaRecords,
    PlacedRecord,
    decode_kafka_records,
    encode_kafka_records,
)
from coordinator_protocol.wire import Buffer
from partition_log.batch_checks import RECORDS_HERE_MAX, UNPACKED_HERE_BYTES_MAX, record_pieces
from partition_log.codec import NotRecords, encode_records, placed_records_of

ConvertPayload: TypeAlias = Callable[[BatchHeader, bytes], bytes]
"""Function of the header of a stored batch and its unpacked payload. Returns the payload in the other encoding. Raises
NotConvertible."""

_OF_RECORDS: Final = (Encoding.RECORDS_V1, Encoding.RECORDS_V2)


class NotConvertible(Exception):
    """Error for a payload that no reader can decode as its header says. The text gives the reason."""


def is_large(header: BatchHeader, size_bytes: int) -> bool:
    """Return True if conversion of a batch of this stored size may take longer than the loop can spare. A compressed
    batch counts as large, because only unpacking tells its size."""
    return (
        header.compression is not Compression.NONE
        or size_bytes > UNPACKED_HERE_BYTES_MAX
        or header.record_count > RECORDS_HERE_MAX
    )


def kafka_batch_of(header: BatchHeader, batch: Buffer, convert: ConvertPayload | None = None) -> bytes:
    """Return a stored batch of ours as Kafka's record batch of version 2.

    Not for control batches, nor for batches of Kafka. Raises: NotConvertible."""
    payload = (convert or kafka_payload_of)(header, _unpacked(header, batch))
    # The checksum of this encoding is Kafka's, and the last bytes of our header are none of Kafka's.
    kafka = replace(header, encoding=Encoding.KAFKA_V2, compression=Compression.NONE)
    rest_of_header, _payload = encode_offsetless(kafka, payload)
    length = HEADER_BYTES_COUNTED - OWN_BYTES + len(payload)
    place = pack_place(header.base_offset, length, header.leader_epoch)
    return b"".join((place, rest_of_header[:-OWN_BYTES], payload))


def records_batch_of(header: BatchHeader, batch: Buffer, convert: ConvertPayload | None = None) -> bytes:
    """Return a stored batch of Kafka as a stored batch of `RECORDS_V1`, or of `RECORDS_V2` if it has holes.

    Raises: NotConvertible."""
    payload = (convert or records_payload_of)(header, _unpacked(header, batch))
    encoding = Encoding.RECORDS_V2 if header.hole_count else Encoding.RECORDS_V1
    rest_of_header, _payload = encode_offsetless(
        replace(header, encoding=encoding, compression=Compression.NONE), payload
    )
    place = pack_place(header.base_offset, HEADER_BYTES_COUNTED + len(payload), header.leader_epoch)
    return b"".join((place, rest_of_header, payload))


def kafka_payload_of(header: BatchHeader, plain: bytes) -> bytes:
    """Implements `ConvertPayload` from our encodings to Kafka's, as the reference of the compiled function."""
    return encode_kafka_records(_records_in(header, plain), header.base_timestamp_ms)


def records_payload_of(header: BatchHeader, plain: bytes) -> bytes:
    """Implements `ConvertPayload` from Kafka's encoding to `Records`, as the reference of the compiled function."""
    return encode_records(_records_in(header, plain), has_deltas=header.hole_count > 0)


def records_of_batch(header: BatchHeader, batch: Buffer) -> list[PlacedRecord]:
    """Return the records of a stored batch of any encoding. Not for control batches. Raises: NotConvertible."""
    return _records_in(header, _unpacked(header, batch))


def _records_in(header: BatchHeader, plain: bytes) -> list[PlacedRecord]:
    """Return the records of an unpacked payload, as many as the header says. Raises: NotConvertible."""
    has_deltas = header.encoding in ENCODINGS_WITH_DELTAS
    try:
        if header.encoding is Encoding.KAFKA_V2:
            records = decode_kafka_records(plain, header.base_timestamp_ms)
        elif header.encoding in _OF_RECORDS:
            records = placed_records_in(plain, has_deltas=has_deltas)
        else:
            records = placed_arrow_records(plain, has_deltas=has_deltas)
    except (NotRecords, NotArrow, NotKafkaRecords, ValueError) as error:
        raise NotConvertible(str(error)) from error
    check_places(header, records)
    return records


def check_places(header: BatchHeader, records: Sequence[PlacedRecord]) -> None:
    """Check that a batch has as many records as its header says, at possible offsets. Raises: NotConvertible."""
    if len(records) != header.record_count:
        raise NotConvertible(f"it holds {len(records)} records and its header says {header.record_count}")
    wrong = misplaced_delta([record[0] for record in records], header.last_offset_delta)
    if wrong is not None:
        raise NotConvertible(
            f"its records do not lie at ascending places up to {header.last_offset_delta}, one is at {wrong}"
        )


def placed_records_in(plain: bytes, *, has_deltas: bool) -> list[PlacedRecord]:
    """Return the records of a payload of `Records`. Raises: NotRecords, ValueError."""
    records: list[PlacedRecord] = []
    for piece in record_pieces(plain):
        records += placed_records_of(piece, None if has_deltas else len(records))
    return records


def _unpacked(header: BatchHeader, batch: Buffer) -> bytes:
    """Return the unpacked payload of a stored batch, without a marker behind it. Raises: NotConvertible."""
    try:
        return unpack_as(header.encoding, memoryview(batch)[HEADER_BYTES : stored_bytes(batch)], header.compression)
    except NotUnpackable as error:
        raise NotConvertible(str(error)) from error
