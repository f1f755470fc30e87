"""Payloads: what was written is what is read, and what is damaged is named."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from coordinator_api.v1 import log_pb2 as log
from coordinator_client import encodings
from coordinator_client.encodings import (
    BATCH_OVERHEAD_BYTES,
    BatchStamp,
    checked_header,
    decode_rows,
    unpack,
    write_batch,
)
from coordinator_client.errors import Rejected
from coordinator_client.producer.batching import Accumulator, BatchFormat
from coordinator_client.values import TopicPartitionCount
from coordinator_protocol.batch import HEADER_BYTES, BatchHeader, Compression, Encoding
from coordinator_protocol.client_batch import check_client_batch
from coordinator_protocol.errors import ErrorCode
from coordinator_protocol.limits import MEBI

CONTENT = st.none() | st.binary(max_size=40)
ROWS = st.lists(
    st.tuples(
        CONTENT,
        CONTENT,
        st.integers(0, 2**63 - 1),
        st.lists(st.tuples(st.text(max_size=10), CONTENT), max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=8,
)
STAMP = BatchStamp(producer_id=7, producer_epoch=3, base_sequence=2**31 - 1, is_transactional=True)


@pytest.fixture(params=["records", "arrow"])
def encoding(request: pytest.FixtureRequest) -> Encoding:
    if request.param == "arrow":
        pytest.importorskip("pyarrow")
    return encodings.ENCODING_NAMES[request.param]


def a_batch(encoding: Encoding = Encoding.RECORDS_V1, rows=((b"k", b"v", 5, ()),), **options) -> log.RecordBatch:
    batch = log.RecordBatch()
    write_batch(batch, rows, encoding=encoding, **({"compression": Compression.NONE, "stamp": STAMP} | options))
    return batch


def header_of_two(encoding: Encoding) -> BatchHeader:
    return BatchHeader(base_offset=7, record_count=2, base_timestamp_ms=0, max_timestamp_ms=0, encoding=encoding)


def rows_of(batch: log.RecordBatch) -> list:
    header = checked_header(batch, batch.payload, "here")
    _offsets, rows = decode_rows(unpack(batch.payload, header, "here"), header, "here")
    return rows


def estimated_bytes(rows) -> int:
    """Return the size estimated for the records of a batch when deciding whether it is full."""
    whole = BatchFormat(
        encoding=Encoding.RECORDS_V1,
        compression=Compression.NONE,
        batch_bytes=MEBI,
        record_bytes_max=MEBI,
        is_transactional=True,
    )
    waiting = Accumulator(whole)
    waiting.learn(TopicPartitionCount(name="t", topic_id=b"", partition_count=1), first=0.0)
    for row in rows:
        waiting.append(waiting.writers["t"], row, None)
    return waiting.buffered_bytes


@pytest.mark.parametrize("compression", Compression)
def test_what_is_written_is_read(encoding: Encoding, compression: Compression) -> None:
    @given(ROWS)
    def round_trip(rows) -> None:
        batch = a_batch(encoding, rows, compression=compression)
        assert rows_of(batch) == rows
        size = estimated_bytes(rows) + BATCH_OVERHEAD_BYTES
        assert len(batch.payload) + HEADER_BYTES <= size, "the estimate by which batches are cut must hold"

    round_trip()


@given(rows=ROWS)
def test_the_server_takes_what_the_client_builds(rows) -> None:
    batch = a_batch(rows=rows)
    header = encodings.header_of(batch)
    check_client_batch(header, batch.payload, crc=batch.crc32c, batch_bytes_max=MEBI)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 3, 2**31 - 1)
    assert header.max_timestamp_ms == max(row[2] for row in rows)


def test_a_batch_of_no_producer_names_none() -> None:
    batch = a_batch(stamp=BatchStamp())
    assert not batch.HasField("producer_id")
    assert encodings.header_of(batch).producer_id == -1


@given(st.data())
def test_a_batch_that_was_changed_on_the_way_is_noticed(data: st.DataObject) -> None:
    batch = a_batch(rows=[(b"key", b"value", 5, (("h", b"x"),))] * 3)
    payload = bytearray(batch.payload)
    position = data.draw(st.integers(0, len(payload) - 1))
    payload[position] ^= data.draw(st.integers(1, 255))
    batch.payload = bytes(payload)
    with pytest.raises(Rejected, match=r"t-0 at offset 9: the checksum says 0x") as caught:
        checked_header(batch, batch.payload, "t-0 at offset 9")
    assert caught.value.code == ErrorCode.CORRUPT_MESSAGE


def test_a_batch_without_a_checksum_is_refused() -> None:
    batch = a_batch()
    batch.ClearField("crc32c")
    with pytest.raises(Rejected, match="without a checksum"):
        checked_header(batch, batch.payload, "here")


def test_an_unknown_encoding_is_named() -> None:
    batch = a_batch()
    batch.encoding = 9  # type: ignore[assignment]
    with pytest.raises(Rejected, match=r"UNSUPPORTED_FOR_MESSAGE_FORMAT.*payload encoding 9"):
        checked_header(batch, batch.payload, "here")


@pytest.mark.parametrize("compression", sorted(set(Compression) - {Compression.NONE}))
def test_a_packed_payload_that_is_damaged_is_named(compression: Compression) -> None:
    with pytest.raises(Rejected, match=rf"CORRUPT_MESSAGE.*here: its {compression.name.lower()} payload cannot be"):
        unpack(b"garbage", replace(header_of_two(Encoding.RECORDS_V1), compression=compression), "here")


@pytest.mark.parametrize("payload", [b"", b"garbage", b"\xff" * 200])
def test_a_payload_of_another_kind_is_named(encoding: Encoding, payload: bytes) -> None:
    with pytest.raises(Rejected, match=r"CORRUPT_MESSAGE.*here: "):
        decode_rows(payload, header_of_two(encoding), "here")


def test_a_wrong_number_of_records_is_named(encoding: Encoding) -> None:
    payload = a_batch(encoding).payload
    with pytest.raises(Rejected, match="it says that it holds 2 records and holds 1"):
        decode_rows(payload, header_of_two(encoding), "here")


def test_arrow_of_another_schema_or_with_nulls_is_refused() -> None:
    pa = pytest.importorskip("pyarrow")
    from coordinator_client.arrow_encoding import SCHEMA, decode_arrow

    wrong = pa.record_batch({"key": pa.array([1, 2])}).serialize().to_pybytes()
    with pytest.raises(Rejected, match="no Arrow record batch of the agreed schema"):
        decode_arrow(wrong, "here")
    columns = [pa.array([b"k"]), pa.array([b"v"]), pa.array([None], pa.int64()), pa.array([[]], SCHEMA[3].type)]
    nullable = pa.schema([field.with_nullable(True) for field in SCHEMA])
    without_time = pa.record_batch(columns, schema=nullable).serialize().to_pybytes()
    with pytest.raises(Rejected, match="lack a timestamp"):
        decode_arrow(without_time, "here")
    with pytest.raises(Rejected, match="other bytes follow"):
        decode_arrow(a_batch(Encoding.ARROW_V1).payload + b"12345678", "here")
