"""K. Reconciliation and timers."""

from __future__ import annotations

from coordinator_api.v1 import group_pb2
from coordinator_protocol.errors import ErrorCode
from group_coordinator.members import MemberState
from tests.conformance.groups.cases import case
from tests.groups.consumer.plans import PlannedAssignor, planned_world
from tests.groups.consumer.schedule import run_schedule
from tests.harness.consumers import Consumer, all_of, of, partition_set, partitions_of
from tests.harness.group_world import group_world
from tests.harness.groups import OK, code
from tests.harness.world import World


def _state(world: World, member: Consumer) -> MemberState:
    return world.consumers.group().assignment(member.member_id).state


@case(161)
def test_every_change_ends_the_grace_of_the_epoch_before() -> None:
    world, plan = planned_world()
    member, other = world.consumers.members("first", "other")
    plan(first=of("foo", 0, 1, 2))
    member.joins("foo")
    plan(first=of("foo", 0, 1, 2), other=of("foo", 3, 4))
    other.joins("foo")
    member.beats()
    assert member.epoch == 2
    subset = partition_set(of("foo", 0, 1))
    assert member.beats(1, topic_partitions=subset).member_epoch == 2
    plan(first=of("foo", 0, 1), other=of("foo", 2, 3, 4))
    other.subscribes("foo", "bar")
    asked = member.beats(2)
    assert (asked.member_epoch, member.assigned) == (2, of("foo", 0, 1))
    assert code(member.beats(1, topic_partitions=subset)) is ErrorCode.FENCED_MEMBER_EPOCH


@case(162)
def test_what_is_free_comes_with_the_new_epoch() -> None:
    world, plan = planned_world()
    member = world.consumers.member("first")
    plan(first=of("foo", 0))
    member.joins("foo")
    plan(first=of("foo", 0, 1) | of("bar", 2))
    member.subscribes("foo", "bar")
    assert (member.epoch, member.assigned, world.consumers.state()) == (2, of("foo", 0, 1) | of("bar", 2), "Stable")


def _must_give_up(world: World, plan: PlannedAssignor) -> tuple[Consumer, Consumer]:
    """The first member is to give foo-2 to the second, and has not heard of it."""
    first, second = world.consumers.members("first", "second")
    plan(first=of("foo", 0, 1, 2))
    first.joins("foo")
    plan(first=of("foo", 0, 1), second=of("foo", 2))
    second.joins("foo")
    return first, second


@case(163)
def test_who_must_give_something_up_stays_at_its_epoch() -> None:
    world, plan = planned_world()
    first, second = _must_give_up(world, plan)
    response = first.beats()
    assert (response.member_epoch, partitions_of(response.assignment.topics)) == (1, of("foo", 0, 1))
    assert _state(world, first) is MemberState.UNREVOKED
    second.beats()
    assert second.assigned == frozenset()


@case(165)
def test_until_it_says_so_nothing_is_given_up() -> None:
    world, plan = planned_world()
    first, second = _must_give_up(world, plan)
    first.beats()
    for fields in ({}, {"topic_partitions": partition_set(of("foo", 0, 1, 2))}):
        response = first.beats(**fields)
        assert (response.member_epoch, response.HasField("assignment")) == (1, False)
        second.beats()
        assert second.assigned == frozenset()


@case(166, differs="spec groups 3.6: the epoch does not move before everything is given up")
def test_who_has_given_up_one_thing_may_have_to_give_up_another() -> None:
    world, plan = planned_world()
    first, second = _must_give_up(world, plan)
    first.beats()
    plan(first=of("foo", 0), second=of("foo", 1, 2))
    second.subscribes("foo", "bar")
    response = first.acknowledges()
    assert (response.member_epoch, first.assigned) == (1, of("foo", 0))
    assert _state(world, first) is MemberState.UNREVOKED
    second.beats()
    assert second.assigned == of("foo", 2)
    assert first.acknowledges().member_epoch == 3
    second.beats()
    assert second.assigned == of("foo", 1, 2)


