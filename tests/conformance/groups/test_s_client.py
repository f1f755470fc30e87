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
from tests.client.consumers import T0, T1, T2, ClassicRoom, Diary, Room, poll_all
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


def beats(room: Room) -> list[group.HeartbeatRequest]:
    return room.world.requests(Method.HEARTBEAT)


def joins(room: Room) -> list[group.JoinGroupRequest]:
    return room.world.requests(Method.JOIN_GROUP)


@case(325)
def test_the_member_id_is_kept_over_every_disconnect() -> None:
    room = ClassicRoom()
    room.world.fault(Method.JOIN_GROUP, Fault.NONE, Fault.LOST_REPLY)
    room.world.answer(Method.SYNC_GROUP, DISCONNECTED)
    consumer = room.member()
    consumer.poll(timeout_ms=10_000)
    assert [join.member_id for join in joins(room)] == ["", "m-1", "m-1", "m-1"]
    assert consumer.assignment() == {T0, T1, T2}


@case(326)
@pytest.mark.parametrize(("rebalance_ms", "call_ms"), [(60_000, 65_000), (1_000, 30_000)])
def test_a_join_may_take_as_long_as_the_rebalance(rebalance_ms: int, call_ms: int) -> None:
    room = ClassicRoom()
    timeouts = {}
    start = room.world.start

    def note(rpc: Any, request: Any, *, timeout_ms: int, on_done: Any) -> Any:
        timeouts[rpc.method] = timeout_ms
        return start(rpc, request, timeout_ms=timeout_ms, on_done=on_done)

    room.world.start = note  # type: ignore[method-assign]  # the fake network is watched
    room.member(max_poll_interval_ms=rebalance_ms, request_timeout_ms=30_000).poll(timeout_ms=100)
    assert timeouts[Method.JOIN_GROUP] == call_ms
    assert joins(room)[0].rebalance_timeout_ms == rebalance_ms


@case(327)
def test_a_full_group_is_fatal() -> None:
    room = ClassicRoom()
    room.world.answer(Method.JOIN_GROUP, refused(Method.JOIN_GROUP, ErrorCode.GROUP_MAX_SIZE_REACHED))
    consumer = room.member()
    for _ in range(2):
        with pytest.raises(Misconfigured, match="GROUP_MAX_SIZE_REACHED"):
            consumer.poll(timeout_ms=10_000)
    assert len(joins(room)) == 1


@case(329)
def test_a_heartbeat_that_tells_of_a_rebalance_under_way_changes_nothing() -> None:
    room = ClassicRoom()
    room.group.leader, room.group.plan = "m-9", [0]
    consumer = room.member(heartbeat_interval_ms=1_000)
    room.world.fault(Method.SYNC_GROUP, Fault.SILENT)
    consumer.poll(timeout_ms=100)
    room.group.is_rebalancing = True
    consumer.poll(timeout_ms=3_500)
    # Between the answers to JoinGroup and SyncGroup heartbeats run, and do not make the member join again.
    assert len(beats(room)) == 3
    assert len(joins(room)) == 2


@case(330)
@pytest.mark.parametrize("method", [Method.JOIN_GROUP, Method.HEARTBEAT])
def test_a_fenced_instance_is_told_and_does_not_try_again(method: Method) -> None:
    room = ClassicRoom()
    room.world.answer(method, refused(method, ErrorCode.FENCED_INSTANCE_ID))
    consumer = room.member(group_instance_id="i")
    for _ in range(2):
        with pytest.raises(Fenced, match="FENCED_INSTANCE_ID"):
            consumer.poll(timeout_ms=10_000)
    sent = len(room.world.requests(method))
    room.world.pause(60_000)
    assert len(room.world.requests(method)) == sent == 1


