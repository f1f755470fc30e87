"""E. SyncGroup."""

from __future__ import annotations

from coordinator_protocol.errors import ErrorCode
from tests.conformance.groups.cases import case, not_drivable
from tests.harness.classic_members import Member
from tests.harness.group_world import classic_world
from tests.harness.groups import OK, code
from tests.harness.world import World

REBALANCING = ErrorCode.REBALANCE_IN_PROGRESS
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID

not_drivable(
    87,
    "an append never fails in place: an error of the store ends the process, and the restart recovers (design 5)",
)


@case(81)
def test_a_generation_that_is_not_the_current_one_is_refused() -> None:
    world = classic_world()
    (leader,) = world.classic.completing(world.classic.member())
    answers = [code(leader.syncs(generation_id=wrong)) for wrong in (2, 0)]
    assert answers == [ErrorCode.ILLEGAL_GENERATION] * 2


@case(82)
def test_what_was_agreed_on_may_be_named_and_must_be_right() -> None:
    world = classic_world()
    (leader,) = world.classic.completing(world.classic.member())
    wrong = [leader.syncs(protocol_type="whatever"), leader.syncs(protocol_name="whatever")]
    right = [leader.syncs(), leader.syncs(protocol_type="consumer", protocol_name="range")]
    assert [code(answer) for answer in wrong] == [ErrorCode.INCONSISTENT_GROUP_PROTOCOL] * 2
    assert [code(answer) for answer in right] == [OK] * 2


@case(83)
def test_a_follower_after_the_leader_is_answered_at_once() -> None:
    world = classic_world()
    leader, follower = world.classic.stable(world.classic.member(), world.classic.member())
    leader.join()
    follower.joins()
    bringing = leader.sync({leader.member_id: b"1", follower.member_id: b"2"})
    assert not bringing.is_settled
    world.settle()
    assert (bringing.result().assignment, follower.syncs().assignment) == (b"1", b"2")
    assert (world.classic.state(), world.classic.generation()) == ("Stable", 2)


@case(85)
def test_who_is_not_in_the_plan_gets_nothing() -> None:
    world = classic_world()
    leader, follower = world.classic.completing(world.classic.member(), world.classic.member())
    assert leader.syncs({leader.member_id: b"all"}).assignment == b"all"
    answer = follower.syncs()
    assert (code(answer), answer.assignment) == (OK, b"")


@case(
    86, differs="no answer before everything it rests on is durable (design 2): the heartbeat waits for the disk, too"
)
def test_an_assignment_is_told_when_it_is_durable() -> None:
    world = classic_world()
    leader, follower = world.classic.completing(world.classic.member(), world.classic.member())
    calls = [follower.sync(), leader.sync({follower.member_id: b"2"}), follower.heartbeat()]
    assert not any(reply.is_settled for reply in calls)
    assert world.classic.state() == "CompletingRebalance"
    world.settle()
    assert [code(reply.result()) for reply in calls] == [OK] * 3
    assert (calls[0].result().assignment, world.classic.state()) == (b"2", "Stable")


@case(
    89, differs="operations take effect one after the other: the assignment first, and then the rebalance on top of it"
)
def test_a_member_that_leaves_before_the_assignment_is_durable_rebalances() -> None:
    world = classic_world()
    leader, follower = world.classic.completing(world.classic.member(), world.classic.member())
    bringing = leader.sync({leader.member_id: b"1"})
    assert follower.leaves() is OK
    assert code(bringing.result()) is OK
    assert (world.classic.state(), leader.beats()) == ("PreparingRebalance", REBALANCING)


@case(90)
def test_the_first_plan_counts() -> None:
    world = classic_world()
    (leader,) = world.classic.stable(world.classic.member(), plan={0: b"first"})
    assert leader.syncs({leader.member_id: b"second"}).assignment == b"first"


@case(91)
def test_no_member_syncs_in_a_join_phase() -> None:
    world = classic_world()
    leader, follower = world.classic.stable(world.classic.member(), world.classic.member())
    leader.joining()
    assert code(follower.syncs()) is REBALANCING


def three(world: World) -> list[Member]:
    return world.classic.completing(*(world.classic.member(rebalance_timeout_ms=5_000) for _ in range(3)))


@case(93)
def test_no_member_waits_for_ever_for_those_who_do_not_sync() -> None:
    world = classic_world()
    members = three(world)
    world.pass_time(2_500)
    assert [member.beats() for member in members] == [OK] * 3
    world.pass_time(2_500)
    assert [member.beats() for member in members] == [UNKNOWN] * 3
    assert (world.classic.state(), world.groups.timers()) == ("Empty", {})


@case(94)
def test_followers_that_do_not_sync_are_removed() -> None:
    world = classic_world()
    leader, *followers = three(world)
    world.pass_time(2_500)
    assert code(leader.syncs({})) is OK
    assert (world.classic.state(), [member.beats() for member in followers]) == ("Stable", [OK] * 2)
    world.pass_time(2_500)
    assert [member.beats() for member in followers] == [UNKNOWN] * 2
    assert leader.beats() is REBALANCING


@case(95)
def test_a_leader_that_does_not_sync_is_removed() -> None:
    world = classic_world()
    leader, *followers = three(world)
    world.pass_time(2_500)
    assert leader.beats() is OK
    syncing = [member.syncing() for member in followers]
    world.pass_time(2_500)
    assert [code(reply.result()) for reply in syncing] == [REBALANCING] * 2
    assert leader.beats() is UNKNOWN
    assert [member.beats() for member in followers] == [REBALANCING] * 2