@case(167)
def test_who_waits_gets_what_is_released_or_is_asked_to_give_up_meanwhile() -> None:
    world, plan = planned_world()
    first, second = _must_give_up(world, plan)
    assert _state(world, second) is MemberState.UNRELEASED
    first.beats()
    first.acknowledges()
    second.beats()
    assert (second.assigned, _state(world, second)) == (of("foo", 2), MemberState.STABLE)

    world, plan = planned_world()
    first, second = world.consumers.members("first", "second")
    plan(first=of("foo", 0, 1, 2))
    first.joins("foo")
    plan(first=of("foo", 0, 1), second=of("foo", 2, 3))
    second.joins("foo")
    assert (second.assigned, _state(world, second)) == (of("foo", 3), MemberState.UNRELEASED)
    plan(first=of("foo", 0, 1, 3), second=of("foo", 2))
    second.subscribes("foo", "bar")
    assert (second.assigned, _state(world, second)) == (frozenset(), MemberState.UNREVOKED)


@case(169)
def test_whatever_happens_no_partition_has_two_owners_and_all_get_there() -> None:
    for seed in range(4):
        run_schedule(seed, steps=120)


@case(170)
def test_a_silent_member_is_fenced() -> None:
    world = group_world()
    (member,) = world.consumers.stable(world.consumers.member())
    epoch = world.consumers.epoch()
    world.pass_time(22_500)
    assert code(member.beats()) is OK
    world.pass_time(44_999)
    assert world.consumers.member_ids() == ["m"]
    world.pass_time(1)
    assert (world.consumers.epoch(), world.consumers.member_ids(), world.groups.timers()) == (epoch + 1, [], {})
    assert code(member.beats()) is ErrorCode.UNKNOWN_MEMBER_ID
    other = world.consumers.member("other")
    other.joins("foo", "bar")
    assert other.assigned == all_of(foo=6, bar=3)


@case(171)
def test_who_does_not_give_up_in_time_is_fenced_although_it_lives() -> None:
    world, plan = planned_world()
    first, second = _must_give_up(world, plan)
    first.beats()
    assert world.groups.timers() == {"session": 2, "rebalance": 1}
    for _round in range(3):
        world.pass_time(3_000)
        assert code(first.beats()) is OK
    world.pass_time(1_000)
    assert code(first.beats()) is ErrorCode.UNKNOWN_MEMBER_ID
    second.beats()
    assert second.assigned == of("foo", 2)

    world, plan = planned_world()
    first, _second = _must_give_up(world, plan)
    first.beats()
    world.pass_time(9_000)
    first.acknowledges()
    assert world.groups.timers() == {"session": 2}
    world.pass_time(1_000)
    assert code(first.beats()) is OK


@case(173)
def test_what_a_member_leaves_behind_is_free() -> None:
    world, plan = planned_world()
    first, second = _must_give_up(world, plan)
    plan(second=of("foo", 0, 1, 2))
    first.leaves()
    second.beats()
    assert second.assigned == of("foo", 0, 1, 2)


@case(174)
def test_partitions_of_a_deleted_topic_are_gone() -> None:
    world = group_world()
    (member,) = world.consumers.stable(world.consumers.member())
    epoch = world.consumers.epoch()
    offsets = [
        group_pb2.TopicOffsets(topic=topic, partitions=[group_pb2.PartitionOffset(partition=0, committed_offset=7)])
        for topic in ("foo", "bar")
    ]
    commit = group_pb2.OffsetCommitRequest(
        group_id="g", member_id="m", generation_id_or_member_epoch=member.epoch, topics=offsets
    )
    assert code(world.ask(commit)) is OK
    world.delete_topic("bar")
    world.settle()
    member.beats()
    assert (member.assigned, world.consumers.epoch()) == (all_of(foo=6), epoch + 1)
    asked = group_pb2.OffsetFetchRequest(groups=[group_pb2.OffsetFetchGroup(group_id="g")])
    assert [offset.topic for offset in world.ask(asked).groups[0].offsets] == ["foo"]
