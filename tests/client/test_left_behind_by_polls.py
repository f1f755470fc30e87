"""Leftovers of an interrupted caller of a consumer, case by case; and records in the application's hands."""

from __future__ import annotations

import pytest

from coordinator_client import Consumer
from coordinator_protocol.methods import Method
from tests.client.consumers import T0, T1, T2, Diary, FakeCluster, values
from tests.client.fake_log import FakeLog
from tests.client.interruptions import Interrupter, Interruption
from tests.client.test_interrupted_consumer import WorldApart
from tests.client.test_kept_back_records import ANSWERS, KIB, PARTITIONS, WideCluster, cut_at, held, rest, value
from tests.client.world import World


def test_an_interrupted_poll_is_over_for_the_group_too() -> None:
    cluster = FakeCluster()
    consumer = cluster.member(enable_auto_commit=False)
    cluster.group.give(0, 1)
    consumer.poll(timeout_ms=1_000)
    cluster.world._after(300, lambda: setattr(cluster.world, "_pending_interrupt", KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        consumer.poll(timeout_ms=20_000)
    cluster.group.give(0)
    cluster.world.pause(20_000)
    assert consumer.assignment() == {T0, T1}, "between two polls its partitions are its own"


def test_a_departure_that_was_interrupted_is_not_begun_again() -> None:
    cluster, diary = FakeCluster(), Diary()
    consumer = cluster.member(diary)
    cluster.group.give(0, 1)
    cluster.topic.append(0, b"x")
    assert values(consumer.poll(timeout_ms=1_000)) == [b"x"]
    cluster.world.interrupts[Method.OFFSET_COMMIT] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        consumer.unsubscribe()
    consumer.unsubscribe()
    assert [word for word, _ in diary.told].count("revoked") == 1
    assert len(cluster.world.requests(Method.OFFSET_COMMIT)) == 1
    assert [beat.member_epoch for beat in cluster.beats()].count(-1) == 1
    consumer.subscribe(["t"], listener=diary)
    consumer.poll(timeout_ms=1_000)
    consumer.close()


def test_a_batch_that_was_skipped_counts_once_whatever_is_interrupted() -> None:
    def run(at: tuple[int, ...] = ()) -> Interrupter:
        cluster = FakeCluster(WorldApart())
        cluster.topic.append(0, b"a")
        cluster.topic.append_unreadable(0)
        cluster.topic.append(0, b"b")
        cluster.topic.batches_per_fetch = 5
        consumer = cluster.consumer(group_id=None, on_corrupt_batch="skip")
        consumer.assign([T0])
        assert values(consumer.poll(timeout_ms=1_000)) == [b"a", b"b"]
        interrupter = Interrupter(at)
        try:
            with interrupter:
                consumer.poll(timeout_ms=10)
        except Interruption:
            pass
        consumer.poll(timeout_ms=10)
        assert consumer.skipped.batches == 1, interrupter.raised
        consumer.close()
        assert consumer.skipped.batches == 1, "also behind its end"
        return interrupter

    for at in range(len(run().places)):
        run((at,))


def test_a_listener_that_was_entered_is_not_called_again() -> None:
    """Both it and what notes its end are interrupted."""
    cluster, diary = FakeCluster(), Diary()
    consumer = cluster.member(diary)
    cluster.group.give(0, 1)
    ask, assigned = consumer._engine.ask, diary.on_partitions_assigned
    interruptions = [KeyboardInterrupt(), KeyboardInterrupt()]

    def interrupted(partitions):
        assigned(partitions)
        if len(interruptions) == 2:
            raise interruptions.pop()

    def refusing(step):
        if len(interruptions) == 1:
            raise interruptions.pop()
        return ask(step)

    diary.on_partitions_assigned = interrupted
    consumer._engine.ask = refusing
    with pytest.raises(KeyboardInterrupt):
        consumer.poll(timeout_ms=1_000)
    for _ in range(3):
        consumer.poll(timeout_ms=1_000)
    assert diary.told == [("assigned", [0, 1])]


# Records in the application's hands.


def test_a_log_that_parted_while_the_application_had_its_records_goes_on_where_it_parted() -> None:
    cluster = FakeCluster()
    partition = cluster.topic.partitions[0]
    partition.epochs = [(0, 0)]
    for start in (0, 2):
        cluster.topic.append(0, *(b"%d" % number for number in range(start, start + 2)))
    consumer = cluster.consumer(group_id=None)
    consumer.assign([T0])
    got = []
    while len(got) < 4:
        got += values(consumer.poll(timeout_ms=1_000))
    partition.lose(2, 1)
    cluster.topic.append(0, b"new2", b"new3", b"new4")
    cluster.world.pause(2_000)
    assert values(consumer.poll(timeout_ms=1_000)) == [b"new2", b"new3", b"new4"]


def test_an_iteration_in_a_log_that_began_anew_does_not_go_on_in_the_old_one() -> None:
    cluster = FakeCluster()
    cluster.topic.append(0, *(b"%d" % number for number in range(4)))
    consumer = cluster.consumer(group_id=None)
    consumer.assign([T0])
    records = iter(consumer)
    assert next(records).value == b"0"
    cluster.topic.partitions[0].batches.clear()
    cluster.topic.append(0, b"n0", b"n1")
    cluster.world.pause(3_000)
    assert [next(records).value for _ in range(2)] == [b"n0", b"n1"]


def test_more_is_fetched_while_the_application_works_on_what_filled_the_buffer() -> None:
    cluster = WideCluster()
    consumer = cluster.reader()
    consumer.assignment()
    cluster.world.pause(1_000)
    assert consumer.poll(timeout_ms=1_000)
    cluster.world.sent.clear()
    cluster.world.pause(1_000)
    assert cluster.world.requests(Method.FETCH)


def test_partitions_take_turns() -> None:
    cluster = FakeCluster()
    for partition in range(3):
        cluster.topic.append(partition, *(b"%d-%d" % (partition, number) for number in range(6)))
    consumer = cluster.consumer(group_id=None)
    consumer.assign([T0, T1, T2])
    consumer.assignment()
    cluster.world.pause(1_000)
    got = [consumer.poll(timeout_ms=1_000, max_records=1)[0].partition for _ in range(6)]
    assert sorted(got[:3]) == sorted(got[3:]) == [0, 1, 2]


def test_a_partition_that_is_moved_back_behind_a_cut_that_it_had_reached_has_not_reached_it() -> None:
    cluster = WideCluster()
    consumer = cluster.reader()
    cut = cut_at(2)
    rest(consumer, PARTITIONS * 2, until=cut)
    assert not consumer.poll(until=cut, timeout_ms=5_000)
    for number in range(PARTITIONS):
        consumer.seek(("t", number), 0)
    assert not consumer.has_reached(cut)
    found = rest(consumer, PARTITIONS * 2, until=cut)
    assert found == {each: [value(each, number) for number in range(2)] for each in range(PARTITIONS)}


def test_what_lies_behind_a_cut_stays_within_the_bound() -> None:
    cluster = WideCluster()
    consumer = cluster.reader()
    got = 0
    while got < PARTITIONS:
        batch = consumer.poll(timeout_ms=10_000, until=cut_at(1), max_records=3)
        assert batch
        got += len(batch)
        cluster.world.pause(100)
        assert held(consumer) < 10 * KIB + ANSWERS


def test_the_partitions_of_a_request_that_was_given_up_are_asked_for_again() -> None:
    world = World()
    topic = FakeLog(world, partition_count=6)
    topic.hold_fetches()
    consumer = Consumer(world.connection(), auto_offset_reset="earliest", fetch_wait_ms=20_000)
    for number in range(6):
        consumer.assign([("t", each) for each in range(number + 1)])
        consumer.assignment()
        world.pause(50)
    topic.append(0, b"x")
    assert values(consumer.poll(timeout_ms=5_000)) == [b"x"]


def test_an_interrupted_commit_says_that_it_is_safe_to_commit_again() -> None:
    cluster = FakeCluster()
    cluster.topic.append(0, b"x")
    consumer = cluster.consumer(enable_auto_commit=False)
    consumer.assign([T0])
    assert values(consumer.poll(timeout_ms=1_000)) == [b"x"]
    cluster.world.interrupts[Method.OFFSET_COMMIT] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt) as caught:
        consumer.commit()
    assert "Commit again: it does no harm twice" in caught.value.__notes__[0]
    consumer.commit()
    assert cluster.group.offsets == {T0: 1}
