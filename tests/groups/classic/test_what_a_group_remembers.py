"""Parts of a group that change with its members, and parts that stay."""

from __future__ import annotations

from tests.harness.classic_members import protocols, subscribed
from tests.harness.group_world import classic_world
from tests.harness.groups import OK, code


def test_an_empty_group_may_change_its_type() -> None:
    world = classic_world()
    (member,) = world.classic.stable(world.classic.member())
    member.leaves()
    world.classic.completing(world.classic.member(protocol_type="connect"))
    assert (world.classic.describe().protocol_type, world.classic.generation()) == ("connect", 3)


def test_a_rebalance_that_fails_takes_the_assignments_with_it() -> None:
    world = classic_world()
    leader, follower = world.classic.stable(world.classic.member(), world.classic.member())
    leader.join()
    follower.joins()
    assert [member.assignment for member in world.classic.group().members.values()] == [b"part-0", b"part-1"]
    world.classic.member(one_step=True).joining()
    assert [member.assignment for member in world.classic.group().members.values()] == [b"", b"", b""]


def test_a_static_member_that_comes_back_brings_its_own_subscription() -> None:
    world = classic_world()
    world.classic.stable(world.classic.member("i1"))
    assert [world.classic.group().is_subscribed_to(topic) for topic in ("foo", "bar")] == [True, False]
    world.classic.member("i1", protocols=protocols("range", metadata=subscribed("bar"))).joins()
    assert [world.classic.group().is_subscribed_to(topic) for topic in ("foo", "bar")] == [False, True]


def test_an_old_static_leader_that_comes_back_does_not_learn_that_it_leads() -> None:
    """It knows nothing of skip_assignment, and would assign."""
    world = classic_world()
    (member,) = world.classic.stable(world.classic.member("i1"))
    former = member.member_id
    back = world.classic.member("i1", supports_skip_assignment=False)
    answer = back.joins()
    assert (code(answer), answer.leader, list(answer.members)) == (OK, former, [])
    assert (answer.skip_assignment, world.classic.describe().leader) == (False, back.member_id)


def test_a_static_member_that_comes_back_before_it_asked_for_its_part_may_take_its_time() -> None:
    world = classic_world()
    leader, static = world.classic.completing(
        *(world.classic.member(name, session_timeout_ms=60_000) for name in ("L", "F"))
    )
    leader.syncs({static.member_id: b"mine"})
    static.joins(member_id="")
    assert world.groups.timers() == {"session": 2}
    world.pass_time(20_000)
    assert static.syncs().assignment == b"mine"
