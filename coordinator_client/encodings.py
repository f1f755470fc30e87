"""Payloads of record batches, written and read by clients. The server checks that they can be read, and changes
nothing.

There are two encodings. `records.v1` is the protobuf message `Records`, which any generated stub can build. Arrow v1 is
one Arrow IPC message of a fixed schema, which Spark reads without touching a row. Each has a second version that
clients only read: the batches that compaction leaves, in which each record states its offset. Batches of Kafka's own
producers are only read, too. A `FetchedBatch` is verified: its checksum, its shape, and the number and offsets of its
records.

Source: design 6 (record batch).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeAlias

from google.protobuf.message import DecodeError
from msgspec import Struct

from coordinator_api.v1 import log_pb2 as log
from coordinator_client.errors import CorruptBatch, Rejected, TransactionError, corrupt, rejected
from coordinator_client.fetch_reply import Payload, WireBatch
from coordinator_client.values import Headers, Row
from coordinator_protocol.batch import (
    FORMAT_VERSION,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Compression,
    Encoding,
    TimestampType,
    batch_crc,
    compression_of,
    encoding_of,
    has_possible_counts,
    misplaced_delta,
    pack_covered,
)
from coordinator_protocol.checksum import KEEP_THE_GIL, crc32c
from coordinator_protocol.compression import NotUnpackable, pack, unpack_as
from coordinator_protocol.errors import Refused
from coordinator_protocol.kafka_records import NotKafkaRecords, PlacedRecord, RecordHeaders, decode_kafka_records
from coordinator_protocol.marker import Marker, Outcome, encode_marker_payload
from coordinator_protocol.producers import NO_SEQUENCE

if TYPE_CHECKING:
    import pyarrow as pa


ENCODING_NAMES: Final = MappingProxyType({"records": Encoding.RECORDS_V1, "arrow": Encoding.ARROW_V1})
ROW_OVERHEAD_BYTES: Final = 32
"""Upper bound of the bytes that either encoding adds to one record without headers."""

HEADER_OVERHEAD_BYTES: Final = 24
"""Upper bound of the bytes that either encoding adds to one header."""

BATCH_OVERHEAD_BYTES: Final = 2_048
"""Upper bound of the bytes of a batch besides its records: our header, Arrow's description, its padding, and the growth
of incompressible bytes."""

_UNCOMPRESSED: Final = Compression.NONE
_KAFKA: Final = Encoding.KAFKA_V2
"""Module-level aliases: looking a member up in its enum class takes 0.1 us, for every batch."""

ENCODINGS_READ: Final = tuple(log.Encoding.ValueType(each) for each in Encoding if each is not Encoding.CONTROL)
"""Encodings that this client can decode, as a Fetch names them. A server converts all others; an older one has none."""

_ARROW: Final = (Encoding.ARROW_V1, Encoding.ARROW_V2)

_ENCODINGS_ON_THE_WIRE: Final = tuple([log.Encoding.ValueType(each) for each in Encoding])
_COMPRESSIONS_ON_THE_WIRE: Final = tuple([log.Compression.ValueType(each) for each in Compression])
"""Wire values, indexed by our numbers, which are the same."""


class BatchStamp(Struct, frozen=True):
    """Stamp that a batch gets when it is sent for the first time, and keeps through all retries. -1 = no producer."""

    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    base_sequence: int = NO_SEQUENCE
    is_transactional: bool = False


def headers_bytes_max(headers: Headers) -> int:
    """Return an upper bound of the bytes that the headers of a record add to the payload, before compression."""
    # A character takes at most four bytes in UTF-8.
    return sum(HEADER_OVERHEAD_BYTES + 4 * len(name) + (len(content) if content else 0) for name, content in headers)


def write_batch(
    batch: log.RecordBatch, rows: Sequence[Row], *, encoding: Encoding, compression: Compression, stamp: BatchStamp
) -> None:
    """Fill an empty batch message, including its checksum.

    Raises: ImportError if Arrow is requested and not installed.
    """
    payload = _ENCODERS[encoding](rows)
    if compression is not _UNCOMPRESSED:
        payload = pack(payload, compression)
        batch.compression = _COMPRESSIONS_ON_THE_WIRE[compression]
    record_count, first_ms = len(rows), rows[0][2]
    # The wire has the first timestamp and the largest; for a single record they are the same.
    newest_ms = first_ms if record_count == 1 else max([row[2] for row in rows])
    producer_id, producer_epoch, base_sequence = stamp.producer_id, stamp.producer_epoch, stamp.base_sequence
    # Packed directly, because a header object would serve no other purpose.
    covered = pack_covered(
        compression | stamp.is_transactional << TRANSACTIONAL_BIT,
        record_count - 1,
        first_ms,
        newest_ms,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
        encoding,
        FORMAT_VERSION,
        0,
    )
    # Fields are set one by one, in the final request: half the cost of keyword arguments and copies.
    batch.record_count = record_count
    batch.base_timestamp_ms = first_ms
    batch.max_timestamp_ms = newest_ms
    batch.is_transactional = stamp.is_transactional
    batch.encoding = _ENCODINGS_ON_THE_WIRE[encoding]
    batch.crc32c = crc32c(payload, crc32c(covered), KEEP_THE_GIL)
    batch.payload = payload
    if producer_id != NO_PRODUCER_ID:
        batch.producer_id = producer_id
        batch.producer_epoch = producer_epoch
        batch.base_sequence = base_sequence


def header_of(batch: log.RecordBatch) -> BatchHeader:
    """Return the header of a batch message, unchecked except for its encoding and compression.

    Raises: Refused if encoding or compression has a number that this version does not know.
    """
    return BatchHeader(
        base_offset=batch.base_offset,
        record_count=batch.record_count,
        base_timestamp_ms=batch.base_timestamp_ms,
        max_timestamp_ms=batch.max_timestamp_ms,
        producer_id=batch.producer_id if batch.HasField("producer_id") else NO_PRODUCER_ID,
        producer_epoch=batch.producer_epoch if batch.HasField("producer_epoch") else NO_PRODUCER_EPOCH,
        base_sequence=batch.base_sequence if batch.HasField("base_sequence") else NO_SEQUENCE,
        encoding=Encoding.CONTROL if batch.is_control else encoding_of(batch.encoding),
        compression=compression_of(batch.compression),
        timestamp_type=TimestampType(1 if batch.timestamp_type else 0),
        is_transactional=batch.is_transactional,
        is_control=batch.is_control,
        hole_count=batch.hole_count,
    )


def marker_of(batch: log.RecordBatch) -> Marker | None:
    """Return the marker of a control batch; None for any other batch."""
    if not batch.is_control:
        return None
    return Marker(
        producer_id=batch.producer_id,
        txn_epoch=batch.marker.txn_epoch,
        next_epoch=batch.marker.next_epoch,
        coordinator_shard=batch.marker.coordinator_shard,
        coordinator_epoch=batch.marker.coordinator_epoch,
        outcome=Outcome.COMMIT if batch.marker.committed else Outcome.ABORT,
        csn=batch.marker.csn,
    )


def checked_header(batch: log.RecordBatch, payload: Payload, where: str) -> BatchHeader:
    """Return the header of a fetched batch whose checksum is right. `batch` may lack the payload.

    Raises: Rejected (CORRUPT_MESSAGE and the like), naming the place of the batch and the defect.
    """
    try:
        header = header_of(batch)
    except Refused as why:
        raise rejected(why.code, f"{where}: {why.message}") from None
    if not batch.HasField("crc32c"):
        raise corrupt(f"{where}: it came without a checksum")
    marker = marker_of(batch)
    # A control batch may come without the bytes of its marker: the fields say the same, and the checksum covers them.
    covered = payload if marker is None or payload else encode_marker_payload(marker, batch.marker.first_offset)
    found = batch_crc(header, covered)
    if found != batch.crc32c:
        raise corrupt(f"{where}: the checksum says {batch.crc32c:#010x} and the bytes say {found:#010x}")
    if not has_possible_counts(header):
        holes = f", and {header.hole_count} offsets without one" if header.hole_count else ""
        raise corrupt(f"{where}: it says that it holds {header.record_count} records{holes}")
    return header


def unpack(payload: Payload, header: BatchHeader, where: str) -> Payload:
    """Return the decompressed payload.

    Raises: Rejected (CORRUPT_MESSAGE) if the bytes are damaged, cut off, or unpack to more than `UNPACKED_BYTES_MAX` of
    `coordinator_protocol.compression`.
    """
    if header.compression is _UNCOMPRESSED:
        return payload
    try:
        return unpack_as(header.encoding, payload, header.compression)
    except NotUnpackable as why:
        raise corrupt(f"{where}: {why}") from None


def decode_rows(payload: Payload, header: BatchHeader, where: str) -> tuple[Sequence[int], list[Row]]:
    """Return the offsets of the records of an unpacked payload, ascending, and the records.

    Raises: Rejected (CORRUPT_MESSAGE) if they do not match the header.
    """
    if header.encoding is _KAFKA:
        deltas, rows = _decode_kafka(payload, header, where)
    else:
        deltas, rows = _DECODERS[header.encoding](payload, where)
    check_places(header, len(rows), deltas, where)
    first_offset = header.base_offset
    if deltas is None:
        return range(first_offset, first_offset + len(rows)), rows
    return [first_offset + delta for delta in deltas], rows


def check_places(header: BatchHeader, found_count: int, deltas: Sequence[int] | None, where: str) -> None:
    """Check that a payload holds as many records as its header says, at possible offsets. `deltas` is None if the
    records are consecutive.

    Raises: Rejected (CORRUPT_MESSAGE).
    """
    if found_count != header.record_count:
        raise corrupt(f"{where}: it says that it holds {header.record_count} records and holds {found_count}")
    wrong = None if deltas is None else misplaced_delta(deltas, header.last_offset_delta)
    if wrong is not None:
        raise corrupt(
            f"{where}: its records do not lie at ascending offsets up to {header.last_offset}, one is at "
            f"{header.base_offset + wrong}"
        )


def encode_records(rows: Sequence[Row]) -> bytes:
    """Return the rows as a serialized `Records` message."""
    message = log.Records()
    add = message.records.add
    for key, value, timestamp_ms, headers in rows:
        # Fields are set one by one: keyword arguments take nearly twice as long.
        record = add()
        if key is not None:
            record.key = key
        if value is not None:
            record.value = value
        record.timestamp_ms = timestamp_ms
        for name, content in headers:
            record.headers.add(key=name, value=content)
    return message.SerializeToString()


def decode_records(payload: Payload, where: str) -> list[Row]:
    """Return the rows of a serialized `Records` message. Raises: Rejected (CORRUPT_MESSAGE)."""
    return _rows(_parsed(payload, where))


def _parsed(payload: Payload, where: str) -> log.Records:
    message = log.Records()
    try:
        message.ParseFromString(bytes(payload))
    except DecodeError as error:
        raise corrupt(f"{where}: its payload is no Records message ({error})") from None
    return message


def _rows(message: log.Records) -> list[Row]:
    # Checking that a field is present costs as much as reading it, and only matters for an empty value. So this is
    # twice as fast.
    return [
        (
            record.key or (b"" if record.HasField("key") else None),
            record.value or (b"" if record.HasField("value") else None),
            record.timestamp_ms,
            _headers(record) if record.headers else (),
        )
        for record in message.records
    ]


def _headers(record: log.Record) -> Headers:
    return tuple((header.key, header.value if header.HasField("value") else None) for header in record.headers)


def _encode_arrow(rows: Sequence[Row]) -> bytes:
    from coordinator_client.arrow_encoding import encode_arrow

    return encode_arrow(rows)


def _decode_records_v1(payload: Payload, where: str) -> _Decoded:
    return None, decode_records(payload, where)


def _decode_records_v2(payload: Payload, where: str) -> _Decoded:
    message = _parsed(payload, where)
    return [record.offset_delta for record in message.records], _rows(message)


def _decode_arrow_v1(payload: Payload, where: str) -> _Decoded:
    from coordinator_client.arrow_encoding import arrow_rows, decode_arrow

    return None, arrow_rows(decode_arrow(payload, where))


def _decode_arrow_v2(payload: Payload, where: str) -> _Decoded:
    from coordinator_client.arrow_encoding import arrow_rows, decode_arrow_with_deltas

    deltas, batch = decode_arrow_with_deltas(payload, where)
    return deltas.to_pylist(), arrow_rows(batch)


def _decode_kafka(payload: Payload, header: BatchHeader, where: str) -> _Decoded:
    records = kafka_records(payload, header, where)
    rows = [
        (key, value, timestamp_ms, header_texts(headers) if headers else ())
        for _place, timestamp_ms, key, value, headers in records
    ]
    return [record[0] for record in records], rows


def kafka_records(payload: Payload, header: BatchHeader, where: str) -> list[PlacedRecord]:
    """Return the records of an unpacked payload of Kafka, with offsets and number unchecked.

    Raises: Rejected (CORRUPT_MESSAGE).
    """
    try:
        return decode_kafka_records(payload, header.base_timestamp_ms)
    except NotKafkaRecords as error:
        raise corrupt(f"{where}: its payload is no records of Kafka ({error})") from None


def header_texts(headers: RecordHeaders) -> Headers:
    """Return headers of a record of Kafka, with names as text. As in Kafka's own consumer, bytes that are no text
    become U+FFFD."""
    return tuple([(name.decode("utf-8", "replace"), content) for name, content in headers])


# Arrow is imported by the first batch that needs it, so that producers of plain records work without pyarrow.
_ENCODERS: Final[MappingProxyType[Encoding, Callable[[Sequence[Row]], bytes]]] = MappingProxyType(
    {Encoding.RECORDS_V1: encode_records, Encoding.ARROW_V1: _encode_arrow}
)
_Decoded: TypeAlias = tuple[list[int] | None, list[Row]]
"""Positions of the records in their batch, and the records; None = they are consecutive."""

_DECODERS: Final[MappingProxyType[Encoding, Callable[[Payload, str], _Decoded]]] = MappingProxyType(
    {
        Encoding.RECORDS_V1: _decode_records_v1,
        Encoding.ARROW_V1: _decode_arrow_v1,
        Encoding.RECORDS_V2: _decode_records_v2,
        Encoding.ARROW_V2: _decode_arrow_v2,
    }
)


class FetchedBatch(Struct, frozen=True, kw_only=True):
    """A verified batch, and the part of it that lies in the requested range."""

    topic: str
    partition: int
    header: BatchHeader
    content: Payload
    """Unpacked payload. If it was not compressed, it is a view that keeps the whole received answer in memory."""
    marker: Marker | None
    first_offset: int
    """First offset that is both in the batch and in the range. Batches come whole, so it may be above the first offset
    of the batch."""
    end_offset: int
    """End of the range in the batch, or the next offset after the batch."""

    @property
    def payload(self) -> bytes:
        """A copy of the unpacked payload."""
        return bytes(self.content)

    @property
    def record_count(self) -> int:
        """Number of records of the batch that lie in the range. Raises: CorruptBatch, but only for a batch with holes
        that lies partly in the range, because then the payload must be read."""
        header = self.header
        if not header.hole_count:
            return self.end_offset - self.first_offset
        if self._is_whole:
            return header.record_count
        return len(self.placed()[1])

    @property
    def where(self) -> str:
        """Place of the batch, for messages."""
        return place_of(self.topic, self.partition, self.header.base_offset)

    @property
    def _is_whole(self) -> bool:
        return self.first_offset == self.header.base_offset and self.end_offset == self.header.last_offset + 1

    def rows(self) -> list[Row]:
        """Return the records in the range; none for a marker. Raises: CorruptBatch."""
        return self.placed()[1]

    def placed(self) -> tuple[Sequence[int], list[Row]]:
        """Return the offsets of the records in the range, and the records; none for a marker. Raises: CorruptBatch."""
        if self.marker is not None:
            return (), []
        try:
            offsets, rows = decode_rows(self.content, self.header, self.where)
        except Rejected as why:
            raise self._corrupt(why) from why
        start, end = bisect_left(offsets, self.first_offset), bisect_left(offsets, self.end_offset)
        return offsets[start:end], rows[start:end]

    def as_arrow(self) -> pa.RecordBatch:
        """Return the records in the range as one Arrow batch of the fixed schema (`arrow_encoding.SCHEMA`).

        An Arrow payload is viewed, not copied. Raises: CorruptBatch, ImportError without pyarrow.
        """
        return self.placed_arrow()[1]

    def placed_arrow(self) -> tuple[pa.Array | None, pa.RecordBatch]:
        """Return a column with the offset of each record, and the result of `as_arrow`. None instead of the column =
        the offsets are consecutive from `first_offset` on. Raises: CorruptBatch, ImportError without pyarrow."""
        from coordinator_client.arrow_encoding import decode_arrow, decode_arrow_with_deltas, placed, rows_to_arrow

        header = self.header
        if self.marker is not None or header.encoding not in _ARROW:
            offsets, rows = self.placed()
            return placed(offsets) if header.hole_count else None, rows_to_arrow(rows)
        try:
            if header.encoding is Encoding.ARROW_V1:
                batch = decode_arrow(self.content, self.where)
                check_places(header, batch.num_rows, None, self.where)
                return None, batch.slice(self.first_offset - header.base_offset, self.record_count)
            deltas, batch = decode_arrow_with_deltas(self.content, self.where)
            places = deltas.to_pylist()
            check_places(header, batch.num_rows, places, self.where)
        except Rejected as why:
            raise self._corrupt(why) from why
        start = bisect_left(places, self.first_offset - header.base_offset)
        count = bisect_left(places, self.end_offset - header.base_offset) - start
        offsets_here = placed(deltas.slice(start, count), header.base_offset) if header.hole_count else None
        return offsets_here, batch.slice(start, count)

    def _corrupt(self, why: TransactionError) -> CorruptBatch:
        return corrupt_at(self.topic, self.partition, self.header.base_offset, self.header.last_offset + 1, why)


def checked_batch(
    topic: str, partition: int, batch: WireBatch, *, start_offset: int, end_offset: int | None
) -> FetchedBatch | None:
    """Return the part of a batch that lies in the range, unpacked; None if it holds no record.

    Raises: CorruptBatch.
    """
    fields, payload = batch.fields, batch.payload
    where = place_of(topic, partition, fields.base_offset)
    try:
        header = checked_header(fields, payload, where)
        content = payload if header.is_control else unpack(payload, header, where)
    except Rejected as why:
        # The number of offsets that the batch takes is the only information left to continue with.
        behind = fields.base_offset + max(1, fields.record_count + fields.hole_count)
        raise corrupt_at(topic, partition, max(fields.base_offset, start_offset), behind, why) from why
    first = max(header.base_offset, start_offset)
    after = header.last_offset + 1 if end_offset is None else min(header.last_offset + 1, end_offset)
    if first >= after:
        return None
    return FetchedBatch(
        topic=topic,
        partition=partition,
        header=header,
        content=content,
        marker=marker_of(fields),
        first_offset=first,
        end_offset=after,
    )


def corrupt_at(topic: str, partition: int, offset: int, next_offset: int, why: TransactionError) -> CorruptBatch:
    """Return the error for offsets that cannot be read, from `offset` up to `next_offset`."""
    return CorruptBatch(
        why.code, why.reason, topic=topic, partition=partition, offset=offset, next_offset=max(next_offset, offset + 1)
    )


def place_of(topic: str, partition: int, offset: int) -> str:
    """Return the name of an offset of a partition, for messages."""
    return f"{topic}-{partition} at offset {offset}"
