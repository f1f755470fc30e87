"""Batches that cannot be read: every reader reports their position, or goes on behind them and counts."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import pytest

from coordinator_client import BatchReader, CorruptBatch, FetchOptions, Misconfigured, PartitionRange, Rejected, read
from coordinator_protocol.errors import ErrorCode
from tests.client.fake_log import FakeLog
from tests.client.world import World

Damage = Callable[[FakeLog], None]


@pytest.fixture
def topic(world: World) -> FakeLog:
    return FakeLog(world, partition_count=1)


def wrong_checksum(topic: FakeLog) -> None:
    topic.append(0, b"x", b"y")
    topic.partitions[0].batches[-1].payload += b"!"


def unreadable_payload(topic: FakeLog) -> None:
    topic.append_unreadable(0, 2)


def not_packed(topic: FakeLog) -> None:
    topic.append_unreadable(0, 2)
    batch = topic.partitions[0].batches[-1]
    topic.partitions[0].batches.pop()
    batch.compression = 4  # type: ignore[assignment]
    topic.lay_down(0, batch)


def told_by_the_server(topic: FakeLog) -> None:
    topic.append(0, b"x", b"y")
    topic.partitions[0].damaged.add(topic.partitions[0].batches[-1].base_offset)


@pytest.fixture(params=[wrong_checksum, unreadable_payload, not_packed, told_by_the_server])
def damaged(request: pytest.FixtureRequest, topic: FakeLog) -> FakeLog:
    """Offset 0 is good, 1 and 2 cannot be read, 3 is good."""
    topic.append(0, b"a")
    request.param(topic)
    topic.append(0, b"b")
    return topic


def test_a_reader_is_told_the_place_after_what_lies_before(world: World, damaged: FakeLog) -> None:
    records = read("t", world.connection())
    assert next(records).value == b"a"
    with pytest.raises(CorruptBatch, match=r"CORRUPT_MESSAGE.*t-0 at offset 1.*on_corrupt_batch='skip'") as caught:
        next(records)
    error = caught.value
    assert (error.topic, error.partition, error.offset, error.next_offset) == ("t", 0, 1, 3)
    assert isinstance(error, Rejected)
    assert error.code is ErrorCode.CORRUPT_MESSAGE
    start = {0: error.next_offset}
    assert [record.value for record in read("t", world.connection(), start=start)] == [b"b"]


def test_a_reader_may_skip_and_counts(world: World, damaged: FakeLog) -> None:
    records = read("t", world.connection(), on_corrupt_batch="skip")
    assert [(record.offset, record.value) for record in records] == [(0, b"a"), (3, b"b")]
    assert (records.skipped.batches, records.skipped.offsets) == (1, 2)
    assert records.skipped.last is not None
    assert records.skipped.last.offset == 1


def test_what_is_skipped_ends_with_the_range(world: World, damaged: FakeLog) -> None:
    part = PartitionRange(topic="t", partition=0, start_offset=2, end_offset=3)
    reader = BatchReader(world.connection(), [part], FetchOptions(on_corrupt_batch="skip"))
    assert list(reader.decoded(lambda batch: batch.rows())) == []
    assert reader.skipped.batches == 1
    assert reader.positions["t", 0] == 3


@pytest.mark.parametrize(("start", "end"), [(0, 2), (2, 4)])
def test_what_is_skipped_counts_as_far_as_it_was_asked_for(
    world: World, damaged: FakeLog, start: int, end: int
) -> None:
    """Jobs cut a partition at any offset: what both sides of a cut skip must not count twice."""
    part = PartitionRange(topic="t", partition=0, start_offset=start, end_offset=end)
    reader = BatchReader(world.connection(), [part], FetchOptions(on_corrupt_batch="skip"))
    assert len(list(reader.decoded(lambda batch: batch.rows()))) == 1
    assert (reader.skipped.batches, reader.skipped.offsets) == (1, 1)


def test_nothing_is_skipped_where_nothing_is_wrong(world: World, topic: FakeLog) -> None:
    topic.append(0, b"a", b"b")
    records = read("t", world.connection(), on_corrupt_batch="skip")
    assert len(list(records)) == 2
    assert (records.skipped.batches, records.skipped.offsets, records.skipped.last) == (0, 0, None)


def test_arrow_says_the_same(world: World, topic: FakeLog) -> None:
    pytest.importorskip("pyarrow")
    unreadable_payload(topic)
    part = PartitionRange(topic="t", partition=0, start_offset=0, end_offset=2)
    (batch,) = BatchReader(world.connection(), [part])
    with pytest.raises(CorruptBatch) as caught:
        batch.as_arrow()
    assert (caught.value.offset, caught.value.next_offset) == (0, 2)


def test_the_error_travels_between_processes() -> None:
    error = CorruptBatch(ErrorCode.CORRUPT_MESSAGE, "why", topic="t", partition=3, offset=5, next_offset=9)
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.topic, again.partition, again.offset, again.next_offset) == (str(error), "t", 3, 5, 9)


def test_the_option_has_two_values(world: World) -> None:
    with pytest.raises(Misconfigured, match="on_corrupt_batch is 'ignore' and must be one of raise, skip"):
        read("t", world.connection(), on_corrupt_batch="ignore")
