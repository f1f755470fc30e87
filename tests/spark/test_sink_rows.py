"""Rows of a query become batches of the log: none is lost or written twice, and each is where Kafka's producer would
put it."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator_client.arrow_encoding import SCHEMA, arrow_rows
from coordinator_protocol.hashing import partition_for
from pyspark_txnlog.write import sink_rows
from pyspark_txnlog.write.sink_rows import InvalidRows, RowsByPartition, as_records

COUNTS = {"a": 1, "b": 3}
# As Spark names them.
HEADERS = pa.list_(
    pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]), nullable=True)
)

Sent = list[tuple[str, int, tuple[bytes | None, bytes | None]]]


def gathered(*batches: pa.RecordBatch, topic: str = "") -> Sent:
    """Return the records that are sent of the rows: topic, partition, and key and value."""
    rows = RowsByPartition(topic, COUNTS.__getitem__, first=0, now_ms=5)
    requests = []
    for batch in batches:
        rows.add(batch)
        requests += rows.full()
    requests += rows.rest()
    assert not list(rows.rest())
    assert all(records.schema.equals(SCHEMA) for request in requests for _, _, records in request)
    return [
        (topic, partition, (key, value))
        for request in requests
        for topic, partition, records in request
        for key, value, _time, _headers in arrow_rows(records)
    ]


cells = st.tuples(
    st.sampled_from(["a", "b"]), st.none() | st.binary(max_size=3), st.none() | st.binary(max_size=9), st.booleans()
)


@given(st.lists(st.lists(cells, min_size=1, max_size=12), max_size=5))
def test_each_row_is_sent_once_to_its_partition_in_order(
    batches: list[list[tuple[str, bytes | None, bytes | None, bool]]],
) -> None:
    made = [
        pa.record_batch(
            {
                "topic": pa.array([topic for topic, *_ in rows], pa.string()),
                "key": pa.array([key for _, key, _, _ in rows], pa.binary()),
                "value": pa.array([value for _, _, value, _ in rows], pa.binary()),
                "partition": pa.array([0 if is_asked else None for *_, is_asked in rows], pa.int32()),
            }
        )
        for rows in batches
    ]
    sent = gathered(*made)
    expected = [row for rows in batches for row in rows]
    assert Counter((topic, row) for topic, _, row in sent) == Counter(
        (topic, (key, value)) for topic, key, value, _ in expected
    )
    for topic, key, value, is_asked in expected:
        places = {partition for name, partition, row in sent if (name, row) == (topic, (key, value))}
        if is_asked:
            assert 0 in places
        elif key is not None:
            assert partition_for(key, COUNTS[topic]) in places
    for topic, count in COUNTS.items():
        for partition in range(count):
            of_key = [row for name, place, row in sent if (name, place) == (topic, partition) and row[0] is not None]
            in_order = [(k, v) for t, k, v, asked in expected if t == topic and k is not None]
            remaining = iter(in_order)
            assert all(any(row == other for other in remaining) for row in of_key)


def test_large_batches_are_cut_and_a_request_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink_rows, "BATCH_BYTES", 1_000)
    monkeypatch.setattr(sink_rows, "REQUEST_BYTES", 3_000)
    rows = RowsByPartition("b", COUNTS.__getitem__, first=0, now_ms=5)
    for number in range(20):
        rows.add(pa.record_batch({"value": pa.array([bytes([number]) * 300] * 4, pa.binary())}))
    requests = [*rows.full(), *rows.rest()]
    assert max(sum(records.nbytes for _, _, records in request) for request in requests) <= 3_000
    assert sum(records.num_rows for request in requests for _, _, records in request) == 80
    assert max(records.nbytes for request in requests for _, _, records in request) <= 1_000
    assert {partition for request in requests for _, partition, _ in request} == {0, 1, 2}


def test_rows_without_a_key_take_partitions_in_turn_and_a_request_has_one_batch_of_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sink_rows, "BATCH_BYTES", 1_000)
    rows = RowsByPartition("b", COUNTS.__getitem__, first=0, now_ms=5)
    rows.add(pa.record_batch({"value": pa.array([bytes([number]) * 100 for number in range(80)], pa.binary())}))
    requests = list(rows.rest())
    places = [[partition for _, partition, _ in request] for request in requests]
    assert places[:-1] == [[1, 2, 0]] * (len(places) - 1)
    assert places[-1] == [1, 2, 0][: len(places[-1])]
    batches = [records for request in requests for _, _, records in request]
    assert [row[1] for batch in batches for row in arrow_rows(batch)] == [bytes([number]) * 100 for number in range(80)]
    assert min(batch.nbytes for batch in batches[:-1]) > 800


def test_small_batches_of_a_partition_go_as_one() -> None:
    rows = RowsByPartition("a", COUNTS.__getitem__, first=0, now_ms=5)
    for number in range(3):
        rows.add(pa.record_batch({"value": pa.array([bytes([number])] * 2, pa.binary())}))
    ((_, _, records),) = next(rows.rest())
    assert [row[1] for row in arrow_rows(records)] == [b"\0", b"\0", b"\1", b"\1", b"\2", b"\2"]


@pytest.mark.parametrize("more", [{}, {"key": pa.array([], pa.binary())}, {"partition": pa.array([], pa.int32())}])
def test_of_no_rows_nothing_is_sent(more: dict[str, pa.Array]) -> None:
    nothing = pa.record_batch({"value": pa.array([], pa.binary())} | more)
    something = pa.record_batch({"value": pa.array([b"x"], pa.binary())})
    assert [row for _, _, row in gathered(nothing, something, nothing, topic="b")] == [(None, b"x")]
    rows = RowsByPartition("b", COUNTS.__getitem__, first=0, now_ms=5)
    rows.add(nothing)
    assert list(rows.rest()) == []


def test_one_record_is_never_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink_rows, "BATCH_BYTES", 10)
    assert len(gathered(pa.record_batch({"value": pa.array([bytes(99)] * 2, pa.binary())}), topic="a")) == 2


def test_headers_keep_their_order_and_may_be_missing() -> None:
    headers = pa.array([[("h", b"1"), ("h", None)], None, []], HEADERS)
    rows = pa.record_batch([pa.array(["x", "y", "z"]), headers], names=["value", "headers"])
    records = as_records(rows.slice(1), 5)
    assert [row[3] for row in arrow_rows(records)] == [(), ()]
    assert [row[3] for row in arrow_rows(as_records(rows, 5))] == [(("h", b"1"), ("h", None)), (), ()]


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"key": pa.array(["a"])}, "no column value"),
        ({"value": pa.array(["a"])}, "no topic is named"),
        ({"value": pa.array(["a"]), "topic": pa.array([None], pa.string())}, "topic is null"),
        ({"value": pa.array(["a"]), "headers": pa.array([[(None, b"")]], HEADERS)}, "header without a key"),
        ({"value": pa.array(["a"]), "topic": pa.array(["b"]), "partition": pa.array([3], pa.int32())}, "0 to 2"),
        ({"value": pa.array(["a"]), "topic": pa.array(["b"]), "partition": pa.array([-1], pa.int32())}, "has -1"),
    ],
)
def test_rows_that_cannot_be_written_are_refused(columns: dict[str, pa.Array], reason: str) -> None:
    with pytest.raises(InvalidRows, match=reason):
        gathered(pa.record_batch(columns))
