"""What each state answers, as the one table of spec groups 2.13 has it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from coordinator_protocol.errors import ErrorCode
from tests.groups.classic.members import OK, ClassicRoom, Member, code

PARKED = "parked"
UNKNOWN, REBALANCING = ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.REBALANCE_IN_PROGRESS
ID_REQUIRED = ErrorCode.MEMBER_ID_REQUIRED


def missing(room: ClassicRoom) -> Member:
    return room.member(member_id="m", generation=1)


def empty(room: ClassicRoom) -> Member:
    (member,) = room.stable(room.member())
    member.leaves()
    return member


def preparing(room: ClassicRoom) -> Member:
    leader, follower = room.stable(room.member(), room.member())
    leader.joining()
    return follower


def completing(room: ClassicRoom) -> Member:
    _leader, follower = room.completing(room.member(), room.member())
    return follower


def stable(room: ClassicRoom) -> Member:
    _leader, follower = room.stable(room.member(), room.member())
    return follower


TABLE = [
    # state       new two-step  new one-step  join again  sync         heartbeat    leave
    (missing, ID_REQUIRED, PARKED, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN),
    (empty, ID_REQUIRED, PARKED, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN),
    (preparing, ID_REQUIRED, PARKED, OK, REBALANCING, REBALANCING, OK),
    (completing, ID_REQUIRED, PARKED, OK, PARKED, OK, OK),
    (stable, ID_REQUIRED, PARKED, OK, OK, OK, OK),
]


@pytest.mark.parametrize(("situation", "two_step", "one_step", "again", "sync", "beat", "leave"), TABLE)
def test_every_state_answers_every_call(
    situation: Callable[[ClassicRoom], Member],
    two_step: object,
    one_step: object,
    again: object,
    sync: object,
    beat: object,
    leave: object,
) -> None:
    def asked(call: Callable[[ClassicRoom, Member], object]) -> object:
        room = ClassicRoom()
        return call(room, situation(room))

    def told(room: ClassicRoom, reply: object) -> object:
        room.settle()
        return code(reply.result()) if reply.is_settled else PARKED  # type: ignore[attr-defined]  # a Pending

    assert [
        asked(lambda room, _member: told(room, room.member().join())),
        asked(lambda room, _member: told(room, room.member(one_step=True).join())),
        asked(lambda room, member: told(room, member.join())),
        asked(lambda room, member: told(room, member.sync())),
        asked(lambda _room, member: member.beats()),
        asked(lambda _room, member: member.leaves()),
    ] == [two_step, one_step, again, sync, beat, leave]
