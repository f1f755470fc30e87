"""Batches of Kafka's own producers, read by the SDK: named in every Fetch, verified, and decoded as records and as
columns."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator_api.v1 import log_pb2 as log
from coordinator_client import CorruptBatch, read
from coordinator_client.encodings import ENCODINGS_READ, FetchedBatch, checked_batch
from coordinator_client.fetch_reply import WireBatch
from coordinator_protocol.batch import (
    HEADER_BYTES,
    NO_PRODUCER_ID,
    BatchHeader,
    Compression,
    Encoding,
    decode_header,
    stored_crc,
)
from coordinator_protocol.kafka_records import PlacedRecord
from coordinator_protocol.methods import Method
from tests.client.fake_log import FakeLog
from tests.client.world import World
from tests.harness.every_encoding import placed_records, stored

KINDS = st.sampled_from(Compression)


def wire(batch: bytes) -> WireBatch:
    """A stored batch as Fetch answers it."""
    header = decode_header(batch)
    fields = log.RecordBatch(
        base_offset=header.base_offset,
        record_count=header.record_count,
        hole_count=header.hole_count,
        base_timestamp_ms=header.base_timestamp_ms,
        max_timestamp_ms=header.max_timestamp_ms,
        encoding=log.Encoding.ValueType(header.encoding),
        compression=log.Compression.ValueType(header.compression),
        is_transactional=header.is_transactional,
        crc32c=stored_crc(batch),
    )
    if header.producer_id != NO_PRODUCER_ID:
        fields.producer_id, fields.producer_epoch = header.producer_id, header.producer_epoch
        fields.base_sequence = header.base_sequence
    return WireBatch(fields, memoryview(batch)[HEADER_BYTES:])


def fetched(batch: bytes, start: int = 0, end: int | None = None) -> FetchedBatch:
    found = checked_batch("t", 0, wire(batch), start_offset=start, end_offset=end)
    assert found is not None
    return found


def rows_of(records: list[PlacedRecord]) -> list[Any]:
    return [
        (key, value, timestamp_ms, tuple((name.decode(), content) for name, content in headers))
        for _place, timestamp_ms, key, value, headers in records
    ]


@given(placed_records(count_min=1), KINDS, st.booleans())
def test_every_record_comes_with_its_offset(
    records: list[PlacedRecord], compression: Compression, is_transactional: bool
) -> None:
    fields = {"producer_id": 9, "producer_epoch": 1, "base_sequence": 0} if is_transactional else {}
    batch = stored(
        records,
        Encoding.KAFKA_V2,
        compression=compression,
        base_offset=100,
        is_transactional=is_transactional,
        **fields,
    )
    offsets, rows = fetched(batch).placed()
    assert list(offsets) == [100 + record[0] for record in records]
    assert rows == rows_of(records)
    start, end = offsets[0], offsets[-1]
    assert fetched(batch, start, end + 1).record_count == len(records)


@given(placed_records(count_min=1), KINDS)
def test_columns_have_the_same_records(records: list[PlacedRecord], compression: Compression) -> None:
    pytest.importorskip("pyarrow")
    from coordinator_client.arrow_encoding import arrow_rows

    batch = fetched(stored(records, Encoding.KAFKA_V2, compression=compression, base_offset=100))
    offsets, columns = batch.placed_arrow()
    assert arrow_rows(columns) == rows_of(records)
    assert (offsets is None) == (batch.header.hole_count == 0)
    if offsets is not None:
        assert offsets.to_pylist() == [100 + record[0] for record in records]


def test_a_name_of_a_header_that_is_no_text_is_read_as_kafkas_consumer_reads_it() -> None:
    batch = stored([(0, 5, None, None, ((b"caf\xe9", b"1"),))], Encoding.KAFKA_V2)
    assert fetched(batch).rows() == [(None, None, 5, (("caf�", b"1"),))]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"record_count": 1, "hole_count": 1}, "it says that it holds 1 records and holds 2"),
        ({"record_count": 2, "hole_count": 0}, "its records do not lie at ascending offsets up to 1, one is at 2"),
    ],
)
def test_records_that_the_header_does_not_have_are_named(changes: dict[str, int], why: str) -> None:
    records: list[PlacedRecord] = [(place, 5, None, None, ()) for place in (0, 2)]
    with pytest.raises(CorruptBatch, match=why):
        fetched(stored(records, Encoding.KAFKA_V2, **changes)).rows()


def test_a_payload_that_is_no_records_of_kafka_is_named() -> None:
    header = BatchHeader(0, 1, 5, 5, Encoding.KAFKA_V2)
    broken = FetchedBatch(
        topic="t", partition=0, header=header, content=b"\x0cgarbage", marker=None, first_offset=0, end_offset=1
    )
    with pytest.raises(CorruptBatch, match="t-0 at offset 0: its payload is no records of Kafka"):
        broken.rows()


@given(st.data())
def test_a_batch_that_was_changed_on_the_way_is_noticed(data: st.DataObject) -> None:
    batch = bytearray(stored([(0, 5, b"key", b"value", ())], Encoding.KAFKA_V2))
    batch[data.draw(st.integers(HEADER_BYTES, len(batch) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(CorruptBatch, match=r"t-0 at offset 0: the checksum says 0x"):
        fetched(bytes(batch))


def test_a_reader_names_the_encodings_that_it_decodes(world: World) -> None:
    topic = FakeLog(world)
    topic.append_compacted(0, {0: b"a", 2: b"c"}, last_delta=2, encoding=Encoding.KAFKA_V2)
    assert [(each.offset, each.value) for each in read("t", world.connection())] == [(0, b"a"), (2, b"c")]
    asked = world.requests(Method.FETCH)
    assert asked
    assert {tuple(request.accepted_encodings) for request in asked} == {ENCODINGS_READ}
    assert sorted(ENCODINGS_READ) == sorted(int(each) for each in Encoding if each is not Encoding.CONTROL)
