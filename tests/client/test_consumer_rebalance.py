"""A member of the consumer protocol: its heartbeats to the group, the calls of its listener, and their order."""

from __future__ import annotations

import pytest

from coordinator_client import Consumer, Fenced, RebalanceListener
from coordinator_protocol.errors import ErrorCode
from coordinator_protocol.methods import Method
from tests.client.consumers import T0, T1, T2, Diary, FakeCluster, poll_all, values
from tests.client.fake_group import INTERVAL_MS
from tests.client.fake_server import TOPIC_ID, refuse
from tests.client.world import Fault


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


def beat_answer(cluster: FakeCluster, code: ErrorCode):
    from coordinator_api.v1 import group_pb2

    return refuse(group_pb2.ConsumerGroupHeartbeatResponse(), Method.CONSUMER_GROUP_HEARTBEAT, code)


def test_a_join_says_everything_and_an_ordinary_heartbeat_nothing(cluster: FakeCluster) -> None:
    cluster.group.give(0)
    consumer = cluster.member(group_instance_id="i", rack_id="r", server_assignor="range", max_poll_interval_ms=7_000)
    consumer.poll(timeout_ms=100)
    join, acknowledgement, beat = cluster.beats()
    assert (join.member_epoch, join.rebalance_timeout_ms, join.instance_id, join.rack_id) == (0, 7_000, "i", "r")
    assert (list(join.subscribed_topic_names.names), join.server_assignor, cluster.owned_in(join)) == (
        ["t"],
        "range",
        [],
    )
    assert (acknowledgement.member_epoch, cluster.owned_in(acknowledgement)) == (2, [0])
    assert acknowledgement.topic_partitions.topics[0].topic_id == TOPIC_ID
    said = {field.name for field, _ in beat.ListFields()}
    assert said == {"header", "group_id", "member_id", "member_epoch", "instance_id", "max_wait_ms"}


def test_heartbeats_go_on_whatever_the_application_does(cluster: FakeCluster) -> None:
    cluster.group.give(0)
    consumer = cluster.member()
    consumer.poll(timeout_ms=100)
    before = len(cluster.beats())
    cluster.world.pause(60_000)
    assert len(cluster.beats()) - before == 60_000 // INTERVAL_MS


def test_news_arrive_while_the_heartbeat_waits(cluster: FakeCluster) -> None:
    cluster.group.give(0)
    consumer = cluster.member()
    consumer.poll(timeout_ms=1_000)
    cluster.group.give(0, 1)
    began_ms = cluster.world.now_ms
    while len(consumer.assignment()) < 2:
        consumer.poll(timeout_ms=1)
    assert cluster.world.now_ms - began_ms < 10


def test_kafkas_timing_is_a_setting(cluster: FakeCluster) -> None:
    cluster.group.give(0)
    consumer = cluster.member(heartbeat_wait_ms=0)
    consumer.poll(timeout_ms=100)
    cluster.group.give(0, 1)
    assert len(consumer.assignment()) == 1
    consumer.poll(timeout_ms=INTERVAL_MS)
    assert len(consumer.assignment()) == 2
    assert {beat.max_wait_ms for beat in cluster.beats()} == {0}


def test_a_server_that_does_not_hold_heartbeats_is_not_asked_in_a_circle(cluster: FakeCluster) -> None:
    def at_once(request):
        request.max_wait_ms = 0
        return cluster.group.heartbeat(request)

    cluster.world.server.handle(Method.CONSUMER_GROUP_HEARTBEAT, at_once)
    cluster.group.give(0)
    consumer = cluster.member()
    consumer.poll(timeout_ms=100)
    cluster.world.pause(60_000)
    assert len(cluster.beats()) < 25


def test_partitions_are_given_up_in_poll_only(cluster: FakeCluster) -> None:
    diary = Diary()
    cluster.topic.append(0, b"a", b"b")
    cluster.group.give(0, 1)
    consumer = cluster.member(diary, enable_auto_commit=False)
    assert values(consumer.poll(max_records=1)) == [b"a"]
    cluster.group.give(1)
    cluster.world.pause(100_000)
    assert consumer.assignment() == {T0, T1}
    consumer.commit()
    assert not consumer.poll(timeout_ms=1_000)
    assert diary.told == [("assigned", [0, 1]), ("revoked", [0]), ("assigned", [])]
    assert consumer.assignment() == {T1}


@pytest.mark.parametrize("has_listener", [False, True])
def test_records_of_a_revoked_partition_are_never_handed_out(cluster: FakeCluster, has_listener: bool) -> None:
    cluster.topic.append(0, *[b"0"] * 10)
    cluster.topic.append(1, *[b"1"] * 10)
    cluster.group.give(0, 1)
    consumer = cluster.member(Diary() if has_listener else None)
    consumer.poll(max_records=1)
    cluster.group.give(1)
    cluster.world.pause(1_000)
    seen = {record.partition for _ in range(12) for record in consumer.poll(timeout_ms=100, max_records=1)}
    assert seen == {1}


