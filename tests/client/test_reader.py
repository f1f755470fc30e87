"""Readers: fixed ends, exact ranges, what is hidden, and what is damaged."""

from __future__ import annotations

from itertools import islice

import pytest

from coordinator_client import (
    BatchReader,
    CorruptBatch,
    FetchOptions,
    PartitionRange,
    ReadRecord,
    Rejected,
    Retriable,
    read,
)
from coordinator_client.calls import PAUSE_MS_MAX
from coordinator_client.encodings import header_of
from coordinator_client.reading.reader import ReadPlan, plan_ranges
from coordinator_protocol.batch import Compression, Encoding, batch_crc
from coordinator_protocol.errors import ErrorCode
from coordinator_protocol.marker import Outcome
from coordinator_protocol.methods import Method
from tests.client.fake_log import FakeLog
from tests.client.fake_server import TOPIC_ID, refuse
from tests.client.world import Fault, World


@pytest.fixture
def topic(world: World) -> FakeLog:
    return FakeLog(world)


def values(world: World, **options) -> list[bytes | None]:
    return [record.value for record in read("t", world.connection(), **options)]


def test_records_come_with_their_place_and_their_content(world: World, topic: FakeLog) -> None:
    topic.append(0, b"a", b"b")
    topic.append(1, b"c")
    assert list(read("t", world.connection())) == [
        ReadRecord("t", 0, 0, 1_000, None, b"a", ()),
        ReadRecord("t", 0, 1, 1_001, None, b"b", ()),
        ReadRecord("t", 1, 0, 1_000, None, b"c", ()),
    ]


def test_an_empty_topic_has_no_records_and_needs_no_fetch(world: World, topic: FakeLog) -> None:
    assert values(world) == []
    assert Method.FETCH not in world.methods()


def test_every_partition_is_read_to_its_end_although_others_fill_the_answers(world: World, topic: FakeLog) -> None:
    for number in range(20):
        topic.append(0, b"a%d" % number)
    topic.append(1, b"b")
    found = values(world)
    assert [value for value in found if value != b"b"] == [b"a%d" % number for number in range(20)]
    assert found.index(b"b") < 6, "the second partition does not wait for the first to end"


def test_the_next_answer_is_fetched_while_the_last_one_is_worked_on(world: World, topic: FakeLog) -> None:
    for number in range(6):
        topic.append(0, b"%d" % number)
    connection = world.connection()
    batches = iter(BatchReader(connection, plan_ranges(connection, "t", ReadPlan())))
    next(batches)
    assert [request.partitions[0].fetch_offset for request in world.requests(Method.FETCH)] == [0, 2]
    assert sum(batch.record_count for batch in batches) == 5
    assert len(world.requests(Method.FETCH)) == 3, "nothing is asked for beyond the end, and nothing twice"


@pytest.mark.parametrize("fault", [Fault.LOST_REQUEST, Fault.LOST_REPLY, Fault.UNSURE, Fault.SILENT])
def test_what_was_fetched_ahead_in_vain_is_fetched_again(world: World, topic: FakeLog, fault: Fault) -> None:
    for number in range(6):
        topic.append(0, b"%d" % number)
    world.fault(Method.FETCH, Fault.NONE, fault)
    assert values(world) == [b"%d" % number for number in range(6)]


def test_nothing_is_fetched_ahead_where_there_is_nothing_yet(world: World, topic: FakeLog) -> None:
    topic.append(0, b"a")
    records = read("t", world.connection(), follow=True)
    assert next(records).value == b"a"
    assert len(world.requests(Method.FETCH)) == 1


def test_a_reader_that_stops_early_takes_back_what_it_asked_for(world: World, topic: FakeLog) -> None:
    for number in range(6):
        topic.append(0, b"%d" % number)
    records = read("t", world.connection())
    next(records)
    records.close()
    assert world.methods()[-1] is Method.FETCH
    assert world.calls[-1].is_cancelled


def test_the_end_is_taken_once_so_a_read_ends_while_others_write(world: World, topic: FakeLog) -> None:
    for number in range(6):
        topic.append(0, b"%d" % number)
    records = read("t", world.connection())
    first = next(records)
    for number in range(100):
        topic.append(0, b"later %d" % number)
    assert [first.value, *(record.value for record in records)] == [b"%d" % number for number in range(6)]


def test_a_committed_read_ends_at_the_last_stable_offset(world: World, topic: FakeLog) -> None:
    topic.append(0, b"decided")
    topic.append(0, b"open")
    topic.partitions[0].last_stable_offset = 1
    assert values(world) == [b"decided"]
    assert values(world, isolation="read_uncommitted") == [b"decided", b"open"]


def test_what_is_hidden_is_counted_and_passed_over(world: World, topic: FakeLog) -> None:
    topic.append(0, b"a")
    topic.append(0, b"x", b"y", is_aborted=True)
    topic.end_transaction(0, committed=False)
    connection = world.connection()
    reader = BatchReader(connection, plan_ranges(connection, "t", ReadPlan()))
    assert [row[1] for batch in reader for row in batch.rows()] == [b"a"]
    assert (reader.hidden.aborted, reader.hidden.control) == (2, 1)
    assert reader.positions == {("t", 0): 4, ("t", 1): 0}


