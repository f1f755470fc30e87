"""A member of a classic group: joining, leading, giving up, and what it makes of every answer."""

from __future__ import annotations

import pytest

from coordinator_api.v1 import group_pb2 as group
from coordinator_client import Misconfigured, Rejected
from coordinator_protocol.assignors.classic import CLASSIC_ASSIGNORS
from coordinator_protocol.consumer_protocol import Subscription, decode_subscription, encode_subscription
from coordinator_protocol.errors import ErrorCode
from coordinator_protocol.methods import Method
from tests.client.consumers import T0, T1, T2, ClassicCluster, Diary, poll_all, values
from tests.client.fake_server import refuse
from tests.client.world import Fault


@pytest.fixture
def cluster() -> ClassicCluster:
    return ClassicCluster()


def joins(cluster: ClassicCluster) -> list[group.JoinGroupRequest]:
    return cluster.world.requests(Method.JOIN_GROUP)


def other(name: str, *topics: str) -> group.JoinGroupMember:
    return group.JoinGroupMember(member_id=name, metadata=encode_subscription(Subscription(topics=topics)))


def test_a_member_alone_leads_and_reads_everything(cluster: ClassicCluster) -> None:
    for number in range(3):
        cluster.topic.append(number, b"%d" % number)
    consumer = cluster.member(rack_id="r")
    assert sorted(poll_all(consumer, 3)) == [b"0", b"1", b"2"]
    assert consumer.assignment() == {T0, T1, T2}
    first, second = joins(cluster)
    assert (first.member_id, second.member_id) == ("", "m-1")
    assert [protocol.name for protocol in second.protocols] == ["range", "cooperative-sticky"]
    said = decode_subscription(second.protocols[0].metadata)
    assert (said.topics, said.rack_id, second.protocol_type) == (("t",), "r", "consumer")
    assert second.supports_skip_assignment


def test_the_leader_assigns_for_everybody(cluster: ClassicCluster) -> None:
    cluster.world.server.topics["u"] = 2
    cluster.group.others = [other("m-2", "t"), other("m-3", "u", "unknown")]
    consumer = cluster.member(partition_assignors=["roundrobin"])
    consumer.poll(timeout_ms=100)
    assert cluster.group.sent_plan == {"m-1": [T0, T2], "m-2": [T1], "m-3": [("u", 0), ("u", 1)]}


def test_a_follower_reads_what_the_leader_gives_it(cluster: ClassicCluster) -> None:
    cluster.topic.append(1, b"1")
    cluster.group.leader, cluster.group.plan = "m-9", [1]
    consumer = cluster.member()
    assert poll_all(consumer, 1) == [b"1"]
    (sent,) = cluster.world.requests(Method.SYNC_GROUP)
    assert (len(sent.assignments), sent.generation_id, sent.protocol_name) == (0, 1, "range")


def test_an_eager_member_gives_everything_up_before_it_joins_again(cluster: ClassicCluster) -> None:
    diary = Diary()
    cluster.topic.append(0, b"a")
    consumer = cluster.member(diary)
    poll_all(consumer, 1)
    cluster.group.plan = [1]
    cluster.group.rebalance()
    cluster.world.pause(50)
    assert len(joins(cluster)) == 2
    consumer.poll(timeout_ms=1_000)
    assert diary.told == [("assigned", [0, 1, 2]), ("revoked", [0, 1, 2]), ("assigned", [1])]
    assert cluster.group.offsets[T0] == 1
    assert decode_subscription(joins(cluster)[-1].protocols[0].metadata).owned == {}


def test_a_cooperative_member_goes_on_reading_while_it_joins(cluster: ClassicCluster) -> None:
    diary = Diary()
    cluster.group.leader, cluster.group.plan = "m-9", [0, 1]
    consumer = cluster.cooperative(diary)
    consumer.poll(timeout_ms=100)
    cluster.topic.append(0, b"a")
    cluster.world.pause(10)
    cluster.world.fault(Method.JOIN_GROUP, Fault.LOST_REQUEST)
    cluster.group.plan = [0, 2]
    cluster.group.rebalance()
    cluster.world.pause(20)
    assert values(consumer.poll(timeout_ms=100)) == [b"a"]
    consumer.poll(timeout_ms=2_000)
    assert diary.told == [("assigned", [0, 1]), ("revoked", [1]), ("assigned", [2]), ("assigned", [])]
    said = decode_subscription(joins(cluster)[-1].protocols[0].metadata)
    assert (said.owned, said.generation) == ({"t": (0, 2)}, 2)


def test_heartbeats_go_on_and_wait_for_news(cluster: ClassicCluster) -> None:
    consumer = cluster.member(heartbeat_interval_ms=3_000)
    consumer.poll(timeout_ms=100)
    cluster.world.pause(30_000)
    beats = cluster.world.requests(Method.HEARTBEAT)
    assert len(beats) in (10, 11)
    assert {beat.max_wait_ms for beat in beats} == {3_000}
    cluster.group.rebalance()
    cluster.world.pause(9_100)
    # Until the application polls, the heartbeats that follow wait for nothing.
    assert [beat.max_wait_ms for beat in cluster.world.requests(Method.HEARTBEAT)[len(beats) :]] == [0, 0, 0]


def test_kafkas_timing_is_a_setting(cluster: ClassicCluster) -> None:
    consumer = cluster.member(heartbeat_wait_ms=0, heartbeat_interval_ms=3_000)
    consumer.poll(timeout_ms=100)
    cluster.group.rebalance()
    consumer.poll(timeout_ms=1_000)
    assert len(joins(cluster)) == 2
    consumer.poll(timeout_ms=3_000)
    assert len(joins(cluster)) == 3