def test_what_was_polled_is_committed_before_a_partition_goes(cluster: FakeCluster) -> None:
    cluster.topic.append(0, b"a", b"b")
    cluster.group.give(0)
    consumer = cluster.member()
    consumer.poll(max_records=1)
    cluster.group.give()
    cluster.world.pause(50)
    assert cluster.group.offsets == {}
    consumer.poll(timeout_ms=100)
    assert cluster.group.offsets == {T0: 1}


def test_the_listener_may_commit_what_is_revoked_and_choose_where_to_begin(cluster: FakeCluster) -> None:
    class Own(RebalanceListener):
        consumer: Consumer

        def on_partitions_assigned(self, partitions) -> None:
            for partition in partitions:
                self.consumer.seek(partition, 1)

        def on_partitions_revoked(self, partitions) -> None:
            self.consumer.commit(dict.fromkeys(partitions, 77))

    cluster.topic.append(0, b"a", b"b")
    cluster.group.give(0)
    listener = Own()
    listener.consumer = cluster.member(listener, enable_auto_commit=False)
    assert poll_all(listener.consumer, 1) == [b"b"]
    cluster.group.give()
    listener.consumer.poll(timeout_ms=100)
    assert cluster.group.offsets == {T0: 77}


def test_a_newer_target_is_taken_after_the_one_under_way(cluster: FakeCluster) -> None:
    diary = Diary()
    cluster.group.give(0, 1)
    consumer = cluster.member(diary)
    consumer.poll(timeout_ms=100)
    cluster.group.give(1)
    cluster.world.pause(50)
    cluster.group.give(1, 2)
    cluster.world.pause(50)
    cluster.group.give(2)
    consumer.poll(timeout_ms=1_000)
    assert consumer.assignment() == {T2}
    assert cluster.group.owned == {2}
    assert [told for told in diary.told if told[0] == "revoked"] == [("revoked", [0]), ("revoked", [1])]


def test_a_removed_member_is_told_and_comes_back(cluster: FakeCluster) -> None:
    diary = Diary()
    cluster.topic.append(0, b"a", b"b")
    cluster.group.give(0)
    consumer = cluster.member(diary, enable_auto_commit=False)
    assert values(consumer.poll(max_records=1)) == [b"a"]
    cluster.group.remove()
    cluster.world.pause(100)
    assert consumer.assignment() == frozenset()
    assert poll_all(consumer, 2) == [b"a", b"b"]
    assert diary.told == [("assigned", [0]), ("lost", [0]), ("assigned", [0])]


def test_without_a_listener_a_removed_member_comes_back_by_itself(cluster: FakeCluster) -> None:
    cluster.group.give(0)
    consumer = cluster.member()
    consumer.poll(timeout_ms=100)
    cluster.group.remove()
    cluster.world.pause(100)
    assert consumer.assignment() == {T0}


def test_lost_calls_revoked_unless_it_is_overridden(cluster: FakeCluster) -> None:
    told = []

    class Plain(RebalanceListener):
        def on_partitions_revoked(self, partitions) -> None:
            told.append(sorted(partitions))

    cluster.group.give(0)
    consumer = cluster.member(Plain())
    consumer.poll(timeout_ms=100)
    cluster.group.remove()
    consumer.poll(timeout_ms=100)
    assert told == [[T0]]


def test_an_application_that_does_not_poll_leaves_and_comes_back_with_its_next_poll(cluster: FakeCluster) -> None:
    diary = Diary()
    cluster.topic.append(0, b"a")
    cluster.group.give(0)
    consumer = cluster.member(diary, max_poll_interval_ms=10_000, enable_auto_commit=False)
    assert poll_all(consumer, 1) == [b"a"]
    cluster.world.pause(9_000)
    assert consumer.assignment() == {T0}
    cluster.world.pause(2_000)
    assert consumer.assignment() == frozenset()
    assert (cluster.beats()[-1].member_epoch, cluster.group.member_id) == (-1, "")
    assert poll_all(consumer, 1) == [b"a"]
    assert diary.told == [("assigned", [0]), ("lost", [0]), ("assigned", [0])]
    assert {beat.member_id for beat in cluster.beats()} == {cluster.group.member_id}


def test_a_long_poll_is_no_silence(cluster: FakeCluster) -> None:
    cluster.group.give(0)
    consumer = cluster.member(max_poll_interval_ms=5_000)
    consumer.poll(timeout_ms=20_000)
    assert consumer.assignment() == {T0}