def test_a_raw_read_shows_aborted_records_and_markers(world: World, topic: FakeLog) -> None:
    topic.append(0, b"x", is_aborted=True)
    topic.end_transaction(0, committed=False)
    record, marker = read("t", world.connection(), raw=True)
    assert record.value == b"x"
    assert marker.marker is not None
    assert (marker.offset, marker.value, marker.marker.outcome, marker.marker.csn) == (1, None, Outcome.ABORT, 5)


def test_offsets_cut_batches_in_the_middle(world: World, topic: FakeLog) -> None:
    topic.append(0, b"a", b"b", b"c", b"d")
    topic.append(1, b"other")
    assert values(world, partitions=[0], start={0: 1}, end={0: 3}) == [b"b", b"c"]
    assert values(world, start={0: 3}) == [b"d", b"other"]
    assert values(world, start="latest") == []


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.GZIP])
@pytest.mark.parametrize("encoding", [Encoding.RECORDS_V1, Encoding.ARROW_V1])
def test_a_range_of_a_batch_is_the_same_in_rows_and_in_arrow(
    world: World, topic: FakeLog, encoding: Encoding, compression: Compression
) -> None:
    pytest.importorskip("pyarrow")
    topic.append(0, b"a", b"b", b"c", b"d", encoding=encoding, compression=compression)
    part = PartitionRange(topic="t", topic_id=TOPIC_ID, partition=0, start_offset=1, end_offset=3)
    (batch,) = BatchReader(world.connection(), [part])
    assert [row[1] for row in batch.rows()] == [b"b", b"c"]
    assert batch.as_arrow().column("value").to_pylist() == [b"b", b"c"]
    assert (batch.first_offset, batch.end_offset, batch.record_count) == (1, 3, 2)


def test_following_waits_for_what_comes_next(world: World, topic: FakeLog) -> None:
    topic.append(0, b"now")
    records = read("t", world.connection(), follow=True)
    assert next(records).value == b"now"
    topic.append(1, b"then")
    assert next(records).value == b"then"
    assert world.requests(Method.FETCH)[0].max_wait_ms == 500
    assert not world.requests(Method.FETCH)[0].partitions[0].HasField("end_offset")


def test_following_up_to_offsets_ends_there(world: World, topic: FakeLog) -> None:
    topic.append(0, b"a")
    records = read("t", world.connection(), partitions=[0], end={0: 2}, follow=True)
    assert next(records).value == b"a"
    topic.append(0, b"b", b"c")
    assert [record.value for record in records] == [b"b"]


def test_a_restart_of_the_server_in_the_middle_is_not_noticed(world: World, topic: FakeLog) -> None:
    for number in range(6):
        topic.append(0, b"%d" % number)
    world.fault(Method.FETCH, Fault.NONE, *[Fault.LOST_REQUEST] * 10, Fault.LOST_REPLY)
    assert values(world) == [b"%d" % number for number in range(6)]


def test_a_server_that_stays_away_is_reported(world: World, topic: FakeLog) -> None:
    topic.append(0, b"a")
    world.fault(Method.FETCH, *[Fault.LOST_REQUEST] * 100)
    with pytest.raises(Retriable, match="Fetch: no definite answer within"):
        values(world, patience_ms=2_000)


def test_a_passing_failure_of_one_partition_is_waited_out(world: World, topic: FakeLog) -> None:
    topic.append(0, b"a")
    busy = topic.fetch(world_request(world, topic))
    for result in busy.results:
        result.ClearField("batches")
        result.next_offset = 0
        refuse(result, Method.FETCH, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    world.answer(Method.FETCH, *[busy] * 3)
    assert values(world, partitions=[0]) == [b"a"]
    world.answer(Method.FETCH, *[busy] * 100)
    with pytest.raises(Retriable, match=r"Fetch t-0 at offset 0: refused by the fake"):
        values(world, partitions=[0], patience_ms=2_000)


def test_patience_begins_anew_with_each_record_that_is_read(world: World, topic: FakeLog) -> None:
    topic.append(0, b"a")
    topic.append(0, b"b")
    first, busy = (topic.fetch(world_request(world, topic)) for _ in range(2))
    for answer in (first, busy):
        for result in answer.results:
            kept = 1 if answer is first else 0
            del result.batches[kept:]
            result.next_offset = kept
    refuse(busy.results[0], Method.FETCH, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    world.answer(Method.FETCH, busy, first, busy)
    assert values(world, partitions=[0], patience_ms=PAUSE_MS_MAX) == [b"a", b"b"]


def world_request(world: World, topic: FakeLog):
    """The request a read of partition 0 sends."""
    values(world, partitions=[0])
    return world.requests(Method.FETCH)[0]


def test_a_range_that_an_open_transaction_holds_back_is_reported(world: World, topic: FakeLog) -> None:
    topic.append(0, b"a")
    topic.partitions[0].last_stable_offset = 0
    part = PartitionRange(topic="t", topic_id=TOPIC_ID, partition=0, start_offset=0, end_offset=1)
    with pytest.raises(Retriable, match="which an open transaction may still hold back"):
        list(BatchReader(world.connection(), [part], FetchOptions(patience_ms=1_000)))


def test_a_damaged_batch_is_named_with_its_place(world: World, topic: FakeLog) -> None:
    topic.append(0, b"a")
    topic.append(0, b"b")
    topic.partitions[0].batches[1].payload += b"!"
    records = read("t", world.connection())
    assert next(records).value == b"a"
    with pytest.raises(Rejected, match=r"t-0 at offset 1: the checksum says"):
        next(records)


def test_an_offset_beyond_the_end_is_named(world: World, topic: FakeLog) -> None:
    topic.append(0, b"a")
    with pytest.raises(Rejected, match=r"OFFSET_OUT_OF_RANGE.*Fetch t-0 at offset 9: beyond the end"):
        next(read("t", world.connection(), partitions=[0], start={0: 9}, follow=True))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"isolation": "read_everything"}, "must be one of read_committed, read_uncommitted"),
        ({"start": "yesterday"}, "start is 'yesterday' and must be"),
        ({"start": {0: -1}}, "start has offsets below 0"),
        ({"end": "earliest"}, "is empty"),
        ({"end": None}, "say so with follow=True"),
        ({"patience_ms": 0}, "patience_ms is 0 and must be between 1 and"),
    ],
)
def test_a_wrong_option_is_refused_at_the_call(world: World, options, message: str) -> None:
    with pytest.raises(Rejected, match=message):
        read("t", world.connection(), **options)
    assert world.sent == []