@pytest.mark.parametrize(
    ("code", "keeps_id"), [(ErrorCode.UNKNOWN_MEMBER_ID, False), (ErrorCode.ILLEGAL_GENERATION, True)]
)
@pytest.mark.parametrize("method", [Method.HEARTBEAT, Method.SYNC_GROUP])
def test_a_member_that_the_group_does_not_know_loses_all_and_joins_again(
    cluster: ClassicCluster, method: Method, code: ErrorCode, keeps_id: bool
) -> None:
    diary = Diary()
    consumer = cluster.member(diary)
    reply = group.HeartbeatResponse() if method is Method.HEARTBEAT else group.SyncGroupResponse()
    cluster.world.answer(method, refuse(reply, method, code))
    consumer.poll(timeout_ms=10_000)
    assert consumer.assignment() == {T0, T1, T2}
    if method is Method.HEARTBEAT:
        assert diary.told == [("assigned", [0, 1, 2]), ("lost", [0, 1, 2]), ("assigned", [0, 1, 2])]
    assert [join.member_id for join in joins(cluster)[2:]] == (["m-1"] if keeps_id else ["", "m-1"])


def test_new_partitions_and_topics_that_match_are_noticed(cluster: ClassicCluster) -> None:
    consumer = cluster.consumer(metadata_max_age_ms=10_000)
    consumer.subscribe(pattern="t|u.*")
    consumer.poll(timeout_ms=100)
    assert consumer.assignment() == {T0, T1, T2}
    cluster.world.server.topics["u1"] = 1
    cluster.world.server.topics["__system"] = 1
    consumer.poll(timeout_ms=11_000)
    assert ("u1", 0) in consumer.assignment()
    cluster.world.server.topics["u1"] = 2
    consumer.poll(timeout_ms=11_000)
    assert consumer.assignment() == {T0, T1, T2, ("u1", 0), ("u1", 1)}


def test_a_wrong_pattern_is_refused_at_once(cluster: ClassicCluster) -> None:
    consumer = cluster.consumer()
    with pytest.raises(Rejected, match="INVALID_REGULAR_EXPRESSION"):
        consumer.subscribe(pattern="(")
    consumer.subscribe(["t"])
    consumer.poll(timeout_ms=100)
    assert len(consumer.assignment()) == 3


def test_a_change_of_the_subscription_begins_a_rebalance(cluster: ClassicCluster) -> None:
    cluster.world.server.topics["u"] = 1
    consumer = cluster.cooperative()
    consumer.poll(timeout_ms=100)
    consumer.subscribe(["u"])
    consumer.poll(timeout_ms=1_000)
    assert consumer.assignment() == {("u", 0)}


def test_an_assignment_for_an_older_subscription_is_not_applied(cluster: ClassicCluster) -> None:
    cluster.group.plan = [0]
    cluster.world.server.topics["u"] = 1
    consumer = cluster.consumer()
    consumer.subscribe(["u"])
    consumer.poll(timeout_ms=20)
    assert consumer.assignment() == frozenset()
    cluster.group.plan = None
    consumer.poll(timeout_ms=1_000)
    assert consumer.assignment() == {("u", 0)}


def test_an_application_that_does_not_poll_leaves(cluster: ClassicCluster) -> None:
    diary = Diary()
    consumer = cluster.member(diary, max_poll_interval_ms=10_000)
    consumer.poll(timeout_ms=100)
    cluster.world.pause(11_000)
    assert (cluster.group.member_id, consumer.assignment()) == ("", frozenset())
    consumer.poll(timeout_ms=1_000)
    assert diary.told == [("assigned", [0, 1, 2]), ("lost", [0, 1, 2]), ("assigned", [0, 1, 2])]


def test_a_static_application_that_does_not_poll_only_falls_silent(cluster: ClassicCluster) -> None:
    consumer = cluster.member(max_poll_interval_ms=10_000, group_instance_id="i")
    consumer.poll(timeout_ms=100)
    cluster.world.pause(11_000)
    beats = len(cluster.world.requests(Method.HEARTBEAT))
    cluster.world.pause(30_000)
    assert Method.LEAVE_GROUP not in cluster.world.methods()
    assert len(cluster.world.requests(Method.HEARTBEAT)) == beats


def test_an_assignor_that_forgets_a_member_is_told(cluster: ClassicCluster) -> None:
    cluster.group.leader = "m-9"
    with pytest.raises(Misconfigured, match="has no part for this member"):
        cluster.member().poll(timeout_ms=100)


@pytest.mark.parametrize(
    ("assignors", "message"),
    [(["range", "best"], "names 'best', and there are: range"), ([], "no rebalance protocol in common")],
)
def test_assignors_that_cannot_be_are_refused_at_construction(cluster: ClassicCluster, assignors, message: str) -> None:
    with pytest.raises(Misconfigured, match=message):
        cluster.consumer(partition_assignors=assignors)


def test_a_custom_assignor_is_used(cluster: ClassicCluster) -> None:
    class Own:
        name = "own"
        rebalance_protocols = CLASSIC_ASSIGNORS["range"].rebalance_protocols

        def user_data(self, owned, generation):
            return b"mine"

        def assign(self, members, topics):
            assert {member.subscription.user_data for member in members.values()} == {b"mine"}
            return CLASSIC_ASSIGNORS["range"].assign(members, topics)

    consumer = cluster.member(partition_assignors=[Own()])
    consumer.poll(timeout_ms=100)
    assert len(consumer.assignment()) == 3
