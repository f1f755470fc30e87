"""J. Static members in consumer groups."""

from __future__ import annotations

import pytest

from coordinator_protocol.errors import ErrorCode
from tests.conformance.groups.cases import case
from tests.groups.consumer.members import OK, ConsumerRoom, code, of, partition_set


@case(150)
def test_a_new_static_member_is_a_new_epoch() -> None:
    room = ConsumerRoom()
    room.stable(room.member("first", "i1"), room.member("second", "i2"))
    before = room.epoch()
    third = room.member("third", "i3")
    third.joins("foo", "bar")
    assert (room.epoch(), third.epoch) == (before + 1, before + 1)


@case(151)
def test_a_static_member_gets_back_what_it_had() -> None:
    room = ConsumerRoom()
    _first, second = room.stable(room.member("first", "i1"), room.member("second", "i2"))
    epoch, partitions = room.epoch(), second.assigned
    assert second.goes_for_a_moment().member_epoch == -2
    again = room.member("again", "i2")
    assert again.joins("foo", "bar").member_epoch == epoch
    assert (again.assigned, room.epoch(), room.state()) == (partitions, epoch, "Stable")
    assert code(second.beats()) is ErrorCode.FENCED_INSTANCE_ID
    second.instance_id = None
    assert code(second.beats()) is ErrorCode.UNKNOWN_MEMBER_ID


@case(153)
def test_nobody_gets_what_a_static_member_leaves_for_a_moment() -> None:
    room = ConsumerRoom()
    first, second = room.stable(room.member("first", "i1"), room.member("second", "i2"))
    epoch, partitions = room.epoch(), first.assigned
    second.goes_for_a_moment()
    assert not first.beats().HasField("assignment")
    assert (room.epoch(), first.assigned) == (epoch, partitions)


@case(154)
def test_a_static_member_that_leaves_is_gone() -> None:
    room = ConsumerRoom()
    _first, second = room.stable(room.member("first", "i1"), room.member("second", "i2"))
    epoch = room.epoch()
    assert second.leaves().member_epoch == -1
    assert (room.epoch(), room.member_ids()) == (epoch + 1, ["first"])


@case(155)
def test_a_name_that_is_in_use_is_not_given_away() -> None:
    room = ConsumerRoom()
    first, _second = room.stable(room.member("first", "i1"), room.member("second", "i2"))
    assert code(room.member("other", "i1").joins("foo", "bar")) is ErrorCode.UNRELEASED_INSTANCE_ID
    assert code(first.beats()) is OK


@case(157)
@pytest.mark.parametrize("epoch", [11, -1, -2])
def test_who_takes_a_name_that_is_somebody_elses_is_fenced(epoch: int) -> None:
    room = ConsumerRoom()
    room.stable(room.member("first", "i1"))
    assert code(room.member("other", "i1").beats(epoch)) is ErrorCode.FENCED_INSTANCE_ID
    assert room.member_ids() == ["first"]


@case(158)
def test_epochs_of_static_members_are_checked_alike() -> None:
    room = ConsumerRoom()
    member, second = room.member("first", "i1"), room.member("second", "i2")
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
    room = ConsumerRoom()
    (member,) = room.stable(room.member("first", "i1"))
    epoch = room.epoch()
    room.tick(30_000)
    member.goes_for_a_moment()
    room.tick(14_999)
    assert room.member_ids() == ["first"]
    room.tick(1)
    assert (room.member_ids(), room.epoch(), room.timers()) == ([], epoch + 1, {})