def test_a_wrong_name_of_a_topic_is_refused_at_the_call(world: World) -> None:
    with pytest.raises(Rejected, match="is no topic name"):
        read("no topic!", world.connection())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"partitions": [2]}, "t has the partitions 0 to 1, and 2 was asked for"),
        ({"partitions": [0], "start": {1: 0}}, r"partitions that are not read: \[1\]"),
        ({"end": {0: 99}}, "t-0 ends at 1 for read_committed and the read should go up to 99"),
    ],
)
def test_what_does_not_exist_is_named(world: World, topic: FakeLog, options, message: str) -> None:
    topic.append(0, b"a")
    with pytest.raises(Rejected, match=message):
        list(read("t", world.connection(), **options))


def test_a_reader_that_is_left_early_closes_what_it_opened(world: World, topic: FakeLog) -> None:
    for number in range(6):
        topic.append(0, b"%d" % number)
    with world.connection() as connection:
        assert len(list(islice(read("t", connection), 2))) == 2
        assert not world.is_closed
    assert world.is_closed


def test_records_of_what_was_compacted_come_with_the_offsets_that_they_have(world: World, topic: FakeLog) -> None:
    topic.append_compacted(0, {1: b"b", 4: b"e"}, last_delta=5)
    topic.append_compacted(0, {}, last_delta=2)
    topic.append(0, b"next")
    assert [(each.offset, each.value) for each in read("t", world.connection())] == [(1, b"b"), (4, b"e"), (9, b"next")]
    part = PartitionRange(topic="t", topic_id=TOPIC_ID, partition=0, start_offset=2, end_offset=9)
    counts = [batch.record_count for batch in BatchReader(world.connection(), [part])]
    assert counts == [1, 0]


@pytest.mark.parametrize("encoding", [Encoding.RECORDS_V2, Encoding.ARROW_V2, Encoding.KAFKA_V2])
@pytest.mark.parametrize(
    ("values", "message"),
    [({2: b"c", 1: b"b"}, "one is at 1"), ({0: b"a", 3: b"d"}, "one is at 3"), ({-1: b"z"}, "one is at -1")],
)
def test_records_that_lie_nowhere_in_their_batch_are_named(
    world: World, topic: FakeLog, values: dict[int, bytes], message: str, encoding: Encoding
) -> None:
    pytest.importorskip("pyarrow")
    topic.append_compacted(0, values, last_delta=2, encoding=encoding)
    part = PartitionRange(topic="t", topic_id=TOPIC_ID, partition=0, start_offset=0, end_offset=3)
    (batch,) = BatchReader(world.connection(), [part])
    for decode in (batch.rows, batch.as_arrow):
        with pytest.raises(CorruptBatch, match=message):
            decode()


@pytest.mark.parametrize(("record_count", "hole_count"), [(3, -1), (-1, 4)])
def test_a_number_of_records_that_cannot_be_is_named(
    world: World, topic: FakeLog, record_count: int, hole_count: int
) -> None:
    topic.append_compacted(0, {0: b"a"}, last_delta=2)
    (batch,) = topic.partitions[0].batches
    batch.record_count, batch.hole_count = record_count, hole_count
    batch.crc32c = batch_crc(header_of(batch), batch.payload)
    part = PartitionRange(topic="t", topic_id=TOPIC_ID, partition=0, start_offset=0, end_offset=1)
    with pytest.raises(CorruptBatch, match=f"it says that it holds {record_count} records"):
        list(BatchReader(world.connection(), [part]))
