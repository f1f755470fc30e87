"""D. Classic static members."""

from __future__ import annotations

from coordinator_protocol.errors import ErrorCode
from tests.conformance.groups.cases import case, not_drivable
from tests.harness.classic_members import Member, protocols
from tests.harness.group_world import classic_world
from tests.harness.groups import GROUP, OK, code
from tests.harness.world import World

BOTH = ("range", "roundrobin")
FENCED = ErrorCode.FENCED_INSTANCE_ID
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID

FAIL_STOP = (
    "an append never fails in place: an error of the store ends the process, and the restart recovers (design 5)"
)

not_drivable(58, FAIL_STOP)
not_drivable(67, FAIL_STOP)


def pair(world: World, *names: str, **settings: int) -> list[Member]:
    """A static leader and a static follower, not joined yet."""
    return [
        world.classic.member(instance, protocols=protocols(*(names or BOTH)), **settings) for instance in ("L", "F")
    ]


@case(53)
def test_a_static_member_with_an_unknown_id_is_fenced() -> None:
    world = classic_world()
    world.classic.stable(world.classic.member("i1"))
    answer = world.classic.member("i1", member_id="unknown-member-id").joins()
    assert (code(answer), answer.member_id) == (FENCED, "unknown-member-id")


@case(54)
def test_a_static_member_keeps_its_instance_id() -> None:
    world = classic_world()
    (member,) = world.classic.stable(world.classic.member("i1"))
    assert code(world.classic.member("other", member_id=member.member_id).joins()) is UNKNOWN


@case(55)
def test_a_static_member_that_comes_back_takes_its_place_without_a_rebalance() -> None:
    world = classic_world()
    world.classic.stable(world.classic.member("i1", protocols=protocols("range")))
    before = world.classic.describe().members[0].member_id
    back = world.classic.member("i1", protocols=protocols(*BOTH), rebalance_timeout_ms=7_000, session_timeout_ms=4_500)
    joining = back.join()
    assert not joining.is_settled
    world.flush()
    answer = joining.result()
    assert (code(answer), answer.generation_id, answer.skip_assignment) == (OK, 1, True)
    assert answer.member_id == answer.leader != before
    assert [(each.member_id, each.group_instance_id) for each in answer.members] == [(back.member_id, "i1")]
    assert world.classic.state() == "Stable"
    world.restart()
    assert world.classic.member_ids() == [back.member_id]


@case(57)
def test_a_static_member_that_changes_the_vote_rebalances() -> None:
    world = classic_world()
    world.classic.stable(world.classic.member("i1", protocols=protocols(*BOTH)))
    answer = world.classic.member("i1", protocols=protocols("roundrobin")).joins()
    assert (answer.generation_id, answer.protocol_name, world.classic.state()) == (
        2,
        "roundrobin",
        "CompletingRebalance",
    )


@case(59)
def test_a_static_member_that_comes_back_before_the_assignment_rebalances() -> None:
    world = classic_world()
    world.classic.completing(world.classic.member("i1"))
    assert world.classic.member("i1").joins().generation_id == 2


@case(61)
def test_a_static_leader_may_start_a_rebalance() -> None:
    world = classic_world()
    leader, follower = world.classic.stable(*pair(world))
    joining = leader.joining()
    follower.joins()
    assert joining.result().generation_id == 2


@case(62)
def test_a_static_follower_with_nothing_new_gets_its_answer_again() -> None:
    world = classic_world()
    leader, follower = world.classic.stable(*pair(world))
    answer = follower.joins()
    assert (answer.generation_id, answer.leader, list(answer.members)) == (1, leader.member_id, [])


@case(63)
def test_a_static_follower_leads_when_the_leader_is_away() -> None:
    world = classic_world()
    leader, follower = world.classic.stable(*pair(world, session_timeout_ms=15_000))
    follower.protocols = protocols("roundrobin")
    joining = follower.joining()
    world.pass_time(10_000)
    answer = joining.result()
    assert (answer.generation_id, answer.leader, answer.protocol_name) == (2, follower.member_id, "roundrobin")
    assert {each.member_id for each in answer.members} == {leader.member_id, follower.member_id}


@case(65)
def test_a_static_follower_that_comes_back_inherits_its_assignment() -> None:
    world = classic_world()
    world.classic.stable(*pair(world), plan={0: b"mine", 1: b"X"})
    back = world.classic.member("F", protocols=protocols("range", "sticky", "roundrobin"))
    answer = back.joins()
    assert (code(answer), answer.generation_id, answer.skip_assignment, list(answer.members)) == (OK, 1, False, [])
    assert back.syncs().assignment == b"X"
    assert (world.classic.state(), world.classic.generation()) == ("Stable", 1)


@case(66)
def test_a_static_follower_that_comes_back_and_changes_the_vote_rebalances() -> None:
    world = classic_world()
    world.classic.stable(*pair(world))
    world.classic.member("F", protocols=protocols("roundrobin")).joining()
    assert world.classic.state() == "PreparingRebalance"


