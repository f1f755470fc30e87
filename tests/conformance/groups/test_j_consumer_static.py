"""J. Static members in consumer groups."""

from __future__ import annotations

import pytest

from coordinator_protocol.errors import ErrorCode
from tests.conformance.groups.cases import case
from tests.harness.consumers import of, partition_set
from tests.harness.group_world import group_world
from tests.harness.groups import OK, code


@case(150)
def test_a_new_static_member_is_a_new_epoch() -> None:
    world = group_world()
    world.consumers.stable(world.consumers.member("first", "i1"), world.consumers.member("second", "i2"))
    before = world.consumers.epoch()
    third = world.consumers.member("third", "i3")
    third.joins("foo", "bar")
    assert (world.consumers.epoch(), third.epoch) == (before + 1, before + 1)


@case(151)
def test_a_static_member_gets_back_what_it_had() -> None:
    world = group_world()
    _first, second = world.consumers.stable(
        world.consumers.member("first", "i1"), world.consumers.member("second", "i2")
    )
    epoch, partitions = world.consumers.epoch(), second.assigned
    assert second.goes_for_a_moment().member_epoch == -2
    again = world.consumers.member("again", "i2")
    assert again.joins("foo", "bar").member_epoch == epoch
    assert (again.assigned, world.consumers.epoch(), world.consumers.state()) == (partitions, epoch, "Stable")
    assert code(second.beats()) is ErrorCode.FENCED_INSTANCE_ID
    second.instance_id = None
    assert code(second.beats()) is ErrorCode.UNKNOWN_MEMBER_ID


@case(153)
def test_no_member_gets_what_a_static_member_leaves_for_a_moment() -> None:
    world = group_world()
    first, second = world.consumers.stable(
        world.consumers.member("first", "i1"), world.consumers.member("second", "i2")
    )
    epoch, partitions = world.consumers.epoch(), first.assigned
    second.goes_for_a_moment()
    assert not first.beats().HasField("assignment")
    assert (world.consumers.epoch(), first.assigned) == (epoch, partitions)


@case(154)
def test_a_static_member_that_leaves_is_gone() -> None:
    world = group_world()
    _first, second = world.consumers.stable(
        world.consumers.member("first", "i1"), world.consumers.member("second", "i2")
    )
    epoch = world.consumers.epoch()
    assert second.leaves().member_epoch == -1
    assert (world.consumers.epoch(), world.consumers.member_ids()) == (epoch + 1, ["first"])


@case(155)
def test_a_name_that_is_in_use_is_not_given_away() -> None:
    world = group_world()
    first, _second = world.consumers.stable(
        world.consumers.member("first", "i1"), world.consumers.member("second", "i2")
    )
    assert code(world.consumers.member("other", "i1").joins("foo", "bar")) is ErrorCode.UNRELEASED_INSTANCE_ID
    assert code(first.beats()) is OK


@case(157)
@pytest.mark.parametrize("epoch", [11, -1, -2])
def test_a_member_that_takes_anothers_name_is_fenced(epoch: int) -> None:
    world = group_world()
    world.consumers.stable(world.consumers.member("first", "i1"))
    assert code(world.consumers.member("other", "i1").beats(epoch)) is ErrorCode.FENCED_INSTANCE_ID
    assert world.consumers.member_ids() == ["first"]


@case(158)
def test_epochs_of_static_members_are_checked_alike() -> None:
    world = group_world()
    member, second = world.consumers.member("first", "i1"), world.consumers.member("second", "i2")
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


@case(159)
def test_the_session_of_a_static_member_runs_on_while_it_is_away() -> None:
    world = group_world()
    (member,) = world.consumers.stable(world.consumers.member("first", "i1"))
    epoch = world.consumers.epoch()
    world.pass_time(30_000)
    member.goes_for_a_moment()
    world.pass_time(14_999)
    assert world.consumers.member_ids() == ["first"]
    world.pass_time(1)
    assert (world.consumers.member_ids(), world.consumers.epoch(), world.groups.timers()) == ([], epoch + 1, {})
