"""Members whose stored state only a newer server knows are fenced unless they own nothing; no other of their shard
notices."""

from __future__ import annotations

import pytest

from coordinator_api.storage.v1 import group_pb2 as storage
from coordinator_protocol.errors import ErrorCode
from coordinator_runtime.decision import Coordinator
from coordinator_runtime.store import CommitGroup, Family
from group_coordinator.codec import CONSUMER_CURRENT_ASSIGNMENT
from group_coordinator.consumer.rules import Destination, reconcile
from group_coordinator.consumer.state import CurrentAssignment
from group_coordinator.members import MemberState
from tests.harness.consumers import Consumer, all_of, partition_set
from tests.harness.group_world import group_world
from tests.harness.groups import OK, code
from tests.harness.world import World

UNKNOWN = 77
"""A number that no version up to this one gives to a state."""


def world_with_unknown_state(world: World, member: Consumer, state: int = UNKNOWN) -> None:
    """The member is stored so, and the server starts again."""
    world.settle()
    key = f"{member.group_id}\0{member.member_id}".encode()
    rows = world.shelf.store.scan(
        Family.COORDINATOR_STATE, bytes([Coordinator.GROUPS]), bytes([Coordinator.GROUPS + 1])
    )
    ((found, stored),) = [row for row in rows if row[0][3] == CONSUMER_CURRENT_ASSIGNMENT and row[0].endswith(key)]
    value = storage.ConsumerCurrentAssignmentValue.FromString(stored)
    value.state = state
    changed = (Family.COORDINATOR_STATE, found, value.SerializeToString())
    world.shelf.store.write([CommitGroup(world.shelf.store.version() + 1, [changed])])
    world.crash()
    world.settle()


@pytest.fixture
def world() -> World:
    return group_world()


def test_the_member_is_fenced_and_the_others_go_on(world: World) -> None:
    first, second = world.consumers.stable(*world.consumers.members("first", "second"))
    other = world.consumers.member("m")
    other.group_id = "another group of the same server"
    assert code(other.joins("foo")) is OK
    world_with_unknown_state(world, first)
    assert code(first.acknowledges()) is ErrorCode.FENCED_MEMBER_EPOCH
    assert code(second.acknowledges()) is OK
    assert code(other.acknowledges()) is OK
    assert world.consumers.state() == "Reconciling"


def test_who_says_nothing_of_what_it_owns_is_fenced_too(world: World) -> None:
    (member,) = world.consumers.stable(world.consumers.member())
    world_with_unknown_state(world, member)
    assert code(member.beats()) is ErrorCode.FENCED_MEMBER_EPOCH


def test_it_joins_again_and_what_it_gets_is_computed_anew(world: World) -> None:
    first, second = world.consumers.stable(*world.consumers.members("first", "second"))
    world_with_unknown_state(world, first)
    assert code(first.acknowledges()) is ErrorCode.FENCED_MEMBER_EPOCH
    first.epoch, first.assigned = 0, frozenset()
    assert code(first.joins("foo", "bar")) is OK
    world.consumers.quiet(first, second)
    assert world.consumers.state() == "Stable"
    assert first.assigned | second.assigned == all_of(foo=6, bar=3)
    assert not first.assigned & second.assigned
    world.restart()
    assert world.consumers.group().assignment("first").state is MemberState.STABLE


