"""The number of calls that may wait for other members is limited. Beyond it, a call that would only wait is asked to
come again; one that ends the wait of others is let in, because that makes room."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from coordinator_api.v1 import common_pb2
from coordinator_protocol.errors import ErrorCode
from tests.harness.classic_members import DELAY_MS, Member
from tests.harness.group_world import classic_world
from tests.harness.groups import OK, code
from tests.harness.world import World

THROTTLED = ErrorCode.THROTTLING_QUOTA_EXCEEDED


def limited_to(waiting_max: int, members: int = 0) -> tuple[World, list[Member]]:
    """A server that has been started with a limit of so many waiting calls, when the group had so many members."""
    world = classic_world()
    known = world.classic.stable(*(world.classic.member() for _ in range(members))) if members else []
    world.options = replace(world.options, group_waits_max=waiting_max)
    world.restart()
    return world, known


def assert_told_to_come_again(response: Any) -> None:
    assert (code(response), response.error_class) == (THROTTLED, common_pb2.ERROR_CLASS_RETRY)
    assert response.throttle_ms > 0
    assert "calls wait for other members of their groups" in response.error_message


def test_who_would_only_wait_is_told_to_come_again_and_nothing_has_changed() -> None:
    world, _ = limited_to(2)
    joining = [world.classic.member().join_as_new() for _ in range(2)]
    late = world.classic.member()
    late.asked_for_id()
    assert_told_to_come_again(late.joins())
    assert (world.classic.size(), len(world.inside.core.answers)) == (2, 2)
    world.pass_time(2 * DELAY_MS)
    late.leaves()
    world.pass_time(DELAY_MS)
    assert [code(reply.result()) for reply in joining] == [OK, OK]


def test_once_others_are_answered_there_is_room() -> None:
    world, _ = limited_to(1)
    first, late = world.classic.member(group_id="first"), world.classic.member(group_id="late")
    first.join_as_new()
    late.asked_for_id()
    assert_told_to_come_again(late.joins())
    world.pass_time(DELAY_MS)
    late.joining()


def test_who_gives_up_leaves_room() -> None:
    _world, (leader, second, third) = limited_to(1, members=3)
    leader.joining().cancel()
    second.joining()
    assert_told_to_come_again(third.joins())


def test_the_last_one_to_join_ends_the_wait_of_all() -> None:
    _world, (leader, second, third) = limited_to(2, members=3)
    waiting = [leader.joining(), second.joining()]
    assert code(third.joins()) is OK
    assert [code(reply.result()) for reply in waiting] == [OK, OK]


def test_the_leader_brings_the_assignment_that_others_wait_for() -> None:
    world, (leader, second, third) = limited_to(2, members=3)
    for member in (leader, second, third):
        member.join()
    world.settle()
    waiting = [second.syncing(), third.syncing()]
    assert code(leader.syncs({second.member_id: b"mine"})) is OK
    assert waiting[0].result().assignment == b"mine"


def test_a_follower_that_found_no_room_asks_again() -> None:
    world, (leader, second, third) = limited_to(2, members=3)
    for member in (leader, second, third):
        member.join()
    world.settle()
    other = world.classic.member(group_id="other")
    other.join_as_new()
    second.syncing()
    assert_told_to_come_again(third.syncs())
    leader.syncs({third.member_id: b"mine"})
    assert third.syncs().assignment == b"mine"


def test_a_member_that_calls_again_takes_the_place_of_its_own_call() -> None:
    _world, (leader, _second) = limited_to(1, members=2)
    first = leader.joining()
    again = leader.joining()
    assert code(first.result()) is ErrorCode.REBALANCE_IN_PROGRESS
    assert not again.is_settled


def test_who_starts_a_rebalance_ends_the_wait_for_the_former_assignment() -> None:
    world, (leader, second) = limited_to(1, members=2)
    for member in (leader, second):
        member.join()
    world.settle()
    syncing = second.syncing()
    newcomer = world.classic.member()
    newcomer.asked_for_id()
    newcomer.joining()
    assert code(syncing.result()) is ErrorCode.REBALANCE_IN_PROGRESS


def test_what_is_answered_at_once_needs_no_room() -> None:
    world, (leader, _second) = limited_to(1, members=2)
    leader.joining()
    stranger = world.classic.member(member_id="nobody")
    assert code(stranger.joins()) is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.classic.member().asked_for_id()