@case(69)
def test_no_member_syncs_for_a_static_leader() -> None:
    world = classic_world()
    leader, _follower = world.classic.completing(*pair(world))
    assert code(leader.syncs(member_id="invalid")) is FENCED


@case(70)
def test_a_parked_static_member_is_fenced_by_its_successor() -> None:
    world = classic_world()
    leader, follower = world.classic.stable(*pair(world))
    follower.protocols = protocols("range")
    parked, former_id = follower.joining(), follower.member_id
    assert world.classic.state() == "PreparingRebalance"
    world.classic.member("F", protocols=protocols(*BOTH)).joining()
    answer = parked.result()
    assert (code(answer), answer.member_id, answer.generation_id, answer.leader) == (FENCED, former_id, -1, "")
    assert leader.beats() is ErrorCode.REBALANCE_IN_PROGRESS


@case(71)
def test_a_syncing_static_member_is_fenced_by_its_successor() -> None:
    world = classic_world()
    _leader, follower = world.classic.completing(*pair(world))
    parked = follower.syncing()
    world.classic.member("F", protocols=protocols(*BOTH)).joining()
    assert code(parked.result()) is FENCED
    assert world.classic.state() == "PreparingRebalance"


@case(73)
def test_every_return_of_a_static_member_has_its_own_id() -> None:
    world = classic_world()
    (member,) = world.classic.stable(world.classic.member("i1"))
    former = [member.member_id]
    for _time in range(10):
        assert member.joins(member_id="").generation_id == 1
        assert [member.beats(member_id=each) for each in former] == [FENCED] * len(former)
        assert {member.beats(member_id=each, group_instance_id=None) for each in former} == {UNKNOWN}
        former.append(member.member_id)
    assert len(set(former)) == 11
    assert member.beats() is OK


@case(74)
def test_a_static_follower_that_is_away_stays_a_member() -> None:
    world = classic_world()
    leader, follower = world.classic.stable(*pair(world, session_timeout_ms=15_000))
    world.classic.member("new").joining()
    joining = leader.joining()
    world.pass_time(10_000)
    answer = joining.result()
    assert (answer.generation_id, answer.leader, len(answer.members)) == (2, leader.member_id, 3)
    assert follower.member_id in {each.member_id for each in answer.members}


@case(75)
def test_a_static_leader_that_is_away_stays_a_member_and_leads_no_more() -> None:
    world = classic_world()
    leader, follower = world.classic.stable(*pair(world, session_timeout_ms=15_000))
    newcomer = world.classic.member("new")
    joining = [newcomer.joining(), follower.joining()]
    world.pass_time(10_000)
    assert [code(reply.result()) for reply in joining] == [OK] * 2
    assert follower.leader in (newcomer.member_id, follower.member_id)
    assert leader.member_id in world.classic.member_ids()
    assert world.classic.size() == 3


@case(77)
def test_a_rebalance_in_which_only_absent_static_members_are_left_waits_for_them() -> None:
    world = classic_world()
    leader, follower = world.classic.stable(*pair(world, session_timeout_ms=10_000, rebalance_timeout_ms=5_000))
    dynamic = world.classic.member(rebalance_timeout_ms=5_000, session_timeout_ms=10_000)
    dynamic.join_as_new()
    world.pass_time(5_000)
    assert (dynamic.generation, dynamic.is_leader, world.classic.size()) == (2, True, 3)
    follower.leaves()
    world.pass_time(5_000)
    assert (world.classic.state(), world.classic.generation(), world.classic.member_ids()) == (
        "PreparingRebalance",
        2,
        [leader.member_id],
    )
    again = leader.joins(member_id=leader.member_id)
    assert (code(again), again.generation_id, again.leader) == (OK, 3, leader.member_id)


@case(78)
def test_a_static_member_that_only_heartbeats_misses_a_generation() -> None:
    world = classic_world()
    (static,) = world.classic.stable(world.classic.member("A"))
    dynamic = world.classic.member()
    joining = dynamic.join_as_new()
    for _beat in range(4):
        world.pass_time(2_500)
        static.beats()
    assert joining.result().generation_id == 2
    dynamic.syncs({})
    assert static.beats() is ErrorCode.ILLEGAL_GENERATION
    assert static.member_id in world.classic.member_ids()
    for _beat in range(2):
        world.pass_time(2_500)
        last = dynamic.beats()
    assert last is ErrorCode.REBALANCE_IN_PROGRESS
    assert (dynamic.joins().generation_id, world.classic.member_ids(GROUP)) == (3, [dynamic.member_id])


@case(79)
def test_no_member_heartbeats_for_a_static_leader() -> None:
    world = classic_world()
    (leader,) = world.classic.stable(world.classic.member("L"))
    assert [leader.beats(member_id="invalid"), leader.beats()] == [FENCED, OK]
