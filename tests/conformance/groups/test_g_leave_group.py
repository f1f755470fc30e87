"""G. LeaveGroup."""

from __future__ import annotations

from coordinator_api.v1 import group_pb2
from coordinator_protocol.errors import ErrorCode
from tests.conformance.groups.cases import case
from tests.groups.classic.members import GROUP, OK, ClassicRoom, Member, code

FENCED = ErrorCode.FENCED_INSTANCE_ID
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID


def by_instance(instance_id: str) -> group_pb2.LeavingMember:
    return group_pb2.LeavingMember(group_instance_id=instance_id)


def static_pair() -> tuple[ClassicRoom, Member, Member]:
    room = ClassicRoom()
    leader, follower = room.stable(room.member("L"), room.member("F"))
    return room, leader, follower


@case(107)
def test_the_last_member_leaves() -> None:
    room = ClassicRoom()
    (member,) = room.stable(room.member())
    assert member.leaves() is OK
    assert (room.state(), room.generation(), room.timers()) == ("Empty", 2, {})
    room.restart()
    assert (room.state(), room.generation()) == ("Empty", 2)


@case(109)
def test_who_is_no_member_cannot_leave() -> None:
    room = ClassicRoom()
    (member,) = room.stable(room.member())
    assert room.leave(group_pb2.LeavingMember(member_id="unknown")) == [UNKNOWN]
    assert (member.beats(), room.state()) == (OK, "Stable")


@case(
    110, differs="a group that is deleted is gone at once, and a shard that left answers NOT_COORDINATOR: none is Dead"
)
def test_who_leaves_a_group_that_left_must_find_it_again() -> None:
    room = ClassicRoom()
    (member,) = room.stable(room.member())
    room.unload(GROUP)
    request = group_pb2.LeaveGroupRequest(group_id=GROUP, members=[member.leaving])
    assert code(room.told(request)) is ErrorCode.NOT_COORDINATOR


@case(111)
def test_a_fenced_member_cannot_leave_for_its_successor() -> None:
    room = ClassicRoom()
    (member,) = room.stable(room.member("i1"))
    assert room.leave(group_pb2.LeavingMember(member_id="other", group_instance_id="i1")) == [FENCED]
    assert member.beats() is OK


@case(113)
def test_an_administrator_removes_static_members_with_one_rebalance() -> None:
    room, _leader, _follower = static_pair()
    assert room.leave(by_instance("L"), by_instance("F")) == [OK, OK]
    assert (room.state(), room.generation()) == ("Empty", 2)


@case(114)
def test_everyone_who_leaves_is_answered_by_itself() -> None:
    room, leader, _follower = static_pair()
    wrong_id = group_pb2.LeavingMember(member_id=leader.member_id, group_instance_id="F")
    assert room.leave(by_instance("L"), wrong_id) == [OK, FENCED]
    room, _leader, _follower = static_pair()
    assert room.leave(by_instance("nobody"), by_instance("F")) == [UNKNOWN, OK]


@case(115)
def test_an_id_that_was_given_away_can_be_given_back() -> None:
    room = ClassicRoom()
    leader, follower, third = *room.stable(room.member(), room.member()), room.member()
    third.asked_for_id()
    joining = [leader.joining(), follower.joining()]
    assert third.leaves() is OK
    assert [reply.result().generation_id for reply in joining] == [2, 2]


@case(117)
def test_who_is_parked_can_be_made_to_leave() -> None:
    room = ClassicRoom()
    leader, _follower = room.stable(room.member(), room.member())
    joining = leader.joining()
    assert leader.leaves() is OK
    answer = joining.result()
    assert (code(answer), answer.member_id) == (UNKNOWN, "")
