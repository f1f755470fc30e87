"""A member of the consumer protocol: what it tells its group, what the application is told, and when."""

from __future__ import annotations

import pytest

from coordinator_client import Consumer, Fenced, RebalanceListener
from coordinator_protocol.errors import ErrorCode
from coordinator_protocol.methods import Method
from tests.client.consumers import T0, T1, T2, Diary, Room, poll_all, values
from tests.client.fake_group import INTERVAL_MS
from tests.client.fake_server import TOPIC_ID, refuse
from tests.client.world import Fault


@pytest.fixture
def room() -> Room:
    return Room()


def beat_answer(room: Room, code: ErrorCode):
    from coordinator_api.v1 import group_pb2

    return refuse(group_pb2.ConsumerGroupHeartbeatResponse(), Method.CONSUMER_GROUP_HEARTBEAT, code)


def test_a_join_says_everything_and_an_ordinary_heartbeat_nothing(room: Room) -> None:
    room.group.give(0)
    consumer = room.member(group_instance_id="i", rack_id="r", server_assignor="range", max_poll_interval_ms=7_000)
    consumer.poll(timeout_ms=100)
    join, acknowledgement, beat = room.beats()
    assert (join.member_epoch, join.rebalance_timeout_ms, join.instance_id, join.rack_id) == (0, 7_000, "i", "r")
    assert (list(join.subscribed_topic_names.names), join.server_assignor, room.owned_in(join)) == (["t"], "range", [])
    assert (acknowledgement.member_epoch, room.owned_in(acknowledgement)) == (2, [0])
    assert acknowledgement.topic_partitions.topics[0].topic_id == TOPIC_ID
    said = {field.name for field, _ in beat.ListFields()}
    assert said == {"header", "group_id", "member_id", "member_epoch", "instance_id", "max_wait_ms"}


def test_heartbeats_go_on_whatever_the_application_does(room: Room) -> None:
    room.group.give(0)
    consumer = room.member()
    consumer.poll(timeout_ms=100)
    before = len(room.beats())
    room.world.pause(60_000)
    assert len(room.beats()) - before == 60_000 // INTERVAL_MS


def test_news_arrive_while_the_heartbeat_waits(room: Room) -> None:
    room.group.give(0)
    consumer = room.member()
    consumer.poll(timeout_ms=1_000)
    room.group.give(0, 1)
    began_ms = room.world.now_ms
    while len(consumer.assignment()) < 2:
        consumer.poll(timeout_ms=1)
    assert room.world.now_ms - began_ms < 10


def test_kafkas_timing_is_a_setting(room: Room) -> None:
    room.group.give(0)
    consumer = room.member(heartbeat_wait_ms=0)
    consumer.poll(timeout_ms=100)
    room.group.give(0, 1)
    assert len(consumer.assignment()) == 1
    consumer.poll(timeout_ms=INTERVAL_MS)
    assert len(consumer.assignment()) == 2
    assert {beat.max_wait_ms for beat in room.beats()} == {0}


def test_a_server_that_does_not_hold_heartbeats_is_not_asked_in_a_circle(room: Room) -> None:
    def at_once(request):
        request.max_wait_ms = 0
        return room.group.heartbeat(request)

    room.world.server.handle(Method.CONSUMER_GROUP_HEARTBEAT, at_once)
    room.group.give(0)
    consumer = room.member()
    consumer.poll(timeout_ms=100)
    room.world.pause(60_000)
    assert len(room.beats()) < 25


def test_partitions_are_given_up_in_poll_only(room: Room) -> None:
    diary = Diary()
    room.topic.append(0, b"a", b"b")
    room.group.give(0, 1)
    consumer = room.member(diary, enable_auto_commit=False)
    assert values(consumer.poll(max_records=1)) == [b"a"]
    room.group.give(1)
    room.world.pause(100_000)
    assert consumer.assignment() == {T0, T1}
    consumer.commit()
    assert not consumer.poll(timeout_ms=1_000)
    assert diary.told == [("assigned", [0, 1]), ("revoked", [0]), ("assigned", [])]
    assert consumer.assignment() == {T1}


@pytest.mark.parametrize("has_listener", [False, True])
def test_records_of_a_revoked_partition_are_never_handed_out(room: Room, has_listener: bool) -> None:
    room.topic.append(0, *[b"0"] * 10)
    room.topic.append(1, *[b"1"] * 10)
    room.group.give(0, 1)
    consumer = room.member(Diary() if has_listener else None)
    consumer.poll(max_records=1)
    room.group.give(1)
    room.world.pause(1_000)
    seen = {record.partition for _ in range(12) for record in consumer.poll(timeout_ms=100, max_records=1)}
    assert seen == {1}


