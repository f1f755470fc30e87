"""Answers of each state, as the one table of spec groups 2.13 has them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from coordinator_protocol.errors import ErrorCode
from tests.harness.classic_members import Member
from tests.harness.group_world import classic_world
from tests.harness.groups import OK, code
from tests.harness.world import World

PARKED = "parked"
UNKNOWN, REBALANCING = ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.REBALANCE_IN_PROGRESS
ID_REQUIRED = ErrorCode.MEMBER_ID_REQUIRED


def missing(world: World) -> Member:
    return world.classic.member(member_id="m", generation=1)


def empty(world: World) -> Member:
    (member,) = world.classic.stable(world.classic.member())
    member.leaves()
    return member


def preparing(world: World) -> Member:
    leader, follower = world.classic.stable(world.classic.member(), world.classic.member())
    leader.joining()
    return follower


def completing(world: World) -> Member:
    _leader, follower = world.classic.completing(world.classic.member(), world.classic.member())
    return follower


def stable(world: World) -> Member:
    _leader, follower = world.classic.stable(world.classic.member(), world.classic.member())
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
    situation: Callable[[World], Member],
    two_step: object,
    one_step: object,
    again: object,
    sync: object,
    beat: object,
    leave: object,
) -> None:
    def asked(call: Callable[[World, Member], object]) -> object:
        world = classic_world()
        return call(world, situation(world))

    def told(world: World, reply: object) -> object:
        world.settle()
        return code(reply.result()) if reply.is_settled else PARKED  # type: ignore[attr-defined]  # a Pending

    assert [
        asked(lambda world, _member: told(world, world.classic.member().join())),
        asked(lambda world, _member: told(world, world.classic.member(one_step=True).join())),
        asked(lambda world, member: told(world, member.join())),
        asked(lambda world, member: told(world, member.sync())),
        asked(lambda _world, member: member.beats()),
        asked(lambda _world, member: member.leaves()),
    ] == [two_step, one_step, again, sync, beat, leave]
