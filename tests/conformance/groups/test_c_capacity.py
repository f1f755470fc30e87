"""C. Capacity."""

from __future__ import annotations

from dataclasses import replace

from coordinator_protocol.errors import ErrorCode
from tests.conformance.groups.cases import case
from tests.harness.classic_members import Member
from tests.harness.group_world import classic_world
from tests.harness.groups import OK, code
from tests.harness.world import World

FULL = ErrorCode.GROUP_MAX_SIZE_REACHED


def ten_of_eleven(*, one_step: bool) -> tuple[World, list[Member], Member]:
    """A group of ten at most, with ten parked and one refused."""
    world = classic_world(size_max=10, initial_rebalance_delay_ms=50)
    members = [world.classic.member(one_step=one_step) for _ in range(11)]
    joining = [member.join_as_new() for member in members]
    refused = [reply.result() for reply in joining if reply.is_settled]
    assert [(code(answer), answer.member_id) for answer in refused] == [(FULL, "")]
    assert joining[10].is_settled
    return world, members[:10], members[10]


@case(46)
def test_the_last_to_join_finds_no_room() -> None:
    world, members, _refused = ten_of_eleven(one_step=False)
    world.pass_time(100)
    assert sorted(world.classic.member_ids()) == sorted(member.member_id for member in members)
    assert world.classic.state() == "CompletingRebalance"
    members[0].protocols = [("range", b"something new")]
    again = [member.join() for member in members]
    world.settle()
    assert [code(reply.result()) for reply in again] == [OK] * 10


@case(47)
def test_there_is_no_room_for_old_clients_either() -> None:
    world, members, _refused = ten_of_eleven(one_step=True)
    world.pass_time(100)
    assert sorted(world.classic.member_ids()) == sorted(member.member_id for member in members)


@case(49)
def test_who_is_parked_may_ask_again() -> None:
    """Kafka never answers the older calls."""
    world = classic_world(size_max=10, initial_rebalance_delay_ms=50)
    members = [world.classic.member() for _ in range(10)]
    older = [member.join_as_new() for member in members]
    newer = [member.joining() for member in members]
    assert [code(reply.result()) for reply in older] == [ErrorCode.REBALANCE_IN_PROGRESS] * 10
    assert [reply.result().member_id for reply in older] == [member.member_id for member in members]
    assert code(world.classic.member(one_step=True).joins()) is FULL
    world.pass_time(100)
    assert [code(reply.result()) for reply in newer] == [OK] * 10


@case(50)
def test_when_the_limit_was_lowered_the_last_to_join_again_must_go() -> None:
    world = classic_world()
    members = world.classic.stable(*(world.classic.member() for _ in range(12)))
    world.options = replace(world.options, group_config=replace(world.options.group_config, size_max=10))
    world.restart()
    assert (world.classic.state(), world.classic.size()) == ("PreparingRebalance", 12)
    again = [member.join() for member in members]
    world.settle()
    answers = [reply.result() for reply in again]
    assert [code(answer) for answer in answers] == [OK] * 10 + [FULL] * 2
    assert [answer.member_id for answer in answers[10:]] == ["", ""]
    assert sorted(world.classic.member_ids()) == sorted(member.member_id for member in members[:10])


@case(51)
def test_a_group_that_is_full_takes_no_member() -> None:
    world = classic_world(size_max=10)
    for _ in range(10):
        world.classic.member().join_as_new()
    assert code(world.classic.member(one_step=True).joins()) is FULL
