"""F. Heartbeat and session."""

from __future__ import annotations

from coordinator_protocol.errors import ErrorCode
from tests.conformance.groups.cases import case
from tests.harness.group_world import classic_world
from tests.harness.groups import GROUP, OK, code

UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID


@case(97)
def test_only_members_are_heard() -> None:
    world = classic_world()
    answers = [world.classic.member(member_id="m").beats(generation_id=1)]
    (member,) = world.classic.stable(world.classic.member())
    answers.append(world.classic.member(member_id="other").beats(generation_id=1))
    member.leaves()
    answers.append(member.beats())
    assert answers == [UNKNOWN] * 3


@case(
    98, differs="a group that is deleted is gone at once, and a shard that left answers NOT_COORDINATOR: none is Dead"
)
def test_a_heartbeat_to_a_group_that_left_must_find_it_again() -> None:
    world = classic_world()
    (member,) = world.classic.stable(world.classic.member())
    world.unload(f"group:{GROUP}")
    assert member.beats() is ErrorCode.NOT_COORDINATOR


@case(99)
def test_a_heartbeat_names_the_generation() -> None:
    world = classic_world()
    (member,) = world.classic.stable(world.classic.member())
    assert member.beats(generation_id=2) is ErrorCode.ILLEGAL_GENERATION


@case(101)
def test_a_heartbeat_before_the_assignment_is_fine() -> None:
    world = classic_world()
    (member,) = world.classic.completing(world.classic.member())
    assert (member.beats(), world.classic.state()) == (OK, "CompletingRebalance")


@case(102)
def test_an_id_that_was_only_given_away_has_no_heartbeat() -> None:
    world = classic_world()
    world.classic.stable(world.classic.member())
    pending = world.classic.member()
    pending.asked_for_id()
    assert pending.beats(generation_id=1) is UNKNOWN


@case(103)
def test_silence_ends_a_membership() -> None:
    world = classic_world()
    (member,) = world.classic.stable(world.classic.member())
    world.pass_time(5_000)
    assert member.beats() is UNKNOWN
    assert (world.classic.state(), world.classic.generation()) == ("Empty", 2)


@case(105)
def test_silence_ends_a_membership_during_a_rebalance() -> None:
    world = classic_world()
    (first,) = world.classic.stable(world.classic.member())
    second = world.classic.member()
    joining = second.join_as_new()
    world.pass_time(2_500)
    assert first.beats() is ErrorCode.REBALANCE_IN_PROGRESS
    world.pass_time(4_999)
    assert not joining.is_settled
    world.pass_time(1)
    assert (joining.result().generation_id, world.classic.member_ids()) == (2, [second.member_id])


@case(106)
def test_a_call_that_waits_is_no_silence() -> None:
    world = classic_world()
    first, second = world.classic.stable(*(world.classic.member(rebalance_timeout_ms=60_000) for _ in range(2)))
    joining = first.joining()
    for _beat in range(10):
        world.pass_time(3_000)
        second.beats()
    assert first.member_id in world.classic.member_ids()
    second.joins()
    assert code(joining.result()) is OK