@case(331)
@pytest.mark.parametrize("instance_id", [None, "i"])
def test_only_a_dynamic_member_says_that_it_leaves(instance_id: str | None) -> None:
    room = ClassicRoom()
    with room.member(group_instance_id=instance_id) as consumer:
        consumer.poll(timeout_ms=100)
    assert len(room.world.requests(Method.LEAVE_GROUP)) == (1 if instance_id is None else 0)


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
    room = ClassicRoom()
    room.topic.append(0, b"a")
    consumer = room.member(max_poll_interval_ms=20_000, request_timeout_ms=5_000)
    poll_all(consumer, 1)
    room.world.answer(Method.OFFSET_COMMIT, *answers)
    room.group.rebalance()
    room.world.pause(10)
    before, began_ms = len(joins(room)), room.world.now_ms
    while len(joins(room)) == before:
        consumer.poll(timeout_ms=100)
    assert room.world.now_ms - began_ms <= joins_after_ms
    assert room.world.now_ms - began_ms >= joins_after_ms - 1_000
    assert (T0 in room.group.offsets) == (joins_after_ms == 1_000)


class _Hasty:
    """A cooperative assignor of somebody's own that gives away what others still own."""

    name = "hasty"
    rebalance_protocols = COOPERATIVE_STICKY.rebalance_protocols
    user_data = ROUND_ROBIN.user_data
    assign = ROUND_ROBIN.assign


@case(334)
def test_what_the_assignment_takes_away_is_revoked_before_the_next_join() -> None:
    room, diary = ClassicRoom(), Diary()
    room.group.leader, room.group.plan = "m-9", [0, 1]
    consumer = room.cooperative(diary)
    consumer.poll(timeout_ms=100)
    room.group.plan = [0]
    room.group.rebalance()
    consumer.poll(timeout_ms=1_000)
    assert diary.told[:2] == [("assigned", [0, 1]), ("revoked", [1])]
    owned = [decode_subscription(join.protocols[0].metadata).owned for join in joins(room)[1:]]
    assert owned == [{}, {"t": (0, 1)}, {"t": (0,)}]

    other = encode_subscription(Subscription(topics=("t",), owned={"t": (0,)}, generation=1))
    room = ClassicRoom()
    room.group.others = [group.JoinGroupMember(member_id="m-2", metadata=other)]
    consumer = room.member(partition_assignors=[_Hasty()])
    with pytest.raises(Misconfigured, match=r"'hasty'.*gives away what other members still own \(t-0\)"):
        consumer.poll(timeout_ms=100)
    assert Method.SYNC_GROUP not in room.world.methods()


@case(335)
def test_a_leader_that_may_skip_the_assignment_only_watches() -> None:
    room = ClassicRoom()
    # What the group kept is for the topics that there are: another one would be replaced at once.
    room.group.skip_assignment, room.group.plan = True, [0, 1, 2]
    consumer = room.member(group_instance_id="i", metadata_max_age_ms=10_000)
    consumer.poll(timeout_ms=100)
    (sync,) = room.world.requests(Method.SYNC_GROUP)
    assert (len(sync.assignments), consumer.assignment()) == (0, {T0, T1, T2})
    room.world.server.topics["t"] = 4
    consumer.poll(timeout_ms=11_000)
    assert len(joins(room)) == 2


@case(337)
def test_of_several_exceptions_the_first_is_raised_and_the_assignment_stands() -> None:
    room, diary = ClassicRoom(), Diary()
    room.group.leader, room.group.plan = "m-9", [0]
    consumer = room.cooperative(diary)
    consumer.poll(timeout_ms=100)
    diary.raises = {"revoked": ValueError("first"), "assigned": ValueError("second")}
    room.group.plan = [1]
    room.group.rebalance()
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
    room = ClassicRoom()
    consumer = room.cooperative(enable_auto_commit=False)
    consumer.poll(timeout_ms=100)
    before = len(joins(room))
    if not has_moved_on:
        room.world.answer(Method.OFFSET_COMMIT, refused(Method.OFFSET_COMMIT, code))
        with pytest.raises(kind):
            consumer.commit({T0: 1})
        consumer.poll(timeout_ms=1_000)
        assert [join.member_id for join in joins(room)[before:]] == next_joins
        return
    errors: list[TransactionError | None] = []
    room.world.fault(Method.OFFSET_COMMIT, Fault.SILENT)
    consumer.commit_async({T0: 1}, lambda _, error: errors.append(error))
    room.group.rebalance()
    consumer.poll(timeout_ms=1_000)
    late = next(iter(room.world.late))
    late(refused(Method.OFFSET_COMMIT, code))
    consumer.poll(timeout_ms=100)
    assert [type(error) for error in errors] == [RebalanceInProgress]
    assert {join.member_id for join in joins(room)[before:]} == {"m-1"}


