"""Heartbeats that wait for news: the members that get it, and when."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator_protocol.errors import ErrorCode
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import CallContext
from group_coordinator import news
from group_coordinator.config import GroupConfig
from tests.groups.consumer.plans import planned_world
from tests.harness.consumers import Consumer, all_of, of, partition_set, partitions_of
from tests.harness.garbage import nothing_left_to_the_collector
from tests.harness.group_world import group_world
from tests.harness.groups import OK, code
from tests.harness.world import World

SOON_MS = 5


def owning(member: Consumer) -> dict[str, Any]:
    return {"topic_partitions": partition_set(member.assigned)}


def test_a_member_hears_at_once_that_it_must_give_something_up() -> None:
    world = group_world()
    (first,) = world.consumers.stable(world.consumers.member("first"))
    waiting = first.waits(**owning(first))
    world.pass_time(1_000)
    assert not waiting.is_settled
    world.consumers.member("second").joins("foo", "bar")
    world.pass_time(SOON_MS)
    assert len(partitions_of(waiting.result().assignment.topics)) == 5


def test_what_is_given_up_reaches_who_waits_for_it() -> None:
    world = group_world()
    (first,) = world.consumers.stable(world.consumers.member("first"))
    second = world.consumers.member("second")
    second.joins("foo", "bar")
    waiting = second.waits(**owning(second))
    first.beats()
    world.pass_time(SOON_MS)
    assert not waiting.is_settled
    first.acknowledges()
    world.pass_time(SOON_MS)
    assert waiting.is_settled
    assert len(second.assigned) == 4


def test_what_a_member_leaves_behind_reaches_the_others_without_their_asking() -> None:
    world = group_world()
    first, second = world.consumers.stable(world.consumers.member("first"), world.consumers.member("second"))
    waiting = first.waits(**owning(first))
    second.leaves()
    world.pass_time(2 * SOON_MS)
    assert waiting.is_settled
    assert first.assigned == all_of(foo=6, bar=3)


def test_who_gets_nothing_new_waits_on() -> None:
    world, plan = planned_world()
    first, second = world.consumers.members("first", "second")
    plan(first=of("foo", 0))
    first.joins("foo")
    waiting = first.waits(**owning(first))
    plan(first=of("foo", 0), second=of("foo", 1))
    second.joins("foo")
    world.pass_time(SOON_MS)
    assert not waiting.is_settled
    assert (world.consumers.epoch(), world.consumers.described("first").member_epoch) == (2, 1)
    world.pass_time(5_000)
    assert not waiting.result().HasField("assignment")
    assert first.beats().member_epoch == 2


def test_a_wait_ends_without_news() -> None:
    world = group_world()
    (member,) = world.consumers.stable(world.consumers.member())
    waiting = member.waits(3_000, **owning(member))
    world.pass_time(2_999)
    assert not waiting.is_settled
    world.pass_time(1)
    response = waiting.result()
    assert (code(response), response.member_epoch, response.HasField("assignment")) == (OK, member.epoch, False)
    assert len(world.inside.core.news) == 0


def test_a_wait_ends_well_before_the_session_and_before_the_caller_is_gone() -> None:
    world = group_world()
    (member,) = world.consumers.stable(world.consumers.member())
    waiting = member.waits(60_000)
    world.pass_time(22_499)
    assert not waiting.is_settled
    world.pass_time(1)
    assert waiting.is_settled
    deadline_ms = world.clock.monotonic_ms() + 1_000
    hurried = world.call(member.request(max_wait_ms=5_000), CallContext(deadline_ms=deadline_ms))
    world.pass_time(900)
    assert hurried.is_settled


def test_a_member_that_is_put_out_hears_of_it() -> None:
    world, plan = planned_world()
    first, second = world.consumers.members("first", "second")
    plan(first=of("foo", 0, 1))
    first.joins("foo")
    plan(first=of("foo", 0), second=of("foo", 1))
    second.joins("foo")
    first.beats()
    waiting = first.waits(30_000)
    world.pass_time(10_000 + SOON_MS)
    assert code(waiting.result()) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_newer_heartbeat_of_a_member_answers_the_older_one() -> None:
    """The owned partitions in the older one are not true any more, and must not be heard again."""
    world, plan = planned_world()
    first, second = world.consumers.members("first", "second")
    plan(first=frozenset())
    first.joins("foo")
    older = first.waits(**owning(first))
    plan(first=of("foo", 0), second=of("foo", 1))
    second.joins("foo")
    newer = first.waits(**owning(first))
    world.settle()
    assert older.is_settled
    assert not older.result().HasField("assignment")
    world.pass_time(SOON_MS)
    assert partitions_of(newer.result().assignment.topics) == of("foo", 0)


def test_who_gives_up_its_call_is_not_waited_for() -> None:
    world = group_world()
    (member,) = world.consumers.stable(world.consumers.member())
    waiting = member.waits()
    waiting.cancel()
    assert len(world.inside.core.news) == 0
    assert waiting.is_settled, "or it would count as under way for ever"
    assert code(member.beats()) is OK


def test_a_wait_leaves_nothing_to_the_collector() -> None:
    """However it ends: with news, with the wait, with the next heartbeat, without its caller."""
    world = group_world()
    (first,) = world.consumers.stable(world.consumers.member("first"))
    second = world.consumers.member("second")
    with nothing_left_to_the_collector():
        waiting = first.waits(3_000, **owning(first))
        world.pass_time(3_000)
        assert waiting.is_settled
        waiting = first.waits(**owning(first))
        following = first.waits(**owning(first))
        world.settle()
        assert waiting.is_settled
        second.joins("foo", "bar")
        world.pass_time(SOON_MS)
        assert following.is_settled
        waiting = first.waits(**owning(first))
        waiting.cancel()
        assert waiting.is_settled
        del waiting, following


def test_a_thousand_that_wait_cost_little_when_one_joins_who_takes_nothing_from_them() -> None:
    """Only those concerned are asked again: no record is written for the others."""
    world, plan = planned_world()
    members = world.consumers.members(*(f"m{number}" for number in range(40)))
    for number, member in enumerate(members[:-1]):
        plan(**{each.member_id: of("foo", place) for place, each in enumerate(members[:6]) if place <= number})
        member.joins("foo")
    for member in members[:-1]:
        member.beats()
    waiting: list[Pending[Any]] = [member.waits(**owning(member)) for member in members[:-1]]
    world.settle()
    assert sum(reply.is_settled for reply in waiting) == 0
    version = world.inside.runtime.groups.durable_version
    members[-1].joins("foo")
    world.pass_time(SOON_MS)
    assert sum(reply.is_settled for reply in waiting) == 0
    assert world.inside.runtime.groups.durable_version == version + 1


def test_the_members_of_a_large_group_look_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(news, "LOOKS_PER_STEP", 5)
    world, plan = planned_world()
    members = world.consumers.members(*(f"m{number:02}" for number in range(12)))
    for member in members:
        member.joins("foo")
    for member in members:
        member.beats()
    waiting = [member.waits(**owning(member)) for member in members]
    plan(**{members[0].member_id: of("foo", 0), members[-1].member_id: of("foo", 1)})
    members[1].subscribes("bar")
    world.clock.advance(SOON_MS)
    settled = []
    for _step in range(3):
        world.inside.runtime.run_due_timers()
        world.settle()
        settled.append((waiting[0].is_settled, waiting[-1].is_settled))
    assert settled == [(True, False), (True, False), (True, True)]


def run_until_stable(world: World, members: list[Consumer], waiting: dict[str, Pending[Any]]) -> int:
    """Members that always wait, and acknowledge at once; how long until everybody holds its target."""
    for elapsed_ms in range(0, 1_000, 5):
        for member in members:
            reply = waiting.get(member.member_id)
            while reply is None or reply.is_settled:
                fields = member.join_fields("foo") if member.epoch == 0 else owning(member)
                reply = waiting[member.member_id] = member.waits(**fields)
                world.settle()
        held = [partition for member in members for partition in member.assigned]
        if sorted(held) == sorted(all_of(foo=20)) and min(len(member.assigned) for member in members) >= 2:
            return elapsed_ms
        world.pass_time(5)
    raise AssertionError("they are not done after a second")


def test_ten_members_that_start_together_are_soon_assigned_and_a_leaver_soon_replaced() -> None:
    """With the default settings of a server. Issue 9: 0.5 s and 0.2 s."""
    world = group_world(group_config=GroupConfig(), topics={"foo": 20})
    members = world.consumers.members(*(f"m{number}" for number in range(10)))
    waiting: dict[str, Pending[Any]] = {}
    assert run_until_stable(world, members, waiting) <= 200
    members[0].leaves()
    assert run_until_stable(world, members[1:], waiting) <= 100
