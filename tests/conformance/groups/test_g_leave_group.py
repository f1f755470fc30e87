"""G. LeaveGroup."""

from __future__ import annotations

from coordinator_api.v1 import group_pb2
from coordinator_protocol.errors import ErrorCode
from tests.conformance.groups.cases import case
from tests.harness.classic_members import Member
from tests.harness.group_world import classic_world
from tests.harness.groups import GROUP, OK, code
from tests.harness.world import World

FENCED = ErrorCode.FENCED_INSTANCE_ID
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID


def by_instance(instance_id: str) -> group_pb2.LeavingMember:
    return group_pb2.LeavingMember(group_instance_id=instance_id)


def static_pair() -> tuple[World, Member, Member]:
    world = classic_world()
    leader, follower = world.classic.stable(world.classic.member("L"), world.classic.member("F"))
    return world, leader, follower


@case(107)
def test_the_last_member_leaves() -> None:
    world = classic_world()
    (member,) = world.classic.stable(world.classic.member())
    assert member.leaves() is OK
    assert (world.classic.state(), world.classic.generation(), world.groups.timers()) == ("Empty", 2, {})
    world.restart()
    assert (world.classic.state(), world.classic.generation()) == ("Empty", 2)


@case(109)
def test_who_is_no_member_cannot_leave() -> None:
    world = classic_world()
    (member,) = world.classic.stable(world.classic.member())
    assert world.classic.leave(group_pb2.LeavingMember(member_id="unknown")) == [UNKNOWN]
    assert (member.beats(), world.classic.state()) == (OK, "Stable")


@case(
    110, differs="a group that is deleted is gone at once, and a shard that left answers NOT_COORDINATOR: none is Dead"
)
def test_who_leaves_a_group_that_left_must_find_it_again() -> None:
    world = classic_world()
    (member,) = world.classic.stable(world.classic.member())
    world.unload(f"group:{GROUP}")
    request = group_pb2.LeaveGroupRequest(group_id=GROUP, members=[member.leaving])
    assert code(world.ask(request)) is ErrorCode.NOT_COORDINATOR


@case(111)
def test_a_fenced_member_cannot_leave_for_its_successor() -> None:
    world = classic_world()
    (member,) = world.classic.stable(world.classic.member("i1"))
    assert world.classic.leave(group_pb2.LeavingMember(member_id="other", group_instance_id="i1")) == [FENCED]
    assert member.beats() is OK


@case(113)
def test_an_administrator_removes_static_members_with_one_rebalance() -> None:
    world, _leader, _follower = static_pair()
    assert world.classic.leave(by_instance("L"), by_instance("F")) == [OK, OK]
    assert (world.classic.state(), world.classic.generation()) == ("Empty", 2)


@case(114)
def test_everyone_who_leaves_is_answered_by_itself() -> None:
    world, leader, _follower = static_pair()
    wrong_id = group_pb2.LeavingMember(member_id=leader.member_id, group_instance_id="F")
    assert world.classic.leave(by_instance("L"), wrong_id) == [OK, FENCED]
    world, _leader, _follower = static_pair()
    assert world.classic.leave(by_instance("nobody"), by_instance("F")) == [UNKNOWN, OK]


@case(115)
def test_an_id_that_was_given_away_can_be_given_back() -> None:
    world = classic_world()
    leader, follower, third = (
        *world.classic.stable(world.classic.member(), world.classic.member()),
        world.classic.member(),
    )
    third.asked_for_id()
    joining = [leader.joining(), follower.joining()]
    assert third.leaves() is OK
    assert [reply.result().generation_id for reply in joining] == [2, 2]


@case(117)
def test_who_is_parked_can_be_made_to_leave() -> None:
    world = classic_world()
    leader, _follower = world.classic.stable(world.classic.member(), world.classic.member())
    joining = leader.joining()
    assert leader.leaves() is OK
    answer = joining.result()
    assert (code(answer), answer.member_id) == (UNKNOWN, "")
