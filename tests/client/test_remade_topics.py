"""A topic is deleted and made again under its readers: its id says if it is the same, and not its name."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from coordinator_api.v1 import log_pb2 as log
from coordinator_client import Abortable, Consumer, Rejected, TopicPartition
from coordinator_client.errors import TOPIC_GONE
from coordinator_protocol.errors import ErrorCode
from coordinator_protocol.methods import Method
from tests.client.consumers import T0, T1, ClassicCluster, Diary, FakeCluster, poll_all, values
from tests.client.fake_server import refuse
from tests.client.world import Fault, Held

COUNTS = [3, 1, 5]
"""Partitions of the new topic: as many as before, fewer, more."""
EAGER, COOPERATIVE = ["range"], ["cooperative-sticky"]


def fill(cluster: FakeCluster, word: bytes, partition_count: int) -> list[bytes]:
    """Write a record into each partition; return them."""
    written = [b"%s %d" % (word, number) for number in range(partition_count)]
    for number, value in enumerate(written):
        cluster.topic.append(number, value)
    return written


def delete(cluster: FakeCluster) -> None:
    """Delete the topic, and with it what is committed in it."""
    cluster.topic.delete()
    cluster.group.offsets.clear()


def remake(cluster: FakeCluster, partition_count: int) -> None:
    delete(cluster)
    cluster.topic.make(partition_count)


def old_read(cluster: FakeCluster, consumer: Consumer) -> None:
    """Read the topic that will be deleted, and commit."""
    old = fill(cluster, b"old", 3)
    assert sorted(poll_all(consumer, 3)) == old
    consumer.commit()


@pytest.mark.parametrize("is_polled_between", [False, True])
@pytest.mark.parametrize("partition_count", COUNTS)
@pytest.mark.parametrize("assignors", [EAGER, COOPERATIVE])
def test_the_leader_of_a_classic_group_goes_on_with_the_new_topic(
    assignors: list[str], partition_count: int, is_polled_between: bool
) -> None:
    cluster = ClassicCluster()
    consumer = cluster.member(partition_assignors=assignors)
    old_read(cluster, consumer)
    delete(cluster)
    if is_polled_between:
        for _ in range(5):
            assert not consumer.poll(timeout_ms=1_000)
        assert consumer.assignment() == frozenset()
    cluster.topic.make(partition_count)
    new = fill(cluster, b"new", partition_count)
    deadline_ms = cluster.world.now_ms + 32_000
    found: list[bytes | None] = []
    while len(found) < partition_count and cluster.world.now_ms < deadline_ms:
        found += values(consumer.poll(timeout_ms=1_000))
    assert sorted(value or b"" for value in found) == new
    assert consumer.assignment() == {TopicPartition("t", number) for number in range(partition_count)}
    consumer.commit()
    assert cluster.group.offsets == {TopicPartition("t", number): 1 for number in range(partition_count)}


def test_it_goes_on_at_once_where_it_is_fetching() -> None:
    cluster = ClassicCluster()
    consumer = cluster.member()
    old_read(cluster, consumer)
    consumer.poll(timeout_ms=100)
    begun_ms = cluster.world.now_ms
    remake(cluster, 3)
    fill(cluster, b"new", 3)
    poll_all(consumer, 3)
    assert cluster.world.now_ms - begun_ms < 100


@pytest.mark.parametrize("partition_count", COUNTS)
@pytest.mark.parametrize("assignors", [EAGER, COOPERATIVE])
def test_a_follower_goes_on_with_the_new_topic_though_the_leader_notices_nothing(
    assignors: list[str], partition_count: int
) -> None:
    cluster, diary = ClassicCluster(), Diary()
    cluster.group.leader, cluster.group.plan = "m-9", [0, 2]
    consumer = cluster.member(diary, partition_assignors=assignors)
    fill(cluster, b"old", 3)
    assert sorted(poll_all(consumer, 2)) == [b"old 0", b"old 2"]
    consumer.commit()
    remake(cluster, partition_count)
    new = fill(cluster, b"new", partition_count)
    mine = [value for number, value in enumerate(new) if number in (0, 2)]
    assert sorted(poll_all(consumer, len(mine))) == mine
    assert diary.told == [("assigned", [0, 2]), ("revoked", [0, 2]), ("assigned", [0, 2])]
    assert not consumer.poll(timeout_ms=5_000)
    assert len(cluster.world.requests(Method.JOIN_GROUP)) == 3, "one of them asked for an id"
    consumer.commit()
    assert set(cluster.group.offsets.values()) == {1}


def test_a_follower_looks_for_what_is_missing_every_second_and_for_nothing_else() -> None:
    cluster = ClassicCluster()
    cluster.group.leader, cluster.group.plan = "m-9", [0, 2]
    consumer = cluster.member()
    fill(cluster, b"old", 3)
    poll_all(consumer, 2)
    delete(cluster)
    cluster.world.sent.clear()
    for _ in range(10):
        consumer.poll(timeout_ms=1_000)
    looks = cluster.world.requests(Method.DESCRIBE_TOPICS)
    assert 10 <= len(looks) <= 11
    assert all([topic.name for topic in look.topics] == ["t"] for look in looks)


def test_a_leader_notices_a_topic_that_it_does_not_read_itself() -> None:
    cluster = ClassicCluster()
    cluster.group.plan = []
    consumer = cluster.member(metadata_max_age_ms=10_000)
    consumer.poll(timeout_ms=1_000)
    joined = len(cluster.world.requests(Method.JOIN_GROUP))
    remake(cluster, 3)
    cluster.world.pause(11_000)
    consumer.poll(timeout_ms=1_000)
    assert len(cluster.world.requests(Method.JOIN_GROUP)) == joined + 1


@pytest.mark.parametrize("partition_count", COUNTS)
def test_a_static_leader_that_was_away_notices_whether_there_are_other_partitions(partition_count: int) -> None:
    """The group keeps its assignment meanwhile, and spares the leader to make another one."""
    cluster = ClassicCluster()
    cluster.topic.make(partition_count)
    new = fill(cluster, b"new", partition_count)
    cluster.group.skip_assignment, cluster.group.plan = True, [0, 1, 2]
    consumer = cluster.member(group_instance_id="i")
    consumer.poll(timeout_ms=1)
    cluster.world.pause(1_000)
    cluster.group.skip_assignment, cluster.group.plan = False, None
    consumer.poll(timeout_ms=1_000, max_records=1)
    consumer.seek_to_beginning()
    assert len(cluster.world.requests(Method.JOIN_GROUP)) == (1 if partition_count == 3 else 2)
    assert sorted(poll_all(consumer, partition_count)) == new


def test_a_static_leader_that_may_not_look_takes_what_there_is() -> None:
    cluster = ClassicCluster()
    cluster.topic.make(5)
    cluster.group.skip_assignment, cluster.group.plan = True, [0, 1, 2]
    cluster.world.fault(Method.DESCRIBE_GROUPS, Fault.LOST_REQUEST)
    consumer = cluster.member(group_instance_id="i")
    consumer.poll(timeout_ms=5_000)
    assert len(cluster.world.requests(Method.JOIN_GROUP)) == 1
    cluster.topic.make(6)
    cluster.world.pause(31_000)
    consumer.poll(timeout_ms=5_000)
    assert len(cluster.world.requests(Method.JOIN_GROUP)) == 2


def test_a_pattern_goes_on_with_the_new_topic() -> None:
    cluster = ClassicCluster()
    consumer = cluster.consumer()
    consumer.subscribe(pattern="t.*")
    old_read(cluster, consumer)
    remake(cluster, 2)
    new = fill(cluster, b"new", 2)
    assert sorted(poll_all(consumer, 2)) == new


@pytest.mark.parametrize("partition_count", COUNTS)
def test_a_member_of_the_consumer_protocol_goes_on_with_the_new_topic(partition_count: int) -> None:
    cluster = FakeCluster()
    cluster.group.give(0, 1, 2)
    consumer = cluster.member()
    old_read(cluster, consumer)
    remake(cluster, partition_count)
    new = fill(cluster, b"new", partition_count)
    assert not consumer.poll(timeout_ms=3_000), "the group has not noticed yet"
    cluster.group.give(*range(partition_count))
    assert sorted(poll_all(consumer, partition_count)) == new
    consumer.commit()
    assert cluster.group.offsets == {TopicPartition("t", number): 1 for number in range(partition_count)}


@pytest.mark.parametrize("kind", [FakeCluster, ClassicCluster])
def test_without_a_reset_the_new_topic_has_no_beginning(kind: type[FakeCluster]) -> None:
    cluster = kind()
    cluster.group.offsets = {T0: 0}
    cluster.topic.append(0, b"old")
    cluster.group.give(0)
    if isinstance(cluster, ClassicCluster):
        cluster.group.plan = [0]
    consumer = cluster.member(auto_offset_reset="none")
    assert poll_all(consumer, 1) == [b"old"]
    remake(cluster, 3)
    cluster.group.give(0)
    with pytest.raises(Rejected, match="nothing is committed for t-0") as refusal:
        poll_all(consumer, 1)
    assert refusal.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_what_a_group_waits_for_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "coordinator_client")
    cluster = ClassicCluster()
    consumer = cluster.member()
    old_read(cluster, consumer)
    delete(cluster)
    for _ in range(10):
        consumer.poll(timeout_ms=1_000)
    said = [record.getMessage() for record in caplog.records if "made again" in record.getMessage()]
    assert len(said) == 1
    assert "the topic 't' that the group 'g' reads was deleted, or made again (Fetch t-" in said[0]
    cluster.topic.make(3)
    fill(cluster, b"new", 3)
    cluster.world.pause(31_000)
    poll_all(consumer, 3)
    assert caplog.records[-1].getMessage() == "the topic 't' is read again"


def test_a_topic_that_is_not_found_for_a_moment_is_the_same_afterwards() -> None:
    cluster, diary = ClassicCluster(), Diary()
    consumer = cluster.member(diary)
    old_read(cluster, consumer)
    unresolved = log.FetchResponse()
    for number in range(3):
        result = unresolved.results.add(topic="t", partition=number)
        refuse(result, Method.FETCH, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    cluster.world.answer(Method.FETCH, unresolved)
    consumer.poll(timeout_ms=1_500)
    more = fill(cluster, b"more", 3)
    assert sorted(poll_all(consumer, 3)) == more
    consumer.commit()
    assert set(cluster.group.offsets.values()) == {2}
    assert diary.told == [("assigned", [0, 1, 2])]


def test_a_partition_that_never_was_is_not_said_to_be_deleted(caplog: pytest.LogCaptureFixture) -> None:
    cluster = ClassicCluster()
    cluster.group.leader, cluster.group.plan = "m-9", [0, 7]
    consumer = cluster.member()
    assert not consumer.poll(timeout_ms=5_000)
    assert caplog.records == []


# Commits


def test_a_commit_that_is_answered_late_is_none_of_the_new_topic() -> None:
    cluster = ClassicCluster()
    consumer = cluster.member(enable_auto_commit=False)
    fill(cluster, b"old", 3)
    poll_all(consumer, 3)
    late = Held()
    replies: list[Any] = []

    def commit(request: Any) -> Held:
        replies.append(cluster.group.commit(request))
        return late

    cluster.world.server.handle(Method.OFFSET_COMMIT, commit)
    consumer.commit_async()
    cluster.world.pause(100)
    cluster.world.server.handle(Method.OFFSET_COMMIT, cluster.group.commit)
    remake(cluster, 3)
    fill(cluster, b"new", 3)
    poll_all(consumer, 3)
    late.give(*replies)
    cluster.world.pause(100)
    consumer.commit()
    assert cluster.group.offsets == {TopicPartition("t", number): 1 for number in range(3)}


def test_a_commit_that_waits_is_none_of_the_new_topic() -> None:
    cluster = ClassicCluster()
    consumer = cluster.member(enable_auto_commit=False)
    fill(cluster, b"old", 3)
    poll_all(consumer, 3)
    ends: list[Any] = []
    cluster.world.fault(Method.OFFSET_COMMIT, Fault.SILENT)
    for _ in range(2):
        consumer.commit_async(callback=lambda _, error: ends.append(error))
    remake(cluster, 3)
    fill(cluster, b"new", 3)
    poll_all(consumer, 3)
    cluster.world.pause(60_000)
    consumer.poll(timeout_ms=1_000)
    assert [error.code for error in ends] == [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.INCONSISTENT_TOPIC_ID]
    assert cluster.group.offsets == {}
    consumer.commit()
    assert set(cluster.group.offsets.values()) == {1}


def test_commits_leave_out_topics_that_are_known_to_be_gone() -> None:
    cluster = FakeCluster()
    cluster.group.give(0, 1, 2)
    consumer = cluster.member(enable_auto_commit=False)
    fill(cluster, b"old", 3)
    poll_all(consumer, 3)
    delete(cluster)
    consumer.poll(timeout_ms=100)
    consumer.commit()
    assert cluster.group.offsets == {}
    with pytest.raises(Rejected, match="topic that is gone") as refusal:
        consumer.commit({T0: 1})
    assert refusal.value.code == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize("assignors", [EAGER, COOPERATIVE])
def test_a_paused_partition_notices_by_its_commit(assignors: list[str]) -> None:
    cluster = ClassicCluster()
    cluster.group.leader, cluster.group.plan = "m-9", [0]
    consumer = cluster.member(partition_assignors=assignors, enable_auto_commit=False)
    fill(cluster, b"old", 3)
    poll_all(consumer, 1)
    consumer.pause([T0])
    cluster.world.pause(1_000)
    remake(cluster, 3)
    fill(cluster, b"new", 3)
    assert not consumer.poll(timeout_ms=5_000)
    with pytest.raises(Rejected) as refusal:
        consumer.commit()
    assert refusal.value.code == ErrorCode.INCONSISTENT_TOPIC_ID
    assert poll_all(consumer, 1) == [b"new 0"]
    consumer.commit()
    assert cluster.group.offsets == {T0: 1}


# Partitions that were given by hand


@pytest.fixture
def assigned() -> tuple[FakeCluster, Consumer]:
    """A consumer that has read two partitions that were assigned to it, whose topic was made again since."""
    cluster = FakeCluster()
    consumer = cluster.consumer(enable_auto_commit=False)
    consumer.assign([T0, T1])
    fill(cluster, b"old", 3)
    poll_all(consumer, 2)
    consumer.commit()
    remake(cluster, 3)
    fill(cluster, b"new", 3)
    return cluster, consumer


def assert_raises_each_time(consumer: Consumer) -> None:
    for _ in range(3):
        with pytest.raises(Rejected, match=r"assign\(\) the partition again, or seek\(\)") as refusal:
            consumer.poll(timeout_ms=10_000)
        assert refusal.value.code in TOPIC_GONE


def test_by_hand_poll_raises_until_the_partitions_are_assigned_again(assigned: tuple[FakeCluster, Consumer]) -> None:
    cluster, consumer = assigned
    assert_raises_each_time(consumer)
    consumer.assign([T0, T1])
    assert sorted(poll_all(consumer, 2)) == [b"new 0", b"new 1"]
    consumer.commit()
    assert cluster.group.offsets == {T0: 1, T1: 1}


@pytest.mark.parametrize("way", ["seek", "seek_to_beginning"])
def test_by_hand_moving_a_partition_takes_the_new_topic(assigned: tuple[FakeCluster, Consumer], way: str) -> None:
    _, consumer = assigned
    assert_raises_each_time(consumer)
    if way == "seek":
        consumer.seek(T0, 0)
        consumer.seek(T1, 0)
    else:
        consumer.seek_to_beginning()
    assert sorted(poll_all(consumer, 2)) == [b"new 0", b"new 1"]


def test_by_hand_moving_it_before_it_is_known_moves_it_in_the_old_topic(assigned: tuple[FakeCluster, Consumer]) -> None:
    _, consumer = assigned
    consumer.seek(T0, 0)
    assert_raises_each_time(consumer)


def test_a_batch_of_the_old_topic_counts_for_nothing_in_the_new_one(assigned: tuple[FakeCluster, Consumer]) -> None:
    cluster, consumer = assigned
    with pytest.raises(Rejected):
        consumer.poll(timeout_ms=10_000)
    consumer.assign([T0, T1])
    poll_all(consumer, 2)
    cluster.topic.append(0, b"newer")
    old = consumer.poll(timeout_ms=10_000)
    remake(cluster, 3)
    with pytest.raises(Rejected):
        consumer.poll(timeout_ms=10_000)
    consumer.seek_to_beginning()
    consumer.rewind(old)
    with pytest.raises(Abortable):
        consumer.transaction_offsets(old)
    cluster.topic.append(0, b"newest")
    assert poll_all(consumer, 1) == [b"newest"]


def test_by_hand_what_was_fetched_before_comes_first_and_a_pause_holds() -> None:
    cluster = FakeCluster()
    consumer = cluster.consumer(group_id=None)
    consumer.assign([T0, T1])
    cluster.topic.append(0, b"a", b"b")
    cluster.topic.append(1, b"c")
    assert values(consumer.poll(timeout_ms=1_000, max_records=1)) == [b"a"]
    cluster.world.pause(1_000)
    consumer.pause([T1])
    remake(cluster, 3)
    cluster.world.pause(1_000)
    assert values(consumer.poll(timeout_ms=1_000)) == [b"b"]
    with pytest.raises(Rejected):
        consumer.poll(timeout_ms=1_000)
    consumer.seek(T0, 0)
    consumer.resume([T1])
    assert values(consumer.poll(timeout_ms=1_000)) == [b"c"]
    with pytest.raises(Rejected):
        consumer.poll(timeout_ms=1_000)
    consumer.pause([T1])
    consumer.assign([T0, T1])
    assert consumer.paused() == {T1}
    cluster.topic.append(0, b"new")
    assert poll_all(consumer, 1) == [b"new"]