class TestOneThatShowsThatItOwnsNothing:
    """Nothing can be wrong with what it holds, so what it gets is computed anew (spec groups 3.6)."""

    def test_it_goes_on_and_is_told_all_that_it_may_own_although_that_is_what_it_had(self, world: World) -> None:
        (member,) = world.consumers.stable(world.consumers.member())
        held, epoch = member.assigned, member.epoch
        world_with_unknown_state(world, member)
        member.assigned = frozenset()
        answer = member.acknowledges()
        assert (code(answer), answer.member_epoch, member.assigned) == (OK, epoch, held)
        assert world.consumers.state() == "Stable"
        assert not member.acknowledges().HasField("assignment")
        world.restart()
        assert world.consumers.group().assignment("m").state is MemberState.STABLE

    def test_it_moves_to_the_newest_target_and_its_former_share_is_free(self, world: World) -> None:
        first, second = world.consumers.members("first", "second")
        world.consumers.stable(first)
        second.joins("foo", "bar")
        world_with_unknown_state(world, first)
        first.assigned = frozenset()
        first.acknowledges()
        assert first.epoch == second.epoch == 2
        second.beats()
        assert first.assigned | second.assigned == all_of(foo=6, bar=3)
        assert not first.assigned & second.assigned

    def test_what_it_had_been_told_to_give_up_is_free(self, world: World) -> None:
        first, second = world.consumers.members("first", "second")
        world.consumers.stable(first)
        second.joins("foo", "bar")
        first.beats()
        kept = first.assigned
        assert world.consumers.group().assignment("first").state is MemberState.UNREVOKED
        world_with_unknown_state(world, first)
        first.assigned = frozenset()
        first.acknowledges()
        second.beats()
        assert (first.assigned, second.assigned) == (kept, all_of(foo=6, bar=3) - kept)

    def test_the_epoch_before_will_do(self, world: World) -> None:
        first, second = world.consumers.stable(*world.consumers.members("first", "second"))
        held, epoch = first.assigned, first.epoch
        before = world.consumers.group().assignment("first").previous_member_epoch
        assert before < epoch
        world_with_unknown_state(world, first)
        first.assigned = frozenset()
        assert first.beats(before, topic_partitions=partition_set(())).member_epoch == epoch
        assert first.assigned == held
        assert world.consumers.state() == "Stable"
        assert code(second.acknowledges()) is OK

    def test_an_epoch_that_it_never_had_will_not(self, world: World) -> None:
        (member,) = world.consumers.stable(world.consumers.member())
        world_with_unknown_state(world, member)
        nothing = partition_set(())
        assert code(member.beats(member.epoch + 1, topic_partitions=nothing)) is ErrorCode.FENCED_MEMBER_EPOCH

    def test_it_does_not_wait_for_what_it_is_told(self, world: World) -> None:
        (member,) = world.consumers.stable(world.consumers.member())
        world_with_unknown_state(world, member)
        waiting = member.waits(topic_partitions=partition_set(()))
        world.settle()
        assert waiting.result().HasField("assignment")

    def test_a_static_one_too(self, world: World) -> None:
        (member,) = world.consumers.stable(world.consumers.member("m", "i1"))
        held = member.assigned
        world_with_unknown_state(world, member)
        member.assigned = frozenset()
        assert code(member.acknowledges()) is OK
        assert member.assigned == held


def test_what_it_holds_is_no_others_until_it_is_gone(world: World) -> None:
    first, second = world.consumers.stable(*world.consumers.members("first", "second"))
    held = first.assigned
    world_with_unknown_state(world, first)
    for _ in range(3):
        assert code(second.acknowledges()) is OK
    assert not second.assigned & held
    world.pass_time(45_001)
    second.joins("foo", "bar")
    world.consumers.quiet(second)
    assert second.assigned == all_of(foo=6, bar=3)


def test_it_may_leave(world: World) -> None:
    first, second = world.consumers.stable(*world.consumers.members("first", "second"))
    world_with_unknown_state(world, first)
    assert code(first.leaves()) is OK
    world.consumers.quiet(second)
    assert second.assigned == all_of(foo=6, bar=3)


def test_it_is_still_unknown_after_another_restart(world: World) -> None:
    (member,) = world.consumers.stable(world.consumers.member())
    world_with_unknown_state(world, member)
    world.restart()
    assert code(member.beats()) is ErrorCode.FENCED_MEMBER_EPOCH


def test_a_classic_member_of_the_group_is_fenced_in_its_own_words() -> None:
    world = group_world()
    modern, classic = world.consumers.member("modern"), world.classic.subscriber()
    world.consumers.stable(modern)
    assert code(classic.join_as_new().result()) is OK
    world.consumers.quiet(modern)
    assert code(classic.joins()) is OK
    assert (code(classic.syncs()), classic.beats()) == (OK, OK)
    world_with_unknown_state(world, classic)
    assert classic.beats() is ErrorCode.ILLEGAL_GENERATION
    assert code(modern.beats()) is OK
    assert code(classic.joins()) is OK
    assert (code(classic.syncs()), classic.beats()) == (OK, OK)


@pytest.mark.parametrize("state", [3, 126, 127, 128, 2**32 - 1])
def test_every_number_without_a_meaning_is_unknown(world: World, state: int) -> None:
    (member,) = world.consumers.stable(world.consumers.member())
    world_with_unknown_state(world, member, state)
    assert world.consumers.group().assignment("m").state is MemberState.UNKNOWN


def test_what_it_had_to_give_up_and_still_owns_stays_its_own() -> None:
    """A classic member joins again without having given everything up."""
    topic_id = b"t" * 16
    held = CurrentAssignment(5, 5, MemberState.UNKNOWN, {topic_id: {0: 5}}, {topic_id: {1: 4}})
    destination = Destination(
        epoch=6, share={topic_id: (0,)}, is_free=lambda *_: True, is_subscribed=lambda _topic: True
    )
    after = reconcile(held, destination, {topic_id: frozenset({0, 1})})
    assert after == CurrentAssignment(5, 5, MemberState.UNREVOKED, {topic_id: {0: 5}}, {topic_id: {1: 4}})