def test_what_was_polled_is_committed_before_a_partition_goes(room: Room) -> None:
    room.topic.append(0, b"a", b"b")
    room.group.give(0)
    consumer = room.member()
    consumer.poll(max_records=1)
    room.group.give()
    room.world.pause(50)
    assert room.group.offsets == {}
    consumer.poll(timeout_ms=100)
    assert room.group.offsets == {T0: 1}


def test_the_listener_may_commit_what_is_revoked_and_choose_where_to_begin(room: Room) -> None:
    class Own(RebalanceListener):
        consumer: Consumer

        def on_partitions_assigned(self, partitions) -> None:
            for partition in partitions:
                self.consumer.seek(partition, 1)

        def on_partitions_revoked(self, partitions) -> None:
            self.consumer.commit(dict.fromkeys(partitions, 77))

    room.topic.append(0, b"a", b"b")
    room.group.give(0)
    listener = Own()
    listener.consumer = room.member(listener, enable_auto_commit=False)
    assert poll_all(listener.consumer, 1) == [b"b"]
    room.group.give()
    listener.consumer.poll(timeout_ms=100)
    assert room.group.offsets == {T0: 77}


def test_a_newer_target_is_taken_after_the_one_under_way(room: Room) -> None:
    diary = Diary()
    room.group.give(0, 1)
    consumer = room.member(diary)
    consumer.poll(timeout_ms=100)
    room.group.give(1)
    room.world.pause(50)
    room.group.give(1, 2)
    room.world.pause(50)
    room.group.give(2)
    consumer.poll(timeout_ms=1_000)
    assert consumer.assignment() == {T2}
    assert room.group.owned == {2}
    assert [told for told in diary.told if told[0] == "revoked"] == [("revoked", [0]), ("revoked", [1])]


def test_a_removed_member_is_told_and_comes_back(room: Room) -> None:
    diary = Diary()
    room.topic.append(0, b"a", b"b")
    room.group.give(0)
    consumer = room.member(diary, enable_auto_commit=False)
    assert values(consumer.poll(max_records=1)) == [b"a"]
    room.group.remove()
    room.world.pause(100)
    assert consumer.assignment() == frozenset()
    assert poll_all(consumer, 2) == [b"a", b"b"]
    assert diary.told == [("assigned", [0]), ("lost", [0]), ("assigned", [0])]


def test_without_a_listener_a_removed_member_comes_back_by_itself(room: Room) -> None:
    room.group.give(0)
    consumer = room.member()
    consumer.poll(timeout_ms=100)
    room.group.remove()
    room.world.pause(100)
    assert consumer.assignment() == {T0}


def test_lost_calls_revoked_unless_it_is_overridden(room: Room) -> None:
    told = []

    class Plain(RebalanceListener):
        def on_partitions_revoked(self, partitions) -> None:
            told.append(sorted(partitions))

    room.group.give(0)
    consumer = room.member(Plain())
    consumer.poll(timeout_ms=100)
    room.group.remove()
    consumer.poll(timeout_ms=100)
    assert told == [[T0]]


def test_an_application_that_does_not_poll_leaves_and_comes_back_with_its_next_poll(room: Room) -> None:
    diary = Diary()
    room.topic.append(0, b"a")
    room.group.give(0)
    consumer = room.member(diary, max_poll_interval_ms=10_000, enable_auto_commit=False)
    assert poll_all(consumer, 1) == [b"a"]
    room.world.pause(9_000)
    assert consumer.assignment() == {T0}
    room.world.pause(2_000)
    assert consumer.assignment() == frozenset()
    assert (room.beats()[-1].member_epoch, room.group.member_id) == (-1, "")
    assert poll_all(consumer, 1) == [b"a"]
    assert diary.told == [("assigned", [0]), ("lost", [0]), ("assigned", [0])]
    assert {beat.member_id for beat in room.beats()} == {room.group.member_id}


def test_a_long_poll_is_no_silence(room: Room) -> None:
    room.group.give(0)
    consumer = room.member(max_poll_interval_ms=5_000)
    consumer.poll(timeout_ms=20_000)
    assert consumer.assignment() == {T0}


