"""T. System properties: what holds whatever members do, and however many they are. Case 350 is in `test_t_load.py`."""

from __future__ import annotations

import pytest

from coordinator_protocol.errors import ErrorCode
from tests.conformance.groups.cases import case
from tests.groups.classic.test_churn import Churn
from tests.groups.consumer.schedule import Schedule
from tests.harness.group_world import classic_world, group_world
from tests.harness.groups import OK, code

STEPS = 120
PARKED = 1_000
CALLS = 20
CROWD = 200


def numbers_on_disk(churn: Churn, schedule: Schedule) -> tuple[int, int, int]:
    """Generation of a classic group, group epoch and assignment epoch of a consumer group."""
    group, world = churn.stored, schedule.world
    generation = 0 if group is None else group.generation_id
    if not world.groups.has():
        return generation, 0, 0
    epochs = world.consumers.group().durable_epochs()
    return generation, epochs.group_epoch, epochs.assignment_epoch


@case(345)
@pytest.mark.parametrize("seed", range(2))
def test_generations_and_epochs_never_go_back(seed: int) -> None:
    churn, schedule = Churn(seed), Schedule(seed)
    seen = numbers_on_disk(churn, schedule)
    for _step in range(STEPS):
        churn.step()
        schedule.step()
        now = numbers_on_disk(churn, schedule)
        assert all(after >= before for before, after in zip(seen, now, strict=True)), (seen, now)
        seen = now
    assert min(seen) > 1


@case(346)
def test_a_thousand_who_wait_are_all_answered_and_leave_nothing_behind() -> None:
    world = classic_world()
    (absent,) = world.classic.stable(world.classic.member(session_timeout_ms=60_000))
    crowd = [world.classic.member(one_step=True, session_timeout_ms=60_000) for _ in range(PARKED)]
    waiting = [member.join() for member in crowd]
    world.pass_time(absent.rebalance_timeout_ms - 1)
    assert not any(reply.is_settled for reply in waiting)
    world.pass_time(1)
    assert {code(reply.result()) for reply in waiting} == {OK}
    assert absent.beats() is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.groups.timers() == {"session": PARKED, "sync": 1}
    # No assignment is brought, and no member is heard of again.
    world.pass_time(60_000)
    assert (
        world.groups.timers(),
        world.classic.size(),
        len(world.inside.core.answers),
        len(world.inside.core.news),
    ) == ({}, 0, 0, 0)


@case(347)
def test_no_member_hears_of_what_is_not_durable_and_all_in_order() -> None:
    world = group_world()
    runtime, driver = world.inside.runtime, world.inside.driver
    groups = [f"g{number % 3}" for number in range(CALLS)]
    members = [world.consumers.member(f"m{number}", group_id=group_id) for number, group_id in enumerate(groups)]
    answered: list[int] = []
    for number, member in enumerate(members):
        reply = world.call(member.request(**member.join_fields("foo")))
        reply.on_settled(lambda _reply, number=number: answered.append(number))
        # Each gets a flush of its own.
        runtime.groups.seal()
    while len(answered) < CALLS:
        assert driver.flush(1), answered
        assert answered == list(range(len(answered)))
        on_disk = {member_id for group_id in set(groups) for member_id in world.consumers.member_ids(group_id)}
        assert {members[number].member_id for number in answered} == on_disk


@case(349)
def test_a_member_that_never_gives_up_delays_only_the_partitions_it_holds() -> None:
    world = group_world(topics={"foo": CROWD}, consumer_assignment_interval_ms=1_000)
    silent, other = world.consumers.members("silent", "other")
    silent.joins("foo")
    other.joins("foo")
    world.pass_time(1_000)
    world.consumers.quiet(silent, other)
    crowd = [other, *world.consumers.members(*(f"m{number:03}" for number in range(CROWD - 2)))]
    for member in crowd[1:]:
        assert code(member.joins("foo")) is OK
    world.pass_time(1_000)
    held = silent.assigned
    assert len(silent.beats().assignment.topics[0].partitions) == 1
    world.consumers.quiet(*crowd)
    # All members are as far as they can be: each has its target, but for the partitions that the silent one holds.
    group = world.consumers.group()
    for member in crowd:
        target = {("foo", number) for numbers in group.target(member.member_id).values() for number in numbers}
        assert member.assigned == target - held
    assert len(held) == CROWD // 2
    world.pass_time(silent.rebalance_timeout_ms)
    assert code(silent.acknowledges()) is ErrorCode.UNKNOWN_MEMBER_ID
    world.consumers.quiet(*crowd)
    assert sum(len(member.assigned) for member in crowd) == CROWD
    assert {len(member.assigned) for member in crowd} == {1, 2}
