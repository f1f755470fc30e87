"""F. Heartbeat and session."""

from __future__ import annotations

from coordinator_protocol.errors import ErrorCode
from tests.conformance.groups.cases import case
from tests.groups.classic.members import GROUP, OK, ClassicRoom, code

UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID


@case(97)
def test_only_members_are_heard() -> None:
    room = ClassicRoom()
    answers = [room.member(member_id="m").beats(generation_id=1)]
    (member,) = room.stable(room.member())
    answers.append(room.member(member_id="other").beats(generation_id=1))
    member.leaves()
    answers.append(member.beats())
    assert answers == [UNKNOWN] * 3


@case(
    98, differs="a group that is deleted is gone at once, and a shard that left answers NOT_COORDINATOR: none is Dead"
)
def test_a_heartbeat_to_a_group_that_left_must_find_it_again() -> None:
    room = ClassicRoom()
    (member,) = room.stable(room.member())
    room.unload(GROUP)
    assert member.beats() is ErrorCode.NOT_COORDINATOR


@case(99)
def test_a_heartbeat_names_the_generation() -> None:
    room = ClassicRoom()
    (member,) = room.stable(room.member())
    assert member.beats(generation_id=2) is ErrorCode.ILLEGAL_GENERATION


@case(101)
def test_a_heartbeat_before_the_assignment_is_fine() -> None:
    room = ClassicRoom()
    (member,) = room.completing(room.member())
    assert (member.beats(), room.state()) == (OK, "CompletingRebalance")


@case(102)
def test_an_id_that_was_only_given_away_has_no_heartbeat() -> None:
    room = ClassicRoom()
    room.stable(room.member())
    pending = room.member()
    pending.asked_for_id()
    assert pending.beats(generation_id=1) is UNKNOWN


@case(103)
def test_silence_ends_a_membership() -> None:
    room = ClassicRoom()
    (member,) = room.stable(room.member())
    room.tick(5_000)
    assert member.beats() is UNKNOWN
    assert (room.state(), room.generation()) == ("Empty", 2)


@case(105)
def test_silence_ends_a_membership_during_a_rebalance() -> None:
    room = ClassicRoom()
    (first,) = room.stable(room.member())
    second = room.member()
    joining = second.join_as_new()
    room.tick(2_500)
    assert first.beats() is ErrorCode.REBALANCE_IN_PROGRESS
    room.tick(4_999)
    assert not joining.is_settled
    room.tick(1)
    assert (joining.result().generation_id, room.member_ids()) == (2, [second.member_id])


@case(106)
def test_a_call_that_waits_is_no_silence() -> None:
    room = ClassicRoom()
    first, second = room.stable(*(room.member(rebalance_timeout_ms=60_000) for _ in range(2)))
    joining = first.joining()
    for _beat in range(10):
        room.tick(3_000)
        second.beats()
    assert first.member_id in room.member_ids()
    second.joins()
    assert code(joining.result()) is OK