def test_a_change_of_the_subscription_is_told_at_once(room: Room) -> None:
    room.group.give(0)
    consumer = room.member()
    consumer.poll(timeout_ms=100)
    before = len(room.beats())
    consumer.subscribe(["t"], pattern="u.*")
    consumer.poll(timeout_ms=10)
    told = room.beats()[before]
    assert (list(told.subscribed_topic_names.names), told.subscribed_topic_regex) == (["t"], "u.*")
    consumer.subscribe(["t"])
    consumer.poll(timeout_ms=10)
    assert any(beat.HasField("subscribed_topic_regex") and not beat.subscribed_topic_regex for beat in room.beats())


def test_leaving_tells_the_listener_and_the_group(room: Room) -> None:
    diary = Diary()
    room.topic.append(0, b"a")
    room.group.give(0)
    consumer = room.member(diary)
    poll_all(consumer, 1)
    consumer.unsubscribe()
    assert (diary.told[-1], room.group.member_id, consumer.assignment()) == (("revoked", [0]), "", frozenset())
    assert room.group.offsets == {T0: 1}
    consumer.assign([T1])
    consumer.unsubscribe()
    consumer.subscribe(["t"])
    consumer.poll(timeout_ms=100)
    assert consumer.assignment() == {T0}


def test_a_static_member_only_goes_for_a_moment(room: Room) -> None:
    room.group.give(0)
    consumer = room.member(group_instance_id="i")
    consumer.poll(timeout_ms=100)
    consumer.close()
    assert room.beats()[-1].member_epoch == -2


def test_a_lost_leave_is_sent_again(room: Room) -> None:
    room.group.give(0)
    consumer = room.member()
    consumer.poll(timeout_ms=100)
    room.world.fault(Method.CONSUMER_GROUP_HEARTBEAT, Fault.LOST_REQUEST, Fault.LOST_REPLY)
    consumer.close()
    assert room.group.member_id == ""


def test_an_instance_id_that_is_not_free_yet_is_waited_for(room: Room) -> None:
    unreleased = beat_answer(room, ErrorCode.UNRELEASED_INSTANCE_ID)
    room.world.answer(Method.CONSUMER_GROUP_HEARTBEAT, *[unreleased] * 5)
    room.group.give(0)
    consumer = room.member(group_instance_id="i")
    consumer.poll(timeout_ms=10_000)
    assert consumer.assignment() == {T0}


def test_a_fenced_instance_stops_and_is_told_why(room: Room) -> None:
    diary = Diary()
    room.group.give(0)
    consumer = room.member(diary, group_instance_id="i")
    consumer.poll(timeout_ms=100)
    room.world.answer(Method.CONSUMER_GROUP_HEARTBEAT, beat_answer(room, ErrorCode.FENCED_INSTANCE_ID))
    room.group.give(0, 1)
    for _ in range(2):
        with pytest.raises(Fenced, match="a newer one holds its group_instance_id"):
            consumer.poll(timeout_ms=10_000)
    before = len(room.beats())
    room.world.pause(60_000)
    assert len(room.beats()) == before
    assert diary.told[-1] == ("lost", [0, 1])


def test_exceptions_of_the_listener_stop_nothing_and_the_first_is_raised(room: Room) -> None:
    first, second = ValueError("revoked"), ValueError("assigned")
    room.group.give(0)
    consumer = room.member(diary := Diary())
    consumer.poll(timeout_ms=100)
    diary.raises = {"revoked": first, "assigned": second}
    room.group.give(1)
    with pytest.raises(ValueError, match="revoked"):
        consumer.poll(timeout_ms=1_000)
    assert consumer.assignment() == {T1}
    assert [word for word, _ in diary.told] == ["assigned", "revoked", "assigned"]
    consumer.poll(timeout_ms=100)


def test_a_topic_that_was_created_again_is_another_one(room: Room) -> None:
    diary = Diary()
    room.topic.append(0, b"a")
    room.group.give(0)
    consumer = room.member(diary, enable_auto_commit=False)
    poll_all(consumer, 1)
    from coordinator_api.v1 import group_pb2

    again = group_pb2.ConsumerGroupHeartbeatResponse(member_epoch=9, heartbeat_interval_ms=INTERVAL_MS)
    again.assignment.topics.add(topic="t", topic_id=b"another-topic-id", partitions=[0])
    room.group.epoch = 9
    room.world.answer(Method.CONSUMER_GROUP_HEARTBEAT, again)
    room.world.pause(INTERVAL_MS)
    consumer.poll(timeout_ms=100)
    assert diary.told[1:3] == [("revoked", [0]), ("assigned", [0])]
