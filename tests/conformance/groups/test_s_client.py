"""S. Client library. Driven on a fake server and a clock that moves by hand (tests/client)."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.message import Message

from coordinator_api.v1 import group_pb2 as group
from coordinator_client import CommitFailed, Fenced, Misconfigured, RebalanceInProgress, TransactionError
from coordinator_client.errors import Loss
from coordinator_protocol.assignors.classic import COOPERATIVE_STICKY, ROUND_ROBIN
from coordinator_protocol.consumer_protocol import (
    Subscription,
    decode_subscription,
    encode_subscription,
)
from coordinator_protocol.errors import ErrorCode
from coordinator_protocol.methods import Method
from tests.client.consumers import T0, T1, T2, ClassicCluster, Diary, FakeCluster, poll_all
from tests.client.fake_server import refuse
from tests.client.world import Fault
from tests.conformance.groups.cases import case

DISCONNECTED = Loss("UNAVAILABLE", "connection reset")


def refused(method: Method, code: ErrorCode) -> Message:
    replies: dict[Method, type[Message]] = {
        Method.JOIN_GROUP: group.JoinGroupResponse,
        Method.SYNC_GROUP: group.SyncGroupResponse,
        Method.HEARTBEAT: group.HeartbeatResponse,
        Method.OFFSET_COMMIT: group.OffsetCommitResponse,
        Method.CONSUMER_GROUP_HEARTBEAT: group.ConsumerGroupHeartbeatResponse,
    }
    reply: Message = refuse(replies[method](), method, code)
    return reply


def beats(cluster: FakeCluster) -> list[group.HeartbeatRequest]:
    return cluster.world.requests(Method.HEARTBEAT)


def joins(cluster: FakeCluster) -> list[group.JoinGroupRequest]:
    return cluster.world.requests(Method.JOIN_GROUP)


@case(325)
def test_the_member_id_is_kept_over_every_disconnect() -> None:
    cluster = ClassicCluster()
    cluster.world.fault(Method.JOIN_GROUP, Fault.NONE, Fault.LOST_REPLY)
    cluster.world.answer(Method.SYNC_GROUP, DISCONNECTED)
    consumer = cluster.member()
    consumer.poll(timeout_ms=10_000)
    assert [join.member_id for join in joins(cluster)] == ["", "m-1", "m-1", "m-1"]
    assert consumer.assignment() == {T0, T1, T2}


@case(326)
@pytest.mark.parametrize(("rebalance_ms", "call_ms"), [(60_000, 65_000), (1_000, 30_000)])
def test_a_join_may_take_as_long_as_the_rebalance(rebalance_ms: int, call_ms: int) -> None:
    cluster = ClassicCluster()
    timeouts = {}
    start = cluster.world.start

    def note(rpc: Any, request: Any, *, timeout_ms: int, on_done: Any) -> Any:
        timeouts[rpc.method] = timeout_ms
        return start(rpc, request, timeout_ms=timeout_ms, on_done=on_done)

    cluster.world.start = note  # type: ignore[method-assign]  # the fake network is watched
    cluster.member(max_poll_interval_ms=rebalance_ms, request_timeout_ms=30_000).poll(timeout_ms=100)
    assert timeouts[Method.JOIN_GROUP] == call_ms
    assert joins(cluster)[0].rebalance_timeout_ms == rebalance_ms


@case(327)
def test_a_full_group_is_fatal() -> None:
    cluster = ClassicCluster()
    cluster.world.answer(Method.JOIN_GROUP, refused(Method.JOIN_GROUP, ErrorCode.GROUP_MAX_SIZE_REACHED))
    consumer = cluster.member()
    for _ in range(2):
        with pytest.raises(Misconfigured, match="GROUP_MAX_SIZE_REACHED"):
            consumer.poll(timeout_ms=10_000)
    assert len(joins(cluster)) == 1


@case(329)
def test_a_heartbeat_that_tells_of_a_rebalance_under_way_changes_nothing() -> None:
    cluster = ClassicCluster()
    cluster.group.leader, cluster.group.plan = "m-9", [0]
    consumer = cluster.member(heartbeat_interval_ms=1_000)
    cluster.world.fault(Method.SYNC_GROUP, Fault.SILENT)
    consumer.poll(timeout_ms=100)
    cluster.group.is_rebalancing = True
    consumer.poll(timeout_ms=3_500)
    # Between the answers to JoinGroup and SyncGroup heartbeats run, and do not make the member join again.
    assert len(beats(cluster)) == 3
    assert len(joins(cluster)) == 2


@case(330)
@pytest.mark.parametrize("method", [Method.JOIN_GROUP, Method.HEARTBEAT])
def test_a_fenced_instance_is_told_and_does_not_try_again(method: Method) -> None:
    cluster = ClassicCluster()
    cluster.world.answer(method, refused(method, ErrorCode.FENCED_INSTANCE_ID))
    consumer = cluster.member(group_instance_id="i")
    for _ in range(2):
        with pytest.raises(Fenced, match="FENCED_INSTANCE_ID"):
            consumer.poll(timeout_ms=10_000)
    sent = len(cluster.world.requests(method))
    cluster.world.pause(60_000)
    assert len(cluster.world.requests(method)) == sent == 1


@case(331)
@pytest.mark.parametrize("instance_id", [None, "i"])
def test_only_a_dynamic_member_says_that_it_leaves(instance_id: str | None) -> None:
    cluster = ClassicCluster()
    with cluster.member(group_instance_id=instance_id) as consumer:
        consumer.poll(timeout_ms=100)
    assert len(cluster.world.requests(Method.LEAVE_GROUP)) == (1 if instance_id is None else 0)


@case(333)
@pytest.mark.parametrize(
    ("answers", "joins_after_ms"),
    [
        ([refused(Method.OFFSET_COMMIT, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)] * 2, 1_000),
        ([refused(Method.OFFSET_COMMIT, ErrorCode.OFFSET_METADATA_TOO_LARGE)], 100),
        ([refused(Method.OFFSET_COMMIT, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)] * 1_000, 20_100),
    ],
    ids=["passing", "fatal", "for ever"],
)
def test_a_commit_before_a_rebalance_is_tried_and_does_not_stop_it(answers: list[Message], joins_after_ms: int) -> None:
    cluster = ClassicCluster()
    cluster.topic.append(0, b"a")
    consumer = cluster.member(max_poll_interval_ms=20_000, request_timeout_ms=5_000)
    poll_all(consumer, 1)
    cluster.world.answer(Method.OFFSET_COMMIT, *answers)
    cluster.group.rebalance()
    cluster.world.pause(10)
    before, began_ms = len(joins(cluster)), cluster.world.now_ms
    while len(joins(cluster)) == before:
        consumer.poll(timeout_ms=100)
    assert cluster.world.now_ms - began_ms <= joins_after_ms
    assert cluster.world.now_ms - began_ms >= joins_after_ms - 1_000
    assert (T0 in cluster.group.offsets) == (joins_after_ms == 1_000)


class _Hasty:
    """A custom cooperative assignor that gives away what others still own."""

    name = "hasty"
    rebalance_protocols = COOPERATIVE_STICKY.rebalance_protocols
    user_data = ROUND_ROBIN.user_data
    assign = ROUND_ROBIN.assign


@case(334)
def test_what_the_assignment_takes_away_is_revoked_before_the_next_join() -> None:
    cluster, diary = ClassicCluster(), Diary()
    cluster.group.leader, cluster.group.plan = "m-9", [0, 1]
    consumer = cluster.cooperative(diary)
    consumer.poll(timeout_ms=100)
    cluster.group.plan = [0]
    cluster.group.rebalance()
    consumer.poll(timeout_ms=1_000)
    assert diary.told[:2] == [("assigned", [0, 1]), ("revoked", [1])]
    owned = [decode_subscription(join.protocols[0].metadata).owned for join in joins(cluster)[1:]]
    assert owned == [{}, {"t": (0, 1)}, {"t": (0,)}]

    other = encode_subscription(Subscription(topics=("t",), owned={"t": (0,)}, generation=1))
    cluster = ClassicCluster()
    cluster.group.others = [group.JoinGroupMember(member_id="m-2", metadata=other)]
    consumer = cluster.member(partition_assignors=[_Hasty()])
    with pytest.raises(Misconfigured, match=r"'hasty'.*gives away what other members still own \(t-0\)"):
        consumer.poll(timeout_ms=100)
    assert Method.SYNC_GROUP not in cluster.world.methods()


@case(335)
def test_a_leader_that_may_skip_the_assignment_only_watches() -> None:
    cluster = ClassicCluster()
    # The group kept the assignment of the topics that there are: another one would be replaced at once.
    cluster.group.skip_assignment, cluster.group.plan = True, [0, 1, 2]
    consumer = cluster.member(group_instance_id="i", metadata_max_age_ms=10_000)
    consumer.poll(timeout_ms=100)
    (sync,) = cluster.world.requests(Method.SYNC_GROUP)
    assert (len(sync.assignments), consumer.assignment()) == (0, {T0, T1, T2})
    cluster.world.server.topics["t"] = 4
    consumer.poll(timeout_ms=11_000)
    assert len(joins(cluster)) == 2


@case(337)
def test_of_several_exceptions_the_first_is_raised_and_the_assignment_stands() -> None:
    cluster, diary = ClassicCluster(), Diary()
    cluster.group.leader, cluster.group.plan = "m-9", [0]
    consumer = cluster.cooperative(diary)
    consumer.poll(timeout_ms=100)
    diary.raises = {"revoked": ValueError("first"), "assigned": ValueError("second")}
    cluster.group.plan = [1]
    cluster.group.rebalance()
    with pytest.raises(ValueError, match="first"):
        consumer.poll(timeout_ms=1_000)
    assert diary.told[1:3] == [("revoked", [0]), ("assigned", [1])]
    assert consumer.assignment() == {T1}


@case(338)
@pytest.mark.parametrize(
    ("code", "kind", "next_joins"),
    [
        (ErrorCode.ILLEGAL_GENERATION, CommitFailed, ["m-1"]),
        (ErrorCode.UNKNOWN_MEMBER_ID, CommitFailed, ["", "m-1"]),
        (ErrorCode.REBALANCE_IN_PROGRESS, RebalanceInProgress, ["m-1"]),
    ],
)
@pytest.mark.parametrize("has_moved_on", [False, True])
def test_a_refused_commit_says_what_became_of_the_member(
    code: ErrorCode, kind: type[TransactionError], next_joins: list[str], has_moved_on: bool
) -> None:
    cluster = ClassicCluster()
    consumer = cluster.cooperative(enable_auto_commit=False)
    consumer.poll(timeout_ms=100)
    before = len(joins(cluster))
    if not has_moved_on:
        cluster.world.answer(Method.OFFSET_COMMIT, refused(Method.OFFSET_COMMIT, code))
        with pytest.raises(kind):
            consumer.commit({T0: 1})
        consumer.poll(timeout_ms=1_000)
        assert [join.member_id for join in joins(cluster)[before:]] == next_joins
        return
    errors: list[TransactionError | None] = []
    cluster.world.fault(Method.OFFSET_COMMIT, Fault.SILENT)
    consumer.commit_async({T0: 1}, lambda _, error: errors.append(error))
    cluster.group.rebalance()
    consumer.poll(timeout_ms=1_000)
    late = next(iter(cluster.world.late))
    late(refused(Method.OFFSET_COMMIT, code))
    consumer.poll(timeout_ms=100)
    assert [type(error) for error in errors] == [RebalanceInProgress]
    assert {join.member_id for join in joins(cluster)[before:]} == {"m-1"}


@case(339)
def test_a_commit_that_waits_comes_after_those_that_do_not() -> None:
    cluster = FakeCluster()
    cluster.group.give(0)
    consumer = cluster.member(enable_auto_commit=False)
    consumer.poll(timeout_ms=100)
    told: list[int] = []
    for offset in (1, 2):
        consumer.commit_async({T0: offset}, lambda offsets, _: told.append(offsets[T0].offset))
    consumer.commit({T0: 3})
    assert told == [1, 2]
    assert cluster.group.offsets == {T0: 3}
    consumer.commit_async({T0: 4}, lambda offsets, _: told.append(offsets[T0].offset))
    consumer.commit()
    assert told == [1, 2, 4]


@case(341)
def test_after_a_lost_answer_the_heartbeat_says_everything() -> None:
    cluster = FakeCluster()
    cluster.group.give(0)
    consumer = cluster.member()
    consumer.poll(timeout_ms=100)
    before = len(cluster.beats())
    cluster.world.fault(Method.CONSUMER_GROUP_HEARTBEAT, Fault.LOST_REPLY)
    cluster.world.pause(5_000)
    cluster.group.give(0, 1)
    consumer.poll(timeout_ms=1_000)
    full = cluster.beats()[before + 1]
    assert full.HasField("rebalance_timeout_ms")
    assert list(full.subscribed_topic_names.names) == ["t"]
    assert cluster.owned_in(full) == [0]
    assert consumer.assignment() == {T0, T1}


@case(342)
def test_a_partition_is_committed_then_revoked_then_given_back() -> None:
    cluster, diary = FakeCluster(), Diary()
    order: list[str] = []
    diary.on_partitions_revoked = lambda partitions: order.append("revoked")  # type: ignore[method-assign]  # watched
    cluster.topic.append(0, b"a")
    cluster.group.give(0, 1)
    consumer = cluster.member(diary)
    poll_all(consumer, 1)
    sent = len(cluster.world.sent)
    cluster.group.give(1)
    consumer.poll(timeout_ms=1_000)
    for method, request in cluster.world.sent[sent:]:
        if method is Method.OFFSET_COMMIT:
            order.insert(0, "committed")
        if method is Method.CONSUMER_GROUP_HEARTBEAT and cluster.owned_in(request) is not None:
            order.append(f"owned {cluster.owned_in(request)}")
    assert order == ["committed", "revoked", "owned [1]"]
    assert cluster.group.offsets[T0] == 1


@case(343)
@pytest.mark.parametrize("code", [ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID])
def test_a_fenced_member_tells_what_is_lost_and_joins_under_the_same_id(code: ErrorCode) -> None:
    cluster, diary = FakeCluster(), Diary()
    cluster.group.give(0)
    consumer = cluster.member(diary)
    consumer.poll(timeout_ms=100)
    before = len(cluster.beats())
    cluster.world.answer(Method.CONSUMER_GROUP_HEARTBEAT, refused(Method.CONSUMER_GROUP_HEARTBEAT, code))
    cluster.group.give(0)
    consumer.poll(timeout_ms=10_000)
    assert diary.told == [("assigned", [0]), ("lost", [0]), ("assigned", [0])]
    rejoin = next(beat for beat in cluster.beats()[before:] if beat.member_epoch == 0)
    assert rejoin.member_id == cluster.beats()[0].member_id