@case(339)
def test_a_commit_that_waits_comes_after_those_that_do_not() -> None:
    room = Room()
    room.group.give(0)
    consumer = room.member(enable_auto_commit=False)
    consumer.poll(timeout_ms=100)
    told: list[int] = []
    for offset in (1, 2):
        consumer.commit_async({T0: offset}, lambda offsets, _: told.append(offsets[T0].offset))
    consumer.commit({T0: 3})
    assert told == [1, 2]
    assert room.group.offsets == {T0: 3}
    consumer.commit_async({T0: 4}, lambda offsets, _: told.append(offsets[T0].offset))
    consumer.commit()
    assert told == [1, 2, 4]


@case(341)
def test_after_a_lost_answer_the_heartbeat_says_everything() -> None:
    room = Room()
    room.group.give(0)
    consumer = room.member()
    consumer.poll(timeout_ms=100)
    before = len(room.beats())
    room.world.fault(Method.CONSUMER_GROUP_HEARTBEAT, Fault.LOST_REPLY)
    room.world.pause(5_000)
    room.group.give(0, 1)
    consumer.poll(timeout_ms=1_000)
    full = room.beats()[before + 1]
    assert full.HasField("rebalance_timeout_ms")
    assert list(full.subscribed_topic_names.names) == ["t"]
    assert room.owned_in(full) == [0]
    assert consumer.assignment() == {T0, T1}


@case(342)
def test_a_partition_is_committed_then_revoked_then_given_back() -> None:
    room, diary = Room(), Diary()
    order: list[str] = []
    diary.on_partitions_revoked = lambda partitions: order.append("revoked")  # type: ignore[method-assign]  # watched
    room.topic.append(0, b"a")
    room.group.give(0, 1)
    consumer = room.member(diary)
    poll_all(consumer, 1)
    sent = len(room.world.sent)
    room.group.give(1)
    consumer.poll(timeout_ms=1_000)
    for method, request in room.world.sent[sent:]:
        if method is Method.OFFSET_COMMIT:
            order.insert(0, "committed")
        if method is Method.CONSUMER_GROUP_HEARTBEAT and room.owned_in(request) is not None:
            order.append(f"owned {room.owned_in(request)}")
    assert order == ["committed", "revoked", "owned [1]"]
    assert room.group.offsets[T0] == 1


@case(343)
@pytest.mark.parametrize("code", [ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID])
def test_a_fenced_member_tells_what_is_lost_and_joins_under_the_same_id(code: ErrorCode) -> None:
    room, diary = Room(), Diary()
    room.group.give(0)
    consumer = room.member(diary)
    consumer.poll(timeout_ms=100)
    before = len(room.beats())
    room.world.answer(Method.CONSUMER_GROUP_HEARTBEAT, refused(Method.CONSUMER_GROUP_HEARTBEAT, code))
    room.group.give(0)
    consumer.poll(timeout_ms=10_000)
    assert diary.told == [("assigned", [0]), ("lost", [0]), ("assigned", [0])]
    rejoin = next(beat for beat in room.beats()[before:] if beat.member_epoch == 0)
    assert rejoin.member_id == room.beats()[0].member_id
