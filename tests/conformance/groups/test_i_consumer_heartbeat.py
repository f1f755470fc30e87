"""I. Consumer group heartbeat: validation, join, leave."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator_api.v1 import group_pb2
from coordinator_protocol.assignors.range import assign_range
from coordinator_protocol.errors import ErrorCode
from tests.conformance.groups.cases import case, not_drivable
from tests.harness.consumers import all_of, of, partition_set, partitions_of
from tests.harness.group_world import group_world
from tests.harness.groups import OK, code
from tests.harness.share_groups import share_groups

EVERYTHING = all_of(foo=6, bar=3)

_NAMES = group_pb2.TopicNames(names=["foo"])
_JOIN: dict[str, Any] = {
    "group_id": "g",
    "member_id": "m",
    "member_epoch": 0,
    "rebalance_timeout_ms": 5_000,
    "subscribed_topic_names": _NAMES,
    "topic_partitions": group_pb2.PartitionSet(),
}


def _without(*fields: str, **changes: Any) -> group_pb2.ConsumerGroupHeartbeatRequest:
    kept = {name: value for name, value in _JOIN.items() if name not in fields}
    return group_pb2.ConsumerGroupHeartbeatRequest(**{**kept, **changes})


@case(126)
@pytest.mark.parametrize(
    "request_",
    [
        _without(group_id=""),
        _without(group_id="   "),
        _without("rebalance_timeout_ms"),
        _without(rebalance_timeout_ms=-1),
        _without("topic_partitions"),
        _without(topic_partitions=partition_set(of("foo", 0))),
        _without("subscribed_topic_names"),
        _without("topic_partitions", member_epoch=1, member_id=""),
        _without(instance_id=""),
        _without(instance_id="   "),
        _without(rack_id=""),
        _without(member_epoch=-2),
        _without(member_epoch=-3),
        _without(server_assignor="bar"),
    ],
    ids=str,
)
def test_a_heartbeat_that_cannot_be_meant_is_refused(request_: group_pb2.ConsumerGroupHeartbeatRequest) -> None:
    world = group_world()
    expected = ErrorCode.UNSUPPORTED_ASSIGNOR if request_.server_assignor else ErrorCode.INVALID_REQUEST
    assert code(world.ask(request_)) is expected
    assert not world.groups.has()


@case(127)
def test_who_brings_no_id_is_given_one() -> None:
    world = group_world()
    member = world.consumers.member("")
    joined = member.joins("nothing", "like", "that")
    assert member.member_id
    assert (joined.member_epoch, joined.heartbeat_interval_ms) == (1, 5_000)
    assert joined.HasField("assignment")
    assert not joined.assignment.topics


@case(129)
def test_an_unknown_member_must_join() -> None:
    world = group_world()
    first, other = world.consumers.members("first", "other")
    first.joins("foo")
    assert code(other.beats(1)) is ErrorCode.UNKNOWN_MEMBER_ID


@case(130)
def test_the_first_member_gets_everything_at_once() -> None:
    world = group_world()
    member = world.consumers.member()
    assert member.joins("foo", "bar").member_epoch == 1
    assert (member.assigned, world.consumers.state()) == (EVERYTHING, "Stable")


@case(131)
def test_the_epoch_before_is_forgiven_to_who_owns_nothing_that_it_should_not() -> None:
    world = group_world()
    member, second = world.consumers.members("first", "second")
    member.joins("foo")
    second.joins("foo")
    member.beats()
    member.acknowledges()
    assert (member.epoch, member.assigned) == (2, of("foo", 0, 1, 2))
    assert code(member.beats(3)) is ErrorCode.FENCED_MEMBER_EPOCH
    assert code(member.beats(1)) is ErrorCode.FENCED_MEMBER_EPOCH
    assert code(member.beats(1, topic_partitions=partition_set(of("foo", 0, 1, 5)))) is ErrorCode.FENCED_MEMBER_EPOCH
    forgiven = member.beats(1, topic_partitions=partition_set(of("foo", 0, 1)))
    assert (code(forgiven), forgiven.member_epoch) == (OK, 2)


@case(133)
def test_a_join_whose_answer_was_lost_is_answered_again() -> None:
    world = group_world()
    member = world.consumers.member()
    first = member.joins("foo")
    again = member.joins("foo")
    assert (again.member_epoch, again.assignment) == (first.member_epoch, first.assignment)
    assert (world.consumers.member_ids(), world.consumers.epoch()) == (["m"], 1)


@case(134)
def test_a_new_subscription_is_a_new_epoch() -> None:
    world = group_world()
    (member,) = world.consumers.stable(world.consumers.member(), topics=["foo"])
    before = member.epoch
    member.subscribes("foo", "bar")
    assert (member.epoch, member.assigned) == (before + 1, EVERYTHING)


@case(135)
def test_who_joins_a_group_is_at_its_epoch_at_once() -> None:
    world = group_world()
    first, second, third = world.consumers.members("first", "second", "third")
    world.consumers.stable(first, second)
    before = world.consumers.epoch()
    joined = third.joins("foo", "bar")
    assert (joined.member_epoch, third.assigned) == (before + 1, frozenset())
    assert (world.consumers.epoch(), world.consumers.state()) == (before + 1, "Reconciling")


@case(137)
def test_when_the_last_member_leaves_the_group_is_empty_and_soon_forgotten() -> None:
    world = group_world()
    (member,) = world.consumers.stable(world.consumers.member())
    before = world.consumers.epoch()
    assert member.leaves().member_epoch == -1
    assert (world.consumers.state(), world.consumers.epoch(), world.groups.timers()) == ("Empty", before + 1, {})
    world.pass_time(2 * world.options.group_config.offsets_retention_check_interval_ms)
    assert not world.groups.has()


@case(138)
def test_who_says_everything_is_told_everything() -> None:
    world = group_world()
    member = world.consumers.member()
    assert member.joins("foo").HasField("assignment")
    assert not member.beats().HasField("assignment")
    full = member.acknowledges(rebalance_timeout_ms=10_000, subscribed_topic_names=_NAMES)
    assert partitions_of(full.assignment.topics) == all_of(foo=6)


@case(139)
def test_a_full_group_takes_no_member_in() -> None:
    world = group_world(consumer_size_max=2)
    first, second, third = world.consumers.members("first", "second", "third")
    world.consumers.stable(first, second)
    assert code(third.joins("foo")) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert code(first.beats()) is OK


def _fails(*_arguments: Any) -> Any:
    raise ArithmeticError("out of numbers")


@case(141)
def test_when_the_assignor_fails_nothing_has_happened() -> None:
    world = group_world(assignors={"broken": _fails}, consumer_assignors=("broken",))
    response = world.consumers.member().joins("foo")
    assert code(response) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert "broken" in response.error_message
    assert not world.groups.has()


@case(142)
def test_the_assignor_that_most_members_name_is_used() -> None:
    world = group_world()
    first, second, _third = members = world.consumers.members("first", "second", "third")
    for member, assignor in zip(members, ("range", "range", "uniform"), strict=True):
        member.joins("foo", server_assignor=assignor)
    assert world.consumers.describe().assignor_name == "range"
    epoch = world.consumers.epoch()
    second.beats(server_assignor="uniform")
    assert (world.consumers.epoch(), world.consumers.describe().assignor_name) == (epoch, "range")
    first.subscribes("foo", "bar")
    assert (world.consumers.epoch(), world.consumers.describe().assignor_name) == (epoch + 1, "uniform")


@case(143)
def test_a_rack_and_a_timeout_are_noted_and_concern_no_other() -> None:
    world = group_world()
    (member,) = world.consumers.stable(world.consumers.member())
    epoch = world.consumers.epoch()
    member.beats(rack_id="east", rebalance_timeout_ms=77)
    assert (world.consumers.described("m").rack_id, world.consumers.epoch()) == ("east", epoch)
    known = world.consumers.group().members.get("m")
    assert known is not None
    assert known.rebalance_timeout_ms == 77


not_drivable(
    145,
    "a failed append ends the process (design 5), and a restart looks at the topics anew; a refused operation takes "
    "the note that it looked back with everything else",
)


@case(146)
@pytest.mark.parametrize("is_empty", [False, True])
def test_members_of_other_protocols_take_no_share_group(*, is_empty: bool) -> None:
    shares = share_groups()
    world, member = shares.world, shares.member()
    member.joins("foo")
    if is_empty:
        member.leaves()
    assert code(world.consumers.member().joins("foo")) is ErrorCode.GROUP_ID_NOT_FOUND
    stranger = world.classic.subscriber()
    assert code(stranger.joins()) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert code(stranger.syncs()) is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.classic.leave(group_pb2.LeavingMember(member_id="m")) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert world.groups.kind() == "share"


@case(147)
def test_a_group_has_timeouts_of_its_own() -> None:
    world = group_world()
    (member,) = world.consumers.stable(world.consumers.member())

    def set_to(**values: int) -> ErrorCode:
        configs = [group_pb2.GroupConfig(name=f"consumer_{name}", value=value) for name, value in values.items()]
        return code(world.ask(group_pb2.AlterGroupConfigsRequest(group_id="g", set=configs)))

    assert set_to(session_timeout_ms=50_000, heartbeat_interval_ms=10_000) is OK
    assert member.beats().heartbeat_interval_ms == 10_000
    world.pass_time(49_999)
    assert world.consumers.member_ids() == ["m"]
    world.pass_time(1)
    assert world.consumers.member_ids() == []
    wide = group_world(consumer_heartbeat_interval_ms_max=60_000)
    configs = [group_pb2.GroupConfig(name="consumer_heartbeat_interval_ms", value=45_000)]
    refused = wide.ask(group_pb2.AlterGroupConfigsRequest(group_id="g", set=configs))
    assert code(refused) is ErrorCode.INVALID_CONFIG


@case(149)
def test_members_that_start_together_share_two_computations() -> None:
    computations: list[int] = []

    def count(members: Any, topics: Any) -> Any:
        computations.append(len(members))
        return assign_range(members, topics)

    world = group_world(
        assignors={"counted": count},
        topics={"foo": 50},
        consumer_assignors=("counted",),
        consumer_assignment_interval_ms=1_000,
    )
    members = world.consumers.members(*(f"m{number}" for number in range(50)))
    for member in members:
        member.joins("foo")
        world.pass_time(4)
    assert computations == [1]
    world.pass_time(1_000)
    assert computations == [1, 50]
    world.consumers.quiet(*members)
    assert {member.epoch for member in members} == {world.consumers.epoch()}
    assert sorted(partition for member in members for partition in member.assigned) == sorted(all_of(foo=50))