def test_a_change_of_the_subscription_is_told_at_once(cluster: FakeCluster) -> None:
    cluster.group.give(0)
    consumer = cluster.member()
    consumer.poll(timeout_ms=100)
    before = len(cluster.beats())
    consumer.subscribe(["t"], pattern="u.*")
    consumer.poll(timeout_ms=10)
    told = cluster.beats()[before]
    assert (list(told.subscribed_topic_names.names), told.subscribed_topic_regex) == (["t"], "u.*")
    consumer.subscribe(["t"])
    consumer.poll(timeout_ms=10)
    assert any(beat.HasField("subscribed_topic_regex") and not beat.subscribed_topic_regex for beat in cluster.beats())


def test_leaving_tells_the_listener_and_the_group(cluster: FakeCluster) -> None:
    diary = Diary()
    cluster.topic.append(0, b"a")
    cluster.group.give(0)
    consumer = cluster.member(diary)
    poll_all(consumer, 1)
    consumer.unsubscribe()
    assert (diary.told[-1], cluster.group.member_id, consumer.assignment()) == (("revoked", [0]), "", frozenset())
    assert cluster.group.offsets == {T0: 1}
    consumer.assign([T1])
    consumer.unsubscribe()
    consumer.subscribe(["t"])
    consumer.poll(timeout_ms=100)
    assert consumer.assignment() == {T0}


def test_a_static_member_only_goes_for_a_moment(cluster: FakeCluster) -> None:
    cluster.group.give(0)
    consumer = cluster.member(group_instance_id="i")
    consumer.poll(timeout_ms=100)
    consumer.close()
    assert cluster.beats()[-1].member_epoch == -2


def test_a_lost_leave_is_sent_again(cluster: FakeCluster) -> None:
    cluster.group.give(0)
    consumer = cluster.member()
    consumer.poll(timeout_ms=100)
    cluster.world.fault(Method.CONSUMER_GROUP_HEARTBEAT, Fault.LOST_REQUEST, Fault.LOST_REPLY)
    consumer.close()
    assert cluster.group.member_id == ""


def test_an_instance_id_that_is_not_free_yet_is_waited_for(cluster: FakeCluster) -> None:
    unreleased = beat_answer(cluster, ErrorCode.UNRELEASED_INSTANCE_ID)
    cluster.world.answer(Method.CONSUMER_GROUP_HEARTBEAT, *[unreleased] * 5)
    cluster.group.give(0)
    consumer = cluster.member(group_instance_id="i")
    consumer.poll(timeout_ms=10_000)
    assert consumer.assignment() == {T0}


def test_a_fenced_instance_stops_and_is_told_why(cluster: FakeCluster) -> None:
    diary = Diary()
    cluster.group.give(0)
    consumer = cluster.member(diary, group_instance_id="i")
    consumer.poll(timeout_ms=100)
    cluster.world.answer(Method.CONSUMER_GROUP_HEARTBEAT, beat_answer(cluster, ErrorCode.FENCED_INSTANCE_ID))
    cluster.group.give(0, 1)
    for _ in range(2):
        with pytest.raises(Fenced, match="a newer one holds its group_instance_id"):
            consumer.poll(timeout_ms=10_000)
    before = len(cluster.beats())
    cluster.world.pause(60_000)
    assert len(cluster.beats()) == before
    assert diary.told[-1] == ("lost", [0, 1])


def test_exceptions_of_the_listener_stop_nothing_and_the_first_is_raised(cluster: FakeCluster) -> None:
    first, second = ValueError("revoked"), ValueError("assigned")
    cluster.group.give(0)
    consumer = cluster.member(diary := Diary())
    consumer.poll(timeout_ms=100)
    diary.raises = {"revoked": first, "assigned": second}
    cluster.group.give(1)
    with pytest.raises(ValueError, match="revoked"):
        consumer.poll(timeout_ms=1_000)
    assert consumer.assignment() == {T1}
    assert [word for word, _ in diary.told] == ["assigned", "revoked", "assigned"]
    consumer.poll(timeout_ms=100)


def test_a_topic_that_was_created_again_is_another_one(cluster: FakeCluster) -> None:
    diary = Diary()
    cluster.topic.append(0, b"a")
    cluster.group.give(0)
    consumer = cluster.member(diary, enable_auto_commit=False)
    poll_all(consumer, 1)
    from coordinator_api.v1 import group_pb2

    again = group_pb2.ConsumerGroupHeartbeatResponse(member_epoch=9, heartbeat_interval_ms=INTERVAL_MS)
    again.assignment.topics.add(topic="t", topic_id=b"another-topic-id", partitions=[0])
    cluster.group.epoch = 9
    cluster.world.answer(Method.CONSUMER_GROUP_HEARTBEAT, again)
    cluster.world.pause(INTERVAL_MS)
    consumer.poll(timeout_ms=100)
    assert diary.told[1:3] == [("revoked", [0]), ("assigned", [0])]
