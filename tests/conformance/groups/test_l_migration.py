"""L. Migration and mixed groups."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator_api.v1 import group_pb2
from coordinator_protocol.errors import ErrorCode
from group_coordinator.config import MigrationPolicy
from tests.conformance.groups.cases import case
from tests.groups.consumer.plans import PlannedAssignor
from tests.harness.classic_members import assigned, subscription
from tests.harness.consumers import Consumer, of
from tests.harness.group_world import group_world
from tests.harness.groups import OK, code
from tests.harness.world import World

HAS = of("foo", 0, 1, 2) | of("bar", 0)
AGAIN = ErrorCode.REBALANCE_IN_PROGRESS


def _upgraded(**config: Any) -> tuple[World, Any, Consumer]:
    """A classic group of one, which a consumer has joined."""
    world = group_world(**config)
    old = world.classic.subscriber()
    world.classic.form(old, plan={0: HAS})
    new = world.consumers.member("new")
    assert code(new.joins("foo", "bar")) is OK
    return world, old, new


def _mixed(world: World | None = None) -> tuple[World, Consumer, Any]:
    """A consumer group of one, which a classic consumer has joined."""
    world = world or group_world()
    new = world.consumers.member("new")
    assert code(new.joins("foo", "bar")) is OK
    old = world.classic.subscriber()
    assert code(old.join_as_new().result()) is OK
    return world, new, old


@case(175)
@pytest.mark.parametrize(
    ("policy", "protocol_type"),
    [
        (MigrationPolicy.DISABLED, "consumer"),
        (MigrationPolicy.DOWNGRADE, "consumer"),
        (MigrationPolicy.BIDIRECTIONAL, "connect"),
    ],
)
def test_a_classic_group_that_may_not_change_stays_as_it_is(policy: MigrationPolicy, protocol_type: str) -> None:
    world = group_world(consumer_migration_policy=policy)
    old = world.classic.subscriber(protocol_type=protocol_type)
    world.classic.form(old, plan={0: HAS})
    assert code(world.consumers.member("new").joins("foo")) is ErrorCode.GROUP_ID_NOT_FOUND
    assert (world.groups.kind(), world.classic.describe().group_state, old.beats()) == ("classic", "Stable", OK)


@case(177)
def test_a_stable_classic_group_becomes_a_consumer_group() -> None:
    world, old, new = _upgraded()
    assert (world.groups.kind(), world.consumers.epoch(), new.epoch) == (
        "consumer",
        old.generation + 1,
        old.generation + 1,
    )
    member = world.consumers.described(old.member_id)
    assert (member.is_classic, member.member_epoch) == (True, old.generation)
    group = world.consumers.group()
    held = group.assignment(old.member_id).assigned
    assert {len(numbers) for numbers in held.values()} == {3, 1}
    assert old.beats() is AGAIN


@case(178)
def test_joins_that_wait_are_sent_to_the_new_kind() -> None:
    world = group_world()
    old = world.classic.subscriber()
    world.classic.form(old, plan={0: HAS})
    waiting = world.classic.subscriber().join_as_new()
    assert not waiting.is_settled
    new = world.consumers.member("new")
    assert code(new.joins("foo", "bar")) is OK
    assert (code(waiting.result()), world.groups.kind()) == (AGAIN, "consumer")
    assert world.groups.timers()["session"] == 3


@case(179)
def test_syncs_that_wait_are_sent_to_the_new_kind() -> None:
    world = group_world()
    first, second = members = [world.classic.subscriber(), world.classic.subscriber()]
    world.classic.completing(*members)
    follower = second if first.is_leader else first
    waiting = follower.syncing()
    assert code(world.consumers.member("new").joins("foo", "bar")) is OK
    assert (code(waiting.result()), world.groups.kind()) == (AGAIN, "consumer")


@case(181)
def test_when_the_last_consumer_leaves_the_group_is_classic_again() -> None:
    world, old, new = _upgraded()
    epoch = world.consumers.epoch()
    assert new.leaves().member_epoch == -1
    state = world.classic.describe()
    assert (world.groups.kind(), state.generation_id, state.group_state) == ("classic", epoch, "PreparingRebalance")
    assert [member.member_id for member in state.members] == [old.member_id]
    old.generation = epoch
    assert old.beats() is AGAIN
    assert code(old.joins()) is OK
    assert old.generation == epoch + 1


@case(182)
def test_when_the_last_consumer_falls_silent_or_gives_nothing_up_the_group_is_classic_again() -> None:
    world, old, _new = _upgraded()
    world.pass_time(4_000)
    assert old.beats() is AGAIN
    for _round in range(11):
        world.pass_time(4_000)
        # It is asked to join again, and does: its session and its place are kept.
        old.joins()
    assert world.groups.kind() == "classic"

    world = group_world()
    new = world.consumers.member("new")
    new.joins("foo", "bar")
    old = world.classic.subscriber(session_timeout_ms=30_000, rebalance_timeout_ms=30_000)
    assert code(old.join_as_new().result()) is OK
    new.beats()
    assert world.groups.timers()["rebalance"] == 1
    world.pass_time(10_000)
    assert world.groups.kind() == "classic"


@case(183)
def test_when_a_classic_one_takes_the_place_of_the_last_consumer_nothing_moves() -> None:
    world = group_world()
    second = world.consumers.member("second", "i2")
    second.joins("foo", "bar")
    first = world.classic.subscriber("i1")
    first.joins()
    second.beats()
    second.acknowledges()
    first.joins()
    epoch = world.consumers.epoch()
    again = world.classic.subscriber("i2")
    assert code(again.joins()) is OK
    state = world.classic.describe()
    assert (world.groups.kind(), state.group_state, state.generation_id) == ("classic", "Stable", epoch)
    assert (again.beats(), again.generation) == (OK, epoch)
    assert assigned(again.syncs().assignment) == second.assigned


@case(185)
def test_a_full_consumer_group_takes_no_classic_member_in() -> None:
    world = group_world(consumer_size_max=1)
    world.consumers.member("new").joins("foo")
    assert code(world.classic.subscriber().joins()) is ErrorCode.GROUP_MAX_SIZE_REACHED


@case(186)
def test_classic_members_need_a_protocol_in_common() -> None:
    world, _new, _old = _mixed()
    connect = world.classic.subscriber(protocol_type="connect")
    stranger = world.classic.subscriber(protocols=[("my-own", subscription("foo"))])
    for other in (connect, stranger):
        assert code(other.joins()) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@case(187)
def test_a_classic_member_is_answered_at_once_and_leads_no_group() -> None:
    world = group_world()
    (first,) = world.consumers.stable(world.consumers.member("new"))
    epoch = world.consumers.epoch()
    old = world.classic.subscriber(protocols=[("sticky", subscription("foo")), ("range", subscription("foo"))])
    old.asked_for_id()
    assert world.consumers.member_ids() == [first.member_id]
    joined = old.joins()
    assert (joined.generation_id, joined.protocol_type, joined.protocol_name) == (epoch + 1, "consumer", "sticky")
    assert (joined.leader, list(joined.members), world.consumers.epoch()) == ("", [], epoch + 1)


@case(189)
def test_a_static_classic_member_comes_new_or_takes_its_place() -> None:
    world = group_world()
    (first,) = world.consumers.stable(world.consumers.member("first", "i1"))
    epoch = world.consumers.epoch()
    second = world.classic.subscriber("i2")
    assert code(second.joins()) is OK
    assert world.consumers.epoch() == epoch + 1
    first.beats()
    first.acknowledges()
    again = world.classic.subscriber("i2")
    had = world.consumers.group().assignment(second.member_id).assigned
    assert code(again.joins()) is OK
    assert (world.consumers.epoch(), again.generation) == (epoch + 1, epoch + 1)
    assert world.consumers.group().assignment(again.member_id).assigned.keys() >= had.keys()
    assert second.beats() is ErrorCode.FENCED_INSTANCE_ID


@case(190)
def test_a_static_member_that_comes_back_with_other_topics_is_a_new_epoch() -> None:
    world = group_world()
    world.consumers.stable(world.consumers.member("first", "i1"), world.consumers.member("other"), topics=["foo"])
    epoch = world.consumers.epoch()
    again = world.classic.subscriber("i1", topics=("foo", "bar"))
    assert code(again.joins()) is OK
    assert (world.consumers.epoch(), again.generation, world.consumers.describe().assignment_epoch) == (
        epoch + 1,
        epoch + 1,
        epoch + 1,
    )


@case(191)
def test_a_static_name_and_an_id_must_belong_together() -> None:
    world = group_world()
    world.consumers.stable(world.consumers.member("first", "i1"))
    assert code(world.classic.subscriber("unknown", member_id="first").joins()) is ErrorCode.UNKNOWN_MEMBER_ID
    assert code(world.classic.subscriber("i1", member_id="other").joins()) is ErrorCode.FENCED_INSTANCE_ID


@case(193)
def test_a_cooperative_classic_member_gives_up_before_it_gets() -> None:
    plan = PlannedAssignor()
    world = group_world(assignors={"planned": plan.assign}, consumer_assignors=("planned",))
    plan.world = world
    old = world.classic.subscriber()
    old.asked_for_id()
    new = world.consumers.member("new")
    plan(new=of("foo", 3))
    new.joins("foo", "bar")
    plan(**{old.member_id: of("foo", 0, 1), "new": of("foo", 3)})
    old.joins()
    assert assigned(old.syncs().assignment) == of("foo", 0, 1)
    before = old.generation
    plan(**{old.member_id: of("foo", 1, 3), "new": of("foo", 0)})
    new.subscribes("foo")
    assert old.beats() is AGAIN
    old.protocols = [("range", subscription("foo", "bar", owned=of("foo", 0, 1)))]
    old.joins()
    assert (old.generation, assigned(old.syncs().assignment)) == (before, of("foo", 1))
    old.protocols = [("range", subscription("foo", "bar", owned=of("foo", 1)))]
    old.joins()
    assert (old.generation, assigned(old.syncs().assignment)) == (before + 1, of("foo", 1))
    new.acknowledges()
    new.acknowledges()
    assert new.assigned == of("foo", 0)
    assert old.beats() is AGAIN
    old.joins()
    assert assigned(old.syncs().assignment) == of("foo", 1, 3)


@case(194)
@pytest.mark.parametrize("version", range(4))
def test_an_assignment_comes_in_the_version_of_the_member(version: int) -> None:
    world = group_world()
    world.consumers.stable(world.consumers.member("new"), topics=["foo"])
    old = world.classic.subscriber(protocols=[("range", subscription("bar", version=version))])
    assert code(old.join_as_new().result()) is OK
    encoded = old.syncs().assignment
    assert (int.from_bytes(encoded[:2], "big"), assigned(encoded)) == (version, of("bar", 0, 1, 2))


@case(195)
def test_a_sync_of_a_classic_member_is_checked() -> None:
    world, new, old = _mixed()
    assert code(old.syncs(member_id="nobody")) is ErrorCode.UNKNOWN_MEMBER_ID
    assert code(old.syncs(member_id=new.member_id)) is ErrorCode.UNKNOWN_MEMBER_ID
    static = world.classic.subscriber("i1")
    static.joins()
    assert code(static.syncs(member_id=old.member_id)) is ErrorCode.FENCED_INSTANCE_ID
    assert code(static.syncs(protocol_type="connect")) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert code(static.syncs(protocol_name="sticky")) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert code(static.syncs(generation_id=static.generation + 1)) is ErrorCode.ILLEGAL_GENERATION
    assert code(old.syncs()) is AGAIN
    assert code(static.syncs()) is OK


@case(197)
def test_a_heartbeat_tells_a_classic_member_when_it_must_join() -> None:
    plan = PlannedAssignor()
    world = group_world(assignors={"planned": plan.assign}, consumer_assignors=("planned",))
    plan.world = world
    holder = world.consumers.member("holder")
    plan(holder=of("foo", 0, 1))
    holder.joins("foo", "bar")
    old = world.classic.subscriber(rebalance_timeout_ms=20_000, session_timeout_ms=15_000)
    old.asked_for_id()
    plan(**{old.member_id: of("foo", 1, 2), "holder": of("foo", 0)})
    old.joins()
    assert old.beats() is OK
    holder.beats()
    assert old.beats() is OK
    holder.acknowledges()
    assert old.beats() is AGAIN
    assert world.groups.timers()["join"] == 1
    old.joins()
    assert ("join" in world.groups.timers(), assigned(old.syncs().assignment)) == (False, of("foo", 1, 2))
    plan(**{old.member_id: of("foo", 1), "holder": of("foo", 0)})
    holder.subscribes("foo")
    assert old.beats() is AGAIN
    old.protocols = [("range", subscription("foo", "bar", owned=of("foo", 1, 2)))]
    old.joins()
    assert old.beats() is AGAIN
    world.pass_time(14_000)
    assert old.beats() is AGAIN
    world.pass_time(5_999)
    assert old.member_id in world.consumers.member_ids()
    world.pass_time(1)
    assert old.member_id not in world.consumers.member_ids()


@case(198)
def test_a_classic_member_has_its_own_session() -> None:
    world, new, old = _mixed()
    epoch = world.consumers.epoch()
    old.syncs()
    for _round in range(4):
        world.pass_time(2_500)
        assert old.beats() is OK
    new.beats()
    world.pass_time(4_999)
    assert old.member_id in world.consumers.member_ids()
    world.pass_time(1)
    assert (world.consumers.member_ids(), world.consumers.epoch()) == ([new.member_id], epoch + 1)


@case(199)
def test_who_is_told_to_join_again_and_does_not_is_fenced() -> None:
    world = group_world()
    new = world.consumers.member("new")
    new.joins("foo", "bar")
    old = world.classic.subscriber(rebalance_timeout_ms=500)
    old.join_as_new()
    old.syncs()
    new.subscribes("foo")
    assert old.beats() is AGAIN
    for _round in range(4):
        world.pass_time(100)
        assert old.beats() is AGAIN
    world.pass_time(99)
    assert old.member_id in world.consumers.member_ids()
    world.pass_time(1)
    assert old.member_id not in world.consumers.member_ids()


@case(201, differs="the case is of an older Kafka; since 4.3 an administrator removes such members by LeaveGroup")
def test_consumers_leave_by_the_classic_protocol_too() -> None:
    world = group_world()
    (new,) = world.consumers.stable(world.consumers.member("new"))
    epoch = world.consumers.epoch()
    entries = [group_pb2.LeavingMember(member_id=member_id) for member_id in ("nobody", new.member_id)]
    assert world.classic.leave(*entries) == [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NONE]
    assert world.consumers.epoch() == epoch + 1
