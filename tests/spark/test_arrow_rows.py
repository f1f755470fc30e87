"""Stored batches become Arrow batches of Spark's exact schema and of a size that suits it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from coordinator_client.arrow_encoding import encode_arrow
from coordinator_client.encodings import FetchedBatch, encode_records
from coordinator_client.reading.batch_reader import BatchReader, Hidden
from coordinator_client.settings import Skipped
from coordinator_client.transport.connection import Connection
from coordinator_client.values import Row
from coordinator_protocol.batch import BatchHeader, Encoding, TimestampType
from coordinator_protocol.kafka_records import encode_kafka_records
from pyspark_txnlog.options import COLUMNS, Report, SourceOptions, Topics
from pyspark_txnlog.read.arrow_rows import (
    CUT_BYTES,
    JOINED_BYTES_MIN,
    JOINED_ROWS_MAX,
    UnreadableRecords,
    arrow_schema,
    report_batch,
    spark_batches,
)
from pyspark_txnlog.read.ranges import OffsetRange
from pyspark_txnlog.source import schema_of

ALL = (*COLUMNS, "headers")


def encode_kafka(records: Sequence[Row]) -> bytes:
    """The payload of KAFKA_V2 of a batch whose base timestamp is that of the first record."""
    placed = [
        (place, time_ms, key, value, tuple((name.encode(), content) for name, content in headers))
        for place, (key, value, time_ms, headers) in enumerate(records)
    ]
    return encode_kafka_records(placed, records[0][2])


ENCODERS = {
    Encoding.RECORDS_V1: encode_records,
    Encoding.ARROW_V1: encode_arrow,
    Encoding.KAFKA_V2: encode_kafka,
}


def rows(count: int, *, size: int = 4, timestamp_ms: int = 1_000) -> list[Row]:
    return [(b"k", b"v" * size, timestamp_ms + number, ()) for number in range(count)]


def batch(
    records: Sequence[Row],
    *,
    base_offset: int = 0,
    encoding: Encoding = Encoding.ARROW_V1,
    within: tuple[int, int] | None = None,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    max_timestamp_ms: int = 9_000,
) -> FetchedBatch:
    """A fetched batch of which the offsets `within` were asked for."""
    first, end = within or (base_offset, base_offset + len(records))
    header = BatchHeader(
        base_offset=base_offset,
        record_count=len(records),
        base_timestamp_ms=records[0][2],
        max_timestamp_ms=max_timestamp_ms,
        encoding=encoding,
        timestamp_type=timestamp_type,
    )
    return FetchedBatch(
        topic="flights",
        partition=3,
        header=header,
        content=ENCODERS[encoding](records),
        marker=None,
        first_offset=first,
        end_offset=end,
    )


def at(timestamp_ms: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(timestamp_ms / 1_000, dt.UTC)


def test_the_schema_is_the_one_that_spark_compares_with() -> None:
    asked = SourceOptions(endpoint="h:1", topics=Topics(names=("t",)), columns=ALL)
    assert to_arrow_schema(schema_of(asked), timezone="UTC").equals(arrow_schema(ALL))


def test_the_schema_of_the_report_is_the_one_that_spark_compares_with() -> None:
    asked = SourceOptions(endpoint="h:1", topics=Topics(names=("t",)), report=Report.RANGES)
    scanned = OffsetRange(topic="t", topic_id=bytes(16), partition=1, start_offset=2, end_offset=9, leader_epoch=3)

    with Connection("h:1") as connection:
        first, second = BatchReader(connection, []), BatchReader(connection, [])
    first.hidden, first.skipped = Hidden(aborted=2), Skipped(1, 6)
    second.hidden = Hidden(control=1)

    made = report_batch(scanned, 4, [first, second])

    assert to_arrow_schema(schema_of(asked), timezone="UTC").equals(made.schema)
    assert list(made.to_pylist()[0].values()) == ["t", 1, 2, 9, 4, 2, 1, 1, 6, 3]


@pytest.mark.parametrize("encoding", list(ENCODERS))
def test_every_column_comes_as_in_the_kafka_source(encoding: Encoding) -> None:
    records: list[Row] = [(b"k", b"v", 1_500, (("h", b"1"), ("h", None))), (None, None, 1_501, ()), (b"", b"", 0, ())]

    (made,) = spark_batches([batch(records, base_offset=40, encoding=encoding)], ALL)

    assert made.schema.equals(arrow_schema(ALL))
    common = {"topic": "flights", "partition": 3, "timestampType": 0}
    headers = [{"key": "h", "value": b"1"}, {"key": "h", "value": None}]
    assert made.to_pylist() == [
        {"key": b"k", "value": b"v", "offset": 40, "timestamp": at(1_500), "headers": headers} | common,
        {"key": None, "value": None, "offset": 41, "timestamp": at(1_501), "headers": None} | common,
        {"key": b"", "value": b"", "offset": 42, "timestamp": at(0), "headers": None} | common,
    ]


def test_columns_select_and_order() -> None:
    (made,) = spark_batches([batch(rows(3), base_offset=7)], ("offset", "value"))
    assert made.schema.names == ["offset", "value"]
    assert made.column("offset").to_pylist() == [7, 8, 9]


@pytest.mark.parametrize("encoding", list(ENCODERS))
def test_records_outside_the_range_are_cut_off(encoding: Encoding) -> None:
    records = [(b"%d" % number, None, number, ()) for number in range(10)]
    (made,) = spark_batches([batch(records, base_offset=100, encoding=encoding, within=(103, 106))], ("offset", "key"))
    assert made.to_pylist() == [{"offset": 100 + number, "key": b"%d" % number} for number in (3, 4, 5)]


def test_small_batches_are_joined_over_the_gaps_that_markers_leave() -> None:
    stored = [batch(rows(8), base_offset=base) for base in range(0, 900, 9)]
    (made,) = spark_batches(stored, ALL)
    assert made.num_rows == 800
    assert made.column("offset").to_pylist() == [base + number for base in range(0, 900, 9) for number in range(8)]
    made.validate(full=True)


def test_a_gap_may_be_longer_than_a_batch_ever_is() -> None:
    far = 3 * JOINED_ROWS_MAX
    (made,) = spark_batches([batch(rows(2), base_offset=5), batch(rows(2), base_offset=far)], ("offset",))
    assert made.column("offset").to_pylist() == [5, 6, far, far + 1]


def test_both_encodings_can_be_joined() -> None:
    stored = [
        batch(rows(2), base_offset=0, encoding=Encoding.RECORDS_V1),
        batch(rows(2), base_offset=2, encoding=Encoding.ARROW_V1),
    ]
    (made,) = spark_batches(stored, ALL)
    assert made.column("offset").to_pylist() == [0, 1, 2, 3]


def test_joining_stops_at_half_a_mebibyte() -> None:
    stored = [batch(rows(64, size=1_000), base_offset=64 * number) for number in range(40)]
    made = list(spark_batches(stored, COLUMNS))
    assert sum(found.num_rows for found in made) == 40 * 64
    assert all(JOINED_BYTES_MIN <= found.nbytes < 2 * JOINED_BYTES_MIN for found in made[:-1])


def test_large_values_beside_the_requested_columns_do_not_count() -> None:
    stored = [batch(rows(100, size=1_024), base_offset=100 * number) for number in range(12)]
    (made,) = spark_batches(stored, ("key", "timestamp"))
    assert made.num_rows == 1_200


def test_nulls_and_values_of_several_payloads_are_joined_in_order() -> None:
    stored = [
        batch([(None, b"a", 1, ()), (b"k", None, 2, ())], base_offset=0),
        batch([(b"", b"", 3, (("h", b"1"), ("ä", None)))], base_offset=2),
        batch([(b"x", b"y", 4, ()), (None, None, 5, ())], base_offset=3, within=(4, 5)),
    ]
    (made,) = spark_batches(stored, ("offset", "key", "value", "headers"))
    assert made.column("offset").to_pylist() == [0, 1, 2, 4]
    assert made.column("key").to_pylist() == [None, b"k", b"", None]
    assert made.column("value").to_pylist() == [b"a", None, b"", None]
    assert [len(headers or ()) for headers in made.column("headers").to_pylist()] == [0, 0, 2, 0]


def test_narrow_columns_stop_at_many_rows() -> None:
    stored = [batch(rows(10_000), base_offset=10_000 * number) for number in range(14)]
    made = list(spark_batches(stored, ("partition",)))
    assert [found.num_rows for found in made] == [70_000, 70_000]
    assert made[0].num_rows >= JOINED_ROWS_MAX


def test_a_large_payload_is_viewed_and_not_copied() -> None:
    large = batch(rows(1_024, size=1_000))
    (made,) = spark_batches([large], ("value",))
    start = pa.py_buffer(large.content).address
    assert start <= made.column("value").buffers()[2].address < start + len(large.content)


def test_a_huge_batch_is_handed_over_in_slices() -> None:
    made = list(spark_batches([batch(rows(6_000, size=1_000))], COLUMNS))
    assert len(made) > 1
    assert all(found.nbytes <= CUT_BYTES // 2 for found in made)
    assert [offset for found in made for offset in found.column("offset").to_pylist()] == list(range(6_000))


def test_a_part_of_a_huge_batch_that_is_not_huge_is_not_cut() -> None:
    (made,) = spark_batches([batch(rows(6_000, size=1_000), within=(1_000, 4_000))], COLUMNS)
    assert made.column("offset").to_pylist() == list(range(1_000, 4_000))


def test_a_column_that_needs_no_payload_leaves_it_closed() -> None:
    closed = batch(rows(3), base_offset=5)
    unreadable = FetchedBatch(
        topic=closed.topic,
        partition=closed.partition,
        header=closed.header,
        content=b"not opened",
        marker=None,
        first_offset=5,
        end_offset=8,
    )
    (made,) = spark_batches([unreadable], ("topic", "offset"))
    assert made.to_pylist() == [{"topic": "flights", "offset": offset} for offset in (5, 6, 7)]


def test_the_time_of_the_log_stands_in_for_that_of_the_records() -> None:
    stored = [
        batch(rows(2, timestamp_ms=10)),
        batch(rows(2), base_offset=2, timestamp_type=TimestampType.LOG_APPEND_TIME, max_timestamp_ms=77),
    ]
    (made,) = spark_batches(stored, ("timestamp", "timestampType"))
    assert made.column("timestamp").to_pylist() == [at(10), at(11), at(77), at(77)]
    assert made.column("timestampType").to_pylist() == [0, 0, 1, 1]


def test_records_keep_their_own_time_behind_those_that_have_that_of_the_log() -> None:
    stored = [
        batch(rows(2), timestamp_type=TimestampType.LOG_APPEND_TIME, max_timestamp_ms=77),
        batch(rows(2, timestamp_ms=10), base_offset=2),
    ]
    (made,) = spark_batches(stored, ("timestamp", "timestampType"))
    assert made.column("timestamp").to_pylist() == [at(77), at(77), at(10), at(11)]
    assert made.column("timestampType").to_pylist() == [1, 1, 0, 0]


def test_a_time_that_spark_cannot_hold_is_an_error_with_a_way_out() -> None:
    endless = batch([(b"k", b"v", 2**62, ())], base_offset=9)
    with pytest.raises(UnreadableRecords, match=r"flights-3 between the offsets 9 and 10 .* set columns"):
        list(spark_batches([endless], COLUMNS))
    assert len(list(spark_batches([endless], ("value",)))) == 1


def test_no_batches_are_no_rows() -> None:
    assert list(spark_batches([], ALL)) == []
