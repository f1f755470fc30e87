"""The same records as batches of every encoding: stored, as clients write them or as compaction leaves them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import cramjam
from hypothesis import strategies as st
from msgspec.structs import replace

from coordinator_api.v1 import log_pb2
from coordinator_protocol.batch import ENCODINGS_WITH_DELTAS, BatchHeader, Compression, Encoding
from coordinator_protocol.compression import pack
from coordinator_protocol.kafka_records import PlacedRecord, encode_kafka_records
from tests.harness.stored_batches import encode_batch

READABLE: Final = tuple(encoding for encoding in Encoding if encoding is not Encoding.CONTROL)
CONTENT: Final = st.none() | st.binary(max_size=150)
NAMES: Final = st.text(max_size=20).map(str.encode)
HEADERS: Final = st.lists(st.tuples(NAMES, CONTENT), max_size=3).map(tuple)
TIMES_MS: Final = st.integers(-1, 50) | st.integers(1_700_000_000_000, 1_700_000_100_000) | st.just(2**63 - 1)
RECORDS: Final = st.lists(st.tuples(TIMES_MS, CONTENT, CONTENT, HEADERS), max_size=8)


@st.composite
def placed_records(draw: st.DrawFn, *, has_holes: bool | None = None, count_min: int = 0) -> list[PlacedRecord]:
    """Records at their offset deltas, with names of headers that are text."""
    records = draw(RECORDS.filter(lambda records: len(records) >= count_min))
    with_holes = draw(st.booleans()) if has_holes is None else has_holes
    steps = [draw(st.integers(1, 100)) if with_holes else 1 for _ in records]
    return [(sum(steps[: at + 1]) - 1, *record) for at, record in enumerate(records)]


def stored(
    records: Sequence[PlacedRecord], encoding: Encoding, *, last_delta: int | None = None, **fields: Any
) -> bytes:
    """The stored batch of these records; `fields` are more of its header."""
    last = (records[-1][0] if records else 0) if last_delta is None else last_delta
    times_ms = [record[1] for record in records] or [0]
    header = BatchHeader(
        base_offset=0,
        record_count=len(records),
        base_timestamp_ms=max(-1, times_ms[0]),
        max_timestamp_ms=max(times_ms),
        encoding=encoding,
        hole_count=last + 1 - len(records),
    )
    header = replace(header, **fields)
    return encode_batch(header, packed(payload_of_records(records, header), header))


def payload_of_records(records: Sequence[PlacedRecord], header: BatchHeader) -> bytes:
    """The payload before compression."""
    if header.encoding is Encoding.KAFKA_V2:
        return encode_kafka_records(records, header.base_timestamp_ms)
    if header.encoding in (Encoding.RECORDS_V1, Encoding.RECORDS_V2):
        return _records(records, has_deltas=header.encoding in ENCODINGS_WITH_DELTAS)
    return _arrow(records, has_deltas=header.encoding in ENCODINGS_WITH_DELTAS)


def packed(payload: bytes, header: BatchHeader) -> bytes:
    """The payload as the writer of this encoding compresses it."""
    if header.encoding is Encoding.KAFKA_V2 and header.compression is Compression.SNAPPY:
        return xerial(payload)
    return pack(payload, header.compression)


def xerial(payload: bytes, block_bytes: int = 100) -> bytes:
    """The payload in blocks of Snappy, as Kafka's clients in Java write it."""
    blocks = [payload[at : at + block_bytes] for at in range(0, len(payload), block_bytes)]
    compressed = [bytes(cramjam.snappy.compress_raw(block)) for block in blocks]
    framed = [len(block).to_bytes(4, "big") + block for block in compressed]
    return b"\x82SNAPPY\0" + bytes([0, 0, 0, 1, 0, 0, 0, 1]) + b"".join(framed)


def _records(records: Sequence[PlacedRecord], *, has_deltas: bool) -> bytes:
    message = log_pb2.Records()
    for place, timestamp_ms, key, value, headers in records:
        record = message.records.add(key=key, value=value, timestamp_ms=timestamp_ms)
        if has_deltas:
            record.offset_delta = place
        for name, content in headers:
            record.headers.add(key=name.decode(), value=content)
    return message.SerializeToString()


def _arrow(records: Sequence[PlacedRecord], *, has_deltas: bool) -> bytes:
    import pyarrow as pa

    from coordinator_client.arrow_encoding import SCHEMA_V2, rows_to_arrow

    rows: list[Any] = [
        (key, value, timestamp_ms, tuple((name.decode(), content) for name, content in headers))
        for _place, timestamp_ms, key, value, headers in records
    ]
    batch = rows_to_arrow(rows)
    if has_deltas:
        places = pa.array([record[0] for record in records], pa.int32())
        batch = pa.RecordBatch.from_arrays([*batch.columns, places], schema=SCHEMA_V2)
    payload: bytes = batch.serialize().to_pybytes()
    return payload
