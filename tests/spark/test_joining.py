"""The compiled function joins what Arrow joins, and says of whatever Arrow refuses that it cannot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator_client.arrow_encoding import SCHEMA, decode_arrow, encode_arrow
from coordinator_client.encodings import FetchedBatch, encode_records
from coordinator_client.errors import CorruptBatch, Rejected
from coordinator_client.values import Row
from coordinator_protocol.batch import BatchHeader, Encoding
from pyspark_txnlog.read.arrow_rows import arrow_schema, spark_batches
from pyspark_txnlog.read.joining import JOINABLE, JoinArrow, fastest_join_arrow

ENCODERS: Final = {Encoding.ARROW_V1: encode_arrow, Encoding.RECORDS_V1: encode_records}
COLUMNS: Final = ("offset", "value", "timestamp", "key", "partition")

found = fastest_join_arrow()
if found is None:
    pytest.skip("the compiled transport is not installed (make native)", allow_module_level=True)
join: Final[JoinArrow] = found

BYTES = st.none() | st.binary(max_size=12)
HEADERS = st.lists(st.tuples(st.text(max_size=3), BYTES), max_size=2).map(tuple)
ROWS = st.lists(st.tuples(BYTES, BYTES, st.integers(-(2**40), 2**40), HEADERS), min_size=1, max_size=40)
NAMES = st.lists(st.sampled_from(JOINABLE), min_size=1, unique=True)


def batch(
    payload: Any,
    record_count: int,
    *,
    base_offset: int = 0,
    within: tuple[int, int] | None = None,
    encoding: Encoding = Encoding.ARROW_V1,
) -> FetchedBatch:
    """A fetched batch of which the records `within` were asked for."""
    start, end = within or (0, record_count)
    return FetchedBatch(
        topic="flights",
        partition=3,
        header=BatchHeader(
            base_offset=base_offset,
            record_count=record_count,
            base_timestamp_ms=0,
            max_timestamp_ms=0,
            encoding=encoding,
        ),
        content=payload,
        marker=None,
        first_offset=base_offset + start,
        end_offset=base_offset + end,
    )


def by_arrow(batches: Sequence[FetchedBatch], name: str) -> pa.Array:
    return pa.concat_arrays([each.as_arrow().column(name) for each in batches])


@st.composite
def parts(draw: st.DrawFn, encodings: Sequence[Encoding] = (Encoding.ARROW_V1,)) -> list[FetchedBatch]:
    """Batches of one partition, of which only a part may be wanted, in memory as answers have it."""
    made: list[FetchedBatch] = []
    for rows in draw(st.lists(ROWS, min_size=1, max_size=5)):
        start = draw(st.integers(0, len(rows)))
        encoding, before = draw(st.sampled_from(encodings)), draw(st.binary(max_size=9))
        answer = memoryview(before + ENCODERS[encoding](rows) + b"next")
        made.append(
            batch(
                answer[len(before) : -4],
                len(rows),
                base_offset=made[-1].header.last_offset + 1 if made else 5,
                within=(start, draw(st.integers(start, len(rows)))),
                encoding=encoding,
            )
        )
    return made


@settings(max_examples=300)
@given(batches=parts(), names=NAMES)
def test_the_columns_are_those_that_arrow_makes(batches: list[FetchedBatch], names: list[str]) -> None:
    columns = join(batches, names)

    assert columns is not None
    assert set(columns) == set(names)
    for name in names:
        columns[name].validate(full=True)
        assert columns[name].equals(by_arrow(batches, name))
        assert columns[name].null_count == by_arrow(batches, name).null_count


@settings(max_examples=600)
@given(rows=ROWS, data=st.data())
def test_of_what_arrow_refuses_it_says_that_it_cannot(rows: list[Row], data: st.DataObject) -> None:
    whole = encode_arrow(rows)
    damaged = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(whole) - 1) | st.integers(0, min(len(whole) - 1, 700)))
        damaged[place] = data.draw(st.integers(0, 255) | st.just(damaged[place] ^ 1))
    cut = data.draw(st.just(len(whole)) | st.integers(0, len(whole)))
    payload = bytes(damaged[:cut])

    columns = join([batch(whole, len(rows)), batch(payload, len(rows))], JOINABLE)

    if columns is not None:
        read = decode_arrow(payload, "here")
        assert read.num_rows == len(rows)
        for name in JOINABLE:
            assert columns[name].equals(pa.concat_arrays([decode_arrow(whole, "").column(name), read.column(name)]))


@settings(max_examples=200)
@given(payload=st.binary(max_size=400), count=st.integers(0, 3))
def test_whatever_comes_is_no_reason_to_fail(payload: bytes, count: int) -> None:
    assert join([batch(payload, count)], JOINABLE) is None


def test_a_batch_that_holds_another_number_of_records_than_it_says_is_left_to_arrow() -> None:
    payload = encode_arrow([(b"k", b"v", 1, ())] * 3)
    for said in (2, 4):
        assert join([batch(payload, said)], JOINABLE) is None
        with pytest.raises(CorruptBatch, match=f"says that it holds {said} records and holds 3"):
            list(spark_batches([batch(payload, 3), batch(payload, said, base_offset=3)], COLUMNS, join=join))


def test_bytes_that_somebody_may_change_are_left_to_arrow() -> None:
    payload = encode_arrow([(b"k", b"v", 1, ())])
    assert join([batch(memoryview(bytearray(payload)), 1)], JOINABLE) is None


def test_bytes_that_do_not_lie_together_are_left_to_arrow() -> None:
    payload = encode_arrow([(b"k", b"v", 1, ())])
    assert join([batch(payload, 1)], JOINABLE) is not None
    assert join([batch(memoryview(payload * 2)[::2], 1)], JOINABLE) is None


def test_a_column_of_more_than_arrow_can_number_is_left_to_arrow() -> None:
    large = batch(encode_arrow([(None, b"v" * (32 << 20), 1, ())]), 1)
    assert join([large] * 2, ["value"]) is not None
    assert join([large] * 64, ["value"]) is None


def test_times_that_are_null_are_left_to_arrow() -> None:
    payload = encode_arrow([(b"k", b"v", 1, ())])
    key, value, _times, headers = decode_arrow(payload, "here").columns
    nulls = pa.record_batch([key, value, pa.array([None], pa.int64()), headers], SCHEMA.names)
    nulls_payload = nulls.serialize().to_pybytes()
    assert join([batch(nulls_payload, 1)], JOINABLE) is None
    with pytest.raises(Rejected, match="lack a timestamp"):
        decode_arrow(nulls_payload, "here")


class TestWhatSparkGets:
    """With the compiled function and without it, the batches that Spark gets are the same."""

    @settings(max_examples=100)
    @given(batches=parts(encodings=tuple(ENCODERS)))
    def test_whatever_the_encodings(self, batches: list[FetchedBatch]) -> None:
        wanted = [each for each in batches if each.record_count]
        with_it, without = (list(spark_batches(wanted, COLUMNS, join=each)) for each in (join, None))

        assert [made.to_pylist() for made in with_it] == [made.to_pylist() for made in without]
        assert all(made.schema.equals(arrow_schema(COLUMNS)) for made in with_it)

    def test_headers_that_it_does_not_know_come_beside_what_it_knows(self) -> None:
        rows: list[Row] = [(b"k", b"v", 1, (("h", b"1"), ("ä", None))), (None, None, 2, ())]
        stored = [batch(encode_arrow(rows), 2, base_offset=base) for base in (0, 2)]
        columns = (*COLUMNS, "headers")
        with_it, without = (list(spark_batches(stored, columns, join=each)) for each in (join, None))

        assert [made.to_pylist() for made in with_it] == [made.to_pylist() for made in without]

    @pytest.mark.parametrize("encodings", [("ARROW_V1", "RECORDS_V1"), ("RECORDS_V1", "RECORDS_V1")])
    def test_it_is_not_asked_about_what_it_cannot_join(self, encodings: Sequence[str]) -> None:
        def never(*_asked: object) -> None:
            raise AssertionError("one of the batches is not in Arrow")

        rows: list[Row] = [(b"k", b"v", 1, ())]
        kinds = [Encoding[name] for name in encodings]
        stored = [batch(ENCODERS[kind](rows), 1, base_offset=at, encoding=kind) for at, kind in enumerate(kinds)]
        (made,) = spark_batches(stored, COLUMNS, join=never)
        assert made.column("offset").to_pylist() == [0, 1]

    def test_a_single_batch_is_not_copied(self) -> None:
        def never(*_asked: object) -> None:
            raise AssertionError("one batch is viewed, not joined")

        (made,) = spark_batches([batch(encode_arrow([(b"k", b"v", 1, ())]), 1)], COLUMNS, join=never)
        assert made.num_rows == 1

    def test_it_joins_what_spark_reads(self) -> None:
        asked: list[int] = []

        def noted(batches: Sequence[FetchedBatch], names: Sequence[str]) -> dict[str, pa.Array] | None:
            asked.append(len(batches))
            return join(batches, names)

        payload = encode_arrow([(None, b"v" * 1_024, 1, ())] * 100)
        scanned = [batch(payload, 100, base_offset=102 * number) for number in range(12)]
        made = list(spark_batches(scanned, COLUMNS, join=noted))

        assert asked == [5, 5, 2]
        assert sum(each.num_rows for each in made) == 1_200

        asked.clear()
        assert len(list(spark_batches(scanned, ("value",), join=noted))) == 3
        assert asked == [5, 5, 2]

    def test_large_values_beside_the_keys_that_spark_reads_do_not_count(self) -> None:
        payload = encode_arrow([(b"k", b"v" * 1_024, 1, ())] * 100)
        scanned = [batch(payload, 100, base_offset=100 * number) for number in range(12)]
        (made,) = spark_batches(scanned, ("key", "timestamp"), join=join)
        assert made.num_rows == 1_200
