"""Records that were fetched and that poll may not return now: they hold up no other partition, and come in the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from coordinator_api.v1 import log_pb2 as log
from coordinator_client import Consumer, CorruptBatch, TopicPartition
from coordinator_protocol.methods import Method
from tests.client.consumers import T0, T1, T2, Diary, FakeCluster, values
from tests.client.fake_log import FakeLog
from tests.client.world import Fault, World

PARTITIONS = 16
KIB = 1_000
ANSWERS = 4 * 2 * 2 * (KIB + 100)
"""Bytes of the answers that may be on their way: two batches of two records in each."""


def value(partition: int, number: int) -> bytes:
    return b"%02d-%02d" % (partition, number) + bytes(KIB)


class CountingLog(FakeLog):
    """Counts how often each batch was sent, by partition and offset."""

    def __init__(self, world: World) -> None:
        super().__init__(world, partition_count=PARTITIONS)
        self.sent: Counter[tuple[int, int]] = Counter()

    def fetch(self, request: log.FetchRequest) -> log.FetchResponse:
        reply = super().fetch(request)
        self.sent.update((each.partition, batch.base_offset) for each in reply.results for batch in each.batches)
        return reply


class WideCluster(FakeCluster):
    """A topic "t" with many partitions, each with more records than the buffer has room for."""

    def __init__(self, *, batches: int = 6, records: int = 2) -> None:
        super().__init__(World())
        self.topic: CountingLog = CountingLog(self.world)
        self.topic.hold_fetches()
        self.written = batches * records
        for partition in range(PARTITIONS):
            for first in range(0, self.written, records):
                self.topic.append(partition, *(value(partition, first + each) for each in range(records)))

    def reader(self, **options: Any) -> Consumer:
        consumer = self.consumer(**({"group_id": None, "buffer_bytes": 10 * KIB} | options))
        consumer.assign([("t", number) for number in range(PARTITIONS)])
        return consumer


def held(consumer: Consumer) -> int:
    """Return the number of bytes that the consumer keeps in its buffer."""
    return consumer._core.assignment.buffered_bytes


def rest(consumer: Consumer, count: int, **options: Any) -> dict[int, list[bytes | None]]:
    """Return the records of the next polls, by partition."""
    found: dict[int, list[bytes | None]] = {}
    while sum(map(len, found.values())) < count:
        batch = consumer.poll(timeout_ms=10_000, **options)
        assert batch, f"{found.keys()} came, and then nothing"
        for record in batch:
            found.setdefault(record.partition, []).append(record.value)
    return found


@pytest.mark.parametrize("buffer_bytes", [1, 10 * KIB, 40 * KIB])
def test_each_partition_comes_though_all_before_it_are_paused(buffer_bytes: int) -> None:
    cluster = WideCluster()
    consumer = cluster.reader(buffer_bytes=buffer_bytes)
    first: list[int] = []
    for _ in range(PARTITIONS):
        (record,) = consumer.poll(timeout_ms=10_000, max_records=1)
        first.append(record.partition)
        consumer.pause([("t", record.partition)])
        assert held(consumer) < buffer_bytes + ANSWERS
    assert sorted(first) == list(range(PARTITIONS))
    assert not consumer.poll(timeout_ms=1_000), "all are paused"
    consumer.resume(consumer.paused())
    found = rest(consumer, PARTITIONS * (cluster.written - 1), max_records=7)
    assert found == {each: [value(each, number) for number in range(1, cluster.written)] for each in range(PARTITIONS)}


def test_what_makes_no_room_stays_and_is_there_at_once() -> None:
    cluster = WideCluster()
    consumer = cluster.reader(buffer_bytes=1_000 * KIB)
    rest(consumer, 1, max_records=1)
    cluster.world.pause(1_000)
    consumer.pause([T1])
    cluster.world.pause(1_000)
    consumer.resume([T1])
    cluster.world.sent.clear()
    assert rest(consumer, 1)[1][0] == value(1, 0)
    assert asked(cluster).count(1) <= 1


def test_paused_records_are_not_fetched_and_thrown_away_again_and_again() -> None:
    cluster = WideCluster()
    consumer = cluster.reader()
    cluster.world.pause(1_000)
    kept = [TopicPartition("t", number) for number in range(1, PARTITIONS)]
    consumer.pause(kept)
    cluster.world.pause(1_000)
    cluster.world.sent.clear()
    rest(consumer, cluster.written, max_records=1)
    assert not consumer.poll(timeout_ms=5_000)
    assert set(asked(cluster)) == {0}


def asked(cluster: FakeCluster) -> list[int]:
    """The partitions of all fetches, in order."""
    return [each.partition for fetch in cluster.world.requests(Method.FETCH) for each in fetch.partitions]


def test_the_buffer_is_bounded_without_polls() -> None:
    cluster = WideCluster()
    consumer = cluster.reader()
    consumer.assignment()
    cluster.world.pause(10_000)
    assert 10 * KIB <= held(consumer) < 10 * KIB + ANSWERS


def test_nothing_makes_room_where_that_would_not_be_enough() -> None:
    cluster = FakeCluster()
    cluster.topic.append(0, bytes(3 * KIB))
    cluster.topic.append(1, bytes(12 * KIB))
    cluster.topic.append(2, b"c")
    consumer = cluster.consumer(group_id=None, buffer_bytes=10 * KIB)
    consumer.assign([T0, T1, T2])
    cluster.world.pause(1_000)
    consumer.pause([T0])
    cluster.world.sent.clear()
    cluster.world.pause(1_000)
    assert held(consumer) > 15 * KIB
    assert cluster.world.sent == []


def test_what_made_room_is_not_fetched_again_before_poll_may_return_it() -> None:
    cluster = WideCluster()
    consumer = cluster.reader()
    idle = TopicPartition("t", 3)
    cut = {idle: cluster.written + 1}
    rest(consumer, cluster.written, until=cut)
    for _ in range(20):
        assert not consumer.poll(until=cut, timeout_ms=1_000)
    assert max(cluster.topic.sent.values()) <= 2
    assert sorted(rest(consumer, (PARTITIONS - 1) * cluster.written)) == [n for n in range(PARTITIONS) if n != 3]


def test_what_poll_may_return_is_asked_for_first() -> None:
    cluster = WideCluster()
    consumer = cluster.reader(buffer_bytes=1_000 * KIB)
    cluster.topic.batches_per_fetch = 1
    last = TopicPartition("t", PARTITIONS - 1)
    consumer.poll(until={last: 1}, timeout_ms=1_000)
    (first, *_) = (fetch for fetch in cluster.world.requests(Method.FETCH) if len(fetch.partitions) > 1)
    assert first.partitions[0].partition == last.partition


def test_partitions_that_the_listener_does_not_know_hold_up_none_that_it_knows() -> None:
    cluster = FakeCluster()
    for number in range(6):
        cluster.topic.append(1, b"%d" % number + bytes(KIB))
    consumer = cluster.member(Diary(), buffer_bytes=3 * KIB, fetch_wait_ms=100)
    cluster.group.give(0)
    assert not consumer.poll(timeout_ms=1_000)
    cluster.group.give(0, 1)
    cluster.world.pause(1_000)
    cluster.world.sent.clear()
    cluster.world.pause(1_000)
    assert 0 in asked(cluster), "it is asked for though the buffer was full"
    assert len(rest(consumer, 6)[1]) == 6


def test_records_that_made_room_in_the_hands_of_the_application_do_not_come_twice() -> None:
    cluster = FakeCluster()
    cluster.topic.append(0, *(b"%d" % number for number in range(6)))
    consumer = cluster.consumer(group_id=None)
    consumer.assign([T0])
    assert values(consumer.poll(timeout_ms=1_000, max_records=2)) == [b"0", b"1"]
    consumer._turn(lambda core: core.assignment.get(T0).evict())
    cluster.world.pause(1_000)
    assert consumer.position(T0) == 2
    assert values(consumer.poll(timeout_ms=1_000, max_records=3)) == [b"2", b"3", b"4"]
    assert values(consumer.poll(timeout_ms=1_000)) == [b"5"]


def cut_at(offset: int) -> Mapping[TopicPartition, int]:
    return {TopicPartition("t", number): offset for number in range(PARTITIONS)}


@pytest.mark.parametrize("cut", [1, 2, 5])
def test_a_cut_is_reached_however_much_lies_behind_it(cut: int) -> None:
    cluster = WideCluster()
    consumer = cluster.reader()
    found = rest(consumer, PARTITIONS * cut, until=cut_at(cut), max_records=3)
    assert found == {each: [value(each, number) for number in range(cut)] for each in range(PARTITIONS)}
    assert consumer.has_reached(cut_at(cut))
    assert not consumer.poll(until=cut_at(cut), timeout_ms=60_000)
    assert cluster.world.now_ms < 60_000, "it is reached: nothing is waited for"
    following = rest(consumer, PARTITIONS * (cluster.written - cut), until=cut_at(cluster.written))
    assert following == {each: [value(each, n) for n in range(cut, cluster.written)] for each in range(PARTITIONS)}


def test_a_cut_behind_hidden_records_stays_reached_when_what_follows_them_makes_room() -> None:
    cluster = WideCluster(batches=0)
    for partition in range(PARTITIONS):
        cluster.topic.append(partition, b"a" + bytes(KIB))
        cluster.topic.append(partition, b"hidden", is_aborted=True)
        cluster.topic.append(partition, b"b" + bytes(KIB))
    cluster.topic.batches_per_fetch = 1
    consumer = cluster.reader(buffer_bytes=2 * KIB)
    rest(consumer, PARTITIONS, until=cut_at(2))
    cluster.world.pause(5_000)
    assert not consumer.poll(until=cut_at(2), timeout_ms=60_000)
    assert consumer.has_reached(cut_at(2))
    assert sorted(rest(consumer, PARTITIONS)) == list(range(PARTITIONS))


def test_partitions_that_a_cut_leaves_out_hold_up_none_of_its_own() -> None:
    cluster = WideCluster()
    consumer = cluster.reader()
    cluster.world.pause(1_000)
    last = TopicPartition("t", PARTITIONS - 1)
    assert list(rest(consumer, cluster.written, until={last: cluster.written})) == [PARTITIONS - 1]


def test_what_is_damaged_behind_a_cut_is_raised_behind_it() -> None:
    cluster = FakeCluster()
    cluster.topic.append(0, b"a")
    cluster.topic.append(0, b"damaged")
    cluster.topic.partitions[0].damaged.add(1)
    cluster.topic.append(1, b"b")
    consumer = cluster.consumer(group_id=None)
    consumer.assign([T0, T1])
    cut = {T0: 1, T1: 1}
    while not consumer.has_reached(cut):
        consumer.poll(until=cut, timeout_ms=1_000)
    cluster.world.pause(5_000)
    assert not consumer.poll(until=cut, timeout_ms=1_000)
    with pytest.raises(CorruptBatch):
        consumer.poll(timeout_ms=1_000)


def test_damage_behind_records_that_made_room_is_raised_behind_them() -> None:
    cluster = WideCluster(batches=2, records=1)
    cluster.topic.partitions[0].damaged.add(1)
    cluster.topic.batches_per_fetch = 1
    consumer = cluster.reader(buffer_bytes=3 * KIB)
    cluster.world.pause(1_000)
    consumer.pause([T0])
    rest(consumer, (PARTITIONS - 1) * 2)
    consumer.resume([T0])
    assert rest(consumer, 1) == {0: [value(0, 0)]}
    with pytest.raises(CorruptBatch):
        consumer.poll(timeout_ms=1_000)


def test_an_iteration_goes_on_where_it_was_when_its_records_made_room() -> None:
    cluster = WideCluster()
    consumer = cluster.reader(max_poll_records=3)
    records = iter(consumer)
    seen: dict[int, list[bytes | None]] = {}
    for _ in range(PARTITIONS * 2):
        record = next(records)
        seen.setdefault(record.partition, []).append(record.value)
        consumer.pause([("t", record.partition)])
        cluster.world.pause(600)
        if len(consumer.paused()) == PARTITIONS:
            consumer.resume(consumer.paused())
    consumer.resume(consumer.paused())
    for name, found in rest(consumer, PARTITIONS * cluster.written - PARTITIONS * 2).items():
        seen.setdefault(name, []).extend(found)
    assert seen == {each: [value(each, number) for number in range(cluster.written)] for each in range(PARTITIONS)}


def test_an_answer_that_comes_after_its_partition_made_room_leaves_no_gap() -> None:
    cluster = WideCluster(batches=3, records=1)
    cluster.topic.batches_per_fetch = 1
    consumer = cluster.reader(buffer_bytes=2 * KIB)
    consumer.assign([T0])
    cluster.world.pause(2)
    assert held(consumer) > 0
    partition = consumer._core.assignment.get(T0)
    assert partition.is_asking, "the next fetch is on its way"
    consumer._turn(lambda _: partition.evict())
    cluster.world.pause(1_000)
    assert rest(consumer, 3) == {0: [value(0, number) for number in range(3)]}


def test_a_partition_that_leaves_holds_up_none_that_stays() -> None:
    cluster = FakeCluster()
    for number in range(6):
        cluster.topic.append(0, b"leaves %d" % number + bytes(KIB))
        cluster.topic.append(1, b"stays %d" % number + bytes(KIB))
    cluster.topic.batches_per_fetch = 1
    consumer = cluster.member(buffer_bytes=3 * KIB)
    cluster.group.give(0)
    assert values(consumer.poll(timeout_ms=1_000, max_records=1)) == [b"leaves 0" + bytes(KIB)]
    cluster.world.pause(1_000)
    cluster.group.give(0, 1)
    cluster.world.pause(1_000)
    # The commit before the revocation gets no answer, so the partition is long in leaving.
    cluster.world.fault(Method.OFFSET_COMMIT, Fault.SILENT)
    cluster.group.give(1)
    cluster.world.pause(1_000)
    found: list[bytes | None] = []
    while len(found) < 6:
        batch = consumer.poll(timeout_ms=10_000)
        assert batch, f"{len(found)} came, and then nothing"
        found += values(batch)
    assert [each[:7] for each in found if each] == [b"stays %d" % number for number in range(6)]
    assert len(consumer.assignment()) == 2, "it is still in leaving"
