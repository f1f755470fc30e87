"""A topic is deleted and made again under who reads it: whether it is the same, its id says and not its name."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from coordinator_api.v1 import log_pb2 as log
from coordinator_client import Abortable, Consumer, Rejected, TopicPartition
from coordinator_client.errors import TOPIC_GONE
from coordinator_protocol.errors import ErrorCode
from coordinator_protocol.methods import Method
from tests.client.consumers import T0, T1, ClassicRoom, Diary, Room, poll_all, values
from tests.client.fake_server import refuse
from tests.client.world import Fault, Held

COUNTS = [3, 1, 5]
"""Partitions of the new topic: as many as before, fewer, more."""
EAGER, COOPERATIVE = ["range"], ["cooperative-sticky"]


def fill(room: Room, word: bytes, partition_count: int) -> list[bytes]:
    """Write a record into each partition; return them."""
    written = [b"%s %d" % (word, number) for number in range(partition_count)]
    for number, value in enumerate(written):
        room.topic.append(number, value)
    return written


def delete(room: Room) -> None:
    """Delete the topic, and with it what is committed in it."""
    room.topic.delete()
    room.group.offsets.clear()


def remake(room: Room, partition_count: int) -> None:
    delete(room)
    room.topic.make(partition_count)


def old_read(room: Room, consumer: Consumer) -> None:
    """Read the topic that will be deleted, and commit."""
    old = fill(room, b"old", 3)
    assert sorted(poll_all(consumer, 3)) == old
    consumer.commit()


@pytest.mark.parametrize("is_polled_between", [False, True])
@pytest.mark.parametrize("partition_count", COUNTS)
@pytest.mark.parametrize("assignors", [EAGER, COOPERATIVE])
def test_the_leader_of_a_classic_group_goes_on_with_the_new_topic(
    assignors: list[str], partition_count: int, is_polled_between: bool
) -> None:
    room = ClassicRoom()
    consumer = room.member(partition_assignors=assignors)
    old_read(room, consumer)
    delete(room)
    if is_polled_between:
        for _ in range(5):
            assert not consumer.poll(timeout_ms=1_000)
        assert consumer.assignment() == frozenset()
    room.topic.make(partition_count)
    new = fill(room, b"new", partition_count)
    deadline_ms = room.world.now_ms + 32_000
    found: list[bytes | None] = []
    while len(found) < partition_count and room.world.now_ms < deadline_ms:
        found += values(consumer.poll(timeout_ms=1_000))
    assert sorted(value or b"" for value in found) == new
    assert consumer.assignment() == {TopicPartition("t", number) for number in range(partition_count)}
    consumer.commit()
    assert room.group.offsets == {TopicPartition("t", number): 1 for number in range(partition_count)}


def test_it_goes_on_at_once_where_it_is_fetching() -> None:
    room = ClassicRoom()
    consumer = room.member()
    old_read(room, consumer)
    consumer.poll(timeout_ms=100)
    begun_ms = room.world.now_ms
    remake(room, 3)
    fill(room, b"new", 3)
    poll_all(consumer, 3)
    assert room.world.now_ms - begun_ms < 100


@pytest.mark.parametrize("partition_count", COUNTS)
@pytest.mark.parametrize("assignors", [EAGER, COOPERATIVE])
def test_a_follower_goes_on_with_the_new_topic_though_the_leader_notices_nothing(
    assignors: list[str], partition_count: int
) -> None:
    room, diary = ClassicRoom(), Diary()
    room.group.leader, room.group.plan = "m-9", [0, 2]
    consumer = room.member(diary, partition_assignors=assignors)
    fill(room, b"old", 3)
    assert sorted(poll_all(consumer, 2)) == [b"old 0", b"old 2"]
    consumer.commit()
    remake(room, partition_count)
    new = fill(room, b"new", partition_count)
    mine = [value for number, value in enumerate(new) if number in (0, 2)]
    assert sorted(poll_all(consumer, len(mine))) == mine
    assert diary.told == [("assigned", [0, 2]), ("revoked", [0, 2]), ("assigned", [0, 2])]
    assert not consumer.poll(timeout_ms=5_000)
    assert len(room.world.requests(Method.JOIN_GROUP)) == 3, "one of them asked for an id"
    consumer.commit()
    assert set(room.group.offsets.values()) == {1}


def test_a_follower_looks_for_what_is_missing_every_second_and_for_nothing_else() -> None:
    room = ClassicRoom()
    room.group.leader, room.group.plan = "m-9", [0, 2]
    consumer = room.member()
    fill(room, b"old", 3)
    poll_all(consumer, 2)
    delete(room)
    room.world.sent.clear()
    for _ in range(10):
        consumer.poll(timeout_ms=1_000)
    looks = room.world.requests(Method.DESCRIBE_TOPICS)
    assert 10 <= len(looks) <= 11
    assert all([topic.name for topic in look.topics] == ["t"] for look in looks)


def test_a_leader_notices_a_topic_that_it_does_not_read_itself() -> None:
    room = ClassicRoom()
    room.group.plan = []
    consumer = room.member(metadata_max_age_ms=10_000)
    consumer.poll(timeout_ms=1_000)
    joined = len(room.world.requests(Method.JOIN_GROUP))
    remake(room, 3)
    room.world.pause(11_000)
    consumer.poll(timeout_ms=1_000)
    assert len(room.world.requests(Method.JOIN_GROUP)) == joined + 1


@pytest.mark.parametrize("partition_count", COUNTS)
def test_a_static_leader_that_was_away_notices_whether_there_are_other_partitions(partition_count: int) -> None:
    """The group keeps its assignment meanwhile, and spares the leader to make another one."""
    room = ClassicRoom()
    room.topic.make(partition_count)
    new = fill(room, b"new", partition_count)
    room.group.skip_assignment, room.group.plan = True, [0, 1, 2]
    consumer = room.member(group_instance_id="i")
    consumer.poll(timeout_ms=1)
    room.world.pause(1_000)
    room.group.skip_assignment, room.group.plan = False, None
    consumer.poll(timeout_ms=1_000, max_records=1)
    consumer.seek_to_beginning()
    assert len(room.world.requests(Method.JOIN_GROUP)) == (1 if partition_count == 3 else 2)
    assert sorted(poll_all(consumer, partition_count)) == new


def test_a_static_leader_that_may_not_look_takes_what_there_is() -> None:
    room = ClassicRoom()
    room.topic.make(5)
    room.group.skip_assignment, room.group.plan = True, [0, 1, 2]
    room.world.fault(Method.DESCRIBE_GROUPS, Fault.LOST_REQUEST)
    consumer = room.member(group_instance_id="i")
    consumer.poll(timeout_ms=5_000)
    assert len(room.world.requests(Method.JOIN_GROUP)) == 1
    room.topic.make(6)
    room.world.pause(31_000)
    consumer.poll(timeout_ms=5_000)
    assert len(room.world.requests(Method.JOIN_GROUP)) == 2


def test_a_pattern_goes_on_with_the_new_topic() -> None:
    room = ClassicRoom()
    consumer = room.consumer()
    consumer.subscribe(pattern="t.*")
    old_read(room, consumer)
    remake(room, 2)
    new = fill(room, b"new", 2)
    assert sorted(poll_all(consumer, 2)) == new


@pytest.mark.parametrize("partition_count", COUNTS)
def test_a_member_of_the_consumer_protocol_goes_on_with_the_new_topic(partition_count: int) -> None:
    room = Room()
    room.group.give(0, 1, 2)
    consumer = room.member()
    old_read(room, consumer)
    remake(room, partition_count)
    new = fill(room, b"new", partition_count)
    assert not consumer.poll(timeout_ms=3_000), "the group has not noticed yet"
    room.group.give(*range(partition_count))
    assert sorted(poll_all(consumer, partition_count)) == new
    consumer.commit()
    assert room.group.offsets == {TopicPartition("t", number): 1 for number in range(partition_count)}


@pytest.mark.parametrize("kind", [Room, ClassicRoom])
def test_without_a_reset_the_new_topic_has_no_beginning(kind: type[Room]) -> None:
    room = kind()
    room.group.offsets = {T0: 0}
    room.topic.append(0, b"old")
    room.group.give(0)
    if isinstance(room, ClassicRoom):
        room.group.plan = [0]
    consumer = room.member(auto_offset_reset="none")
    assert poll_all(consumer, 1) == [b"old"]
    remake(room, 3)
    room.group.give(0)
    with pytest.raises(Rejected, match="nothing is committed for t-0") as refusal:
        poll_all(consumer, 1)
    assert refusal.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_what_a_group_waits_for_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "coordinator_client")
    room = ClassicRoom()
    consumer = room.member()
    old_read(room, consumer)
    delete(room)
    for _ in range(10):
        consumer.poll(timeout_ms=1_000)
    said = [record.getMessage() for record in caplog.records if "made again" in record.getMessage()]
    assert len(said) == 1
    assert "the topic 't' that the group 'g' reads was deleted, or made again (Fetch t-" in said[0]
    room.topic.make(3)
    fill(room, b"new", 3)
    room.world.pause(31_000)
    poll_all(consumer, 3)
    assert caplog.records[-1].getMessage() == "the topic 't' is read again"


def test_a_topic_that_is_not_found_for_a_moment_is_the_same_afterwards() -> None:
    room, diary = ClassicRoom(), Diary()
    consumer = room.member(diary)
    old_read(room, consumer)
    unresolved = log.FetchResponse()
    for number in range(3):
        result = unresolved.results.add(topic="t", partition=number)
        refuse(result, Method.FETCH, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    room.world.answer(Method.FETCH, unresolved)
    consumer.poll(timeout_ms=1_500)
    more = fill(room, b"more", 3)
    assert sorted(poll_all(consumer, 3)) == more
    consumer.commit()
    assert set(room.group.offsets.values()) == {2}
    assert diary.told == [("assigned", [0, 1, 2])]


def test_a_partition_that_never_was_is_not_said_to_be_deleted(caplog: pytest.LogCaptureFixture) -> None:
    room = ClassicRoom()
    room.group.leader, room.group.plan = "m-9", [0, 7]
    consumer = room.member()
    assert not consumer.poll(timeout_ms=5_000)
    assert caplog.records == []


# Commits


def test_a_commit_that_is_answered_late_is_none_of_the_new_topic() -> None:
    room = ClassicRoom()
    consumer = room.member(enable_auto_commit=False)
    fill(room, b"old", 3)
    poll_all(consumer, 3)
    late = Held()
    replies: list[Any] = []

    def commit(request: Any) -> Held:
        replies.append(room.group.commit(request))
        return late

    room.world.server.handle(Method.OFFSET_COMMIT, commit)
    consumer.commit_async()
    room.world.pause(100)
    room.world.server.handle(Method.OFFSET_COMMIT, room.group.commit)
    remake(room, 3)
    fill(room, b"new", 3)
    poll_all(consumer, 3)
    late.give(*replies)
    room.world.pause(100)
    consumer.commit()
    assert room.group.offsets == {TopicPartition("t", number): 1 for number in range(3)}


def test_a_commit_that_waits_is_none_of_the_new_topic() -> None:
    room = ClassicRoom()
    consumer = room.member(enable_auto_commit=False)
    fill(room, b"old", 3)
    poll_all(consumer, 3)
    ends: list[Any] = []
    room.world.fault(Method.OFFSET_COMMIT, Fault.SILENT)
    for _ in range(2):
        consumer.commit_async(callback=lambda _, error: ends.append(error))
    remake(room, 3)
    fill(room, b"new", 3)
    poll_all(consumer, 3)
    room.world.pause(60_000)
    consumer.poll(timeout_ms=1_000)
    assert [error.code for error in ends] == [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.INCONSISTENT_TOPIC_ID]
    assert room.group.offsets == {}
    consumer.commit()
    assert set(room.group.offsets.values()) == {1}


def test_commits_leave_out_topics_that_are_known_to_be_gone() -> None:
    room = Room()
    room.group.give(0, 1, 2)
    consumer = room.member(enable_auto_commit=False)
    fill(room, b"old", 3)
    poll_all(consumer, 3)
    delete(room)
    consumer.poll(timeout_ms=100)
    consumer.commit()
    assert room.group.offsets == {}
    with pytest.raises(Rejected, match="topic that is gone") as refusal:
        consumer.commit({T0: 1})
    assert refusal.value.code == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize("assignors", [EAGER, COOPERATIVE])
def test_a_paused_partition_notices_by_its_commit(assignors: list[str]) -> None:
    room = ClassicRoom()
    room.group.leader, room.group.plan = "m-9", [0]
    consumer = room.member(partition_assignors=assignors, enable_auto_commit=False)
    fill(room, b"old", 3)
    poll_all(consumer, 1)
    consumer.pause([T0])
    room.world.pause(1_000)
    remake(room, 3)
    fill(room, b"new", 3)
    assert not consumer.poll(timeout_ms=5_000)
    with pytest.raises(Rejected) as refusal:
        consumer.commit()
    assert refusal.value.code == ErrorCode.INCONSISTENT_TOPIC_ID
    assert poll_all(consumer, 1) == [b"new 0"]
    consumer.commit()
    assert room.group.offsets == {T0: 1}


# Partitions that were given by hand


@pytest.fixture
def assigned() -> tuple[Room, Consumer]:
    """A consumer that has read two partitions that were assigned to it, whose topic was made again since."""
    room = Room()
    consumer = room.consumer(enable_auto_commit=False)
    consumer.assign([T0, T1])
    fill(room, b"old", 3)
    poll_all(consumer, 2)
    consumer.commit()
    remake(room, 3)
    fill(room, b"new", 3)
    return room, consumer


def assert_raises_each_time(consumer: Consumer) -> None:
    for _ in range(3):
        with pytest.raises(Rejected, match=r"assign\(\) the partition again, or seek\(\)") as refusal:
            consumer.poll(timeout_ms=10_000)
        assert refusal.value.code in TOPIC_GONE


def test_by_hand_poll_raises_until_the_partitions_are_assigned_again(assigned: tuple[Room, Consumer]) -> None:
    room, consumer = assigned
    assert_raises_each_time(consumer)
    consumer.assign([T0, T1])
    assert sorted(poll_all(consumer, 2)) == [b"new 0", b"new 1"]
    consumer.commit()
    assert room.group.offsets == {T0: 1, T1: 1}


@pytest.mark.parametrize("way", ["seek", "seek_to_beginning"])
def test_by_hand_moving_a_partition_takes_the_new_topic(assigned: tuple[Room, Consumer], way: str) -> None:
    _, consumer = assigned
    assert_raises_each_time(consumer)
    if way == "seek":
        consumer.seek(T0, 0)
        consumer.seek(T1, 0)
    else:
        consumer.seek_to_beginning()
    assert sorted(poll_all(consumer, 2)) == [b"new 0", b"new 1"]


def test_by_hand_moving_it_before_it_is_known_moves_it_in_the_old_topic(assigned: tuple[Room, Consumer]) -> None:
    _, consumer = assigned
    consumer.seek(T0, 0)
    assert_raises_each_time(consumer)


def test_a_batch_of_the_old_topic_counts_for_nothing_in_the_new_one(assigned: tuple[Room, Consumer]) -> None:
    room, consumer = assigned
    with pytest.raises(Rejected):
        consumer.poll(timeout_ms=10_000)
    consumer.assign([T0, T1])
    poll_all(consumer, 2)
    room.topic.append(0, b"newer")
    old = consumer.poll(timeout_ms=10_000)
    remake(room, 3)
    with pytest.raises(Rejected):
        consumer.poll(timeout_ms=10_000)
    consumer.seek_to_beginning()
    consumer.rewind(old)
    with pytest.raises(Abortable):
        consumer.transaction_offsets(old)
    room.topic.append(0, b"newest")
    assert poll_all(consumer, 1) == [b"newest"]


def test_by_hand_what_was_fetched_before_comes_first_and_a_pause_holds() -> None:
    room = Room()
    consumer = room.consumer(group_id=None)
    consumer.assign([T0, T1])
    room.topic.append(0, b"a", b"b")
    room.topic.append(1, b"c")
    assert values(consumer.poll(timeout_ms=1_000, max_records=1)) == [b"a"]
    room.world.pause(1_000)
    consumer.pause([T1])
    remake(room, 3)
    room.world.pause(1_000)
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
    room.topic.append(0, b"new")
    assert poll_all(consumer, 1) == [b"new"]
