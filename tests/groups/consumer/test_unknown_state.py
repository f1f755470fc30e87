"""Members whose stored state only a newer server knows are fenced unless they own nothing; nobody else of their shard
notices."""

from __future__ import annotations

import pytest

from coordinator_api.storage.v1 import group_pb2 as storage
from coordinator_protocol.errors import ErrorCode
from coordinator_runtime.decision import Coordinator
from coordinator_runtime.store import CommitGroup, Family
from group_coordinator.codec import CONSUMER_CURRENT_ASSIGNMENT
from group_coordinator.consumer.rules import Destination, reconcile
from group_coordinator.consumer.state import CurrentAssignment, MemberState
from tests.groups.consumer.members import OK, Consumer, ConsumerRoom, all_of, code, partition_set
from tests.groups.consumer.mixed import MixedRoom

UNKNOWN = 77
"""A number that no version up to this one gives to a state."""


def room_with_unknown_state(room: ConsumerRoom, member: Consumer, state: int = UNKNOWN) -> None:
    """The member is stored so, and the server starts again."""
    room.settle()
    key = f"{member.group_id}\0{member.member_id}".encode()
    rows = room.store.scan(Family.COORDINATOR_STATE, bytes([Coordinator.GROUPS]), bytes([Coordinator.GROUPS + 1]))
    ((found, stored),) = [row for row in rows if row[0][3] == CONSUMER_CURRENT_ASSIGNMENT and row[0].endswith(key)]
    value = storage.ConsumerCurrentAssignmentValue.FromString(stored)
    value.state = state
    changed = (Family.COORDINATOR_STATE, found, value.SerializeToString())
    room.store.write([CommitGroup(room.store.version() + 1, [changed])])
    room.crash()


@pytest.fixture
def room() -> ConsumerRoom:
    return ConsumerRoom()


def test_the_member_is_fenced_and_the_others_go_on(room: ConsumerRoom) -> None:
    first, second = room.stable(*room.members("first", "second"))
    other = room.member("m")
    other.group_id = "another group of the same server"
    assert code(other.joins("foo")) is OK
    room_with_unknown_state(room, first)
    assert code(first.acknowledges()) is ErrorCode.FENCED_MEMBER_EPOCH
    assert code(second.acknowledges()) is OK
    assert code(other.acknowledges()) is OK
    assert room.state() == "Reconciling"


def test_who_says_nothing_of_what_it_owns_is_fenced_too(room: ConsumerRoom) -> None:
    (member,) = room.stable(room.member())
    room_with_unknown_state(room, member)
    assert code(member.beats()) is ErrorCode.FENCED_MEMBER_EPOCH


def test_it_joins_again_and_what_it_gets_is_computed_anew(room: ConsumerRoom) -> None:
    first, second = room.stable(*room.members("first", "second"))
    room_with_unknown_state(room, first)
    assert code(first.acknowledges()) is ErrorCode.FENCED_MEMBER_EPOCH
    first.epoch, first.assigned = 0, frozenset()
    assert code(first.joins("foo", "bar")) is OK
    room.quiet(first, second)
    assert room.state() == "Stable"
    assert first.assigned | second.assigned == all_of(foo=6, bar=3)
    assert not first.assigned & second.assigned
    room.restart()
    assert room.group().assignment("first").state is MemberState.STABLE


class TestOneThatShowsThatItOwnsNothing:
    """Nothing can be wrong with what it holds, so what it gets is computed anew (spec groups 3.6)."""

    def test_it_goes_on_and_is_told_all_that_it_may_own_although_that_is_what_it_had(self, room: ConsumerRoom) -> None:
        (member,) = room.stable(room.member())
        held, epoch = member.assigned, member.epoch
        room_with_unknown_state(room, member)
        member.assigned = frozenset()
        answer = member.acknowledges()
        assert (code(answer), answer.member_epoch, member.assigned) == (OK, epoch, held)
        assert room.state() == "Stable"
        assert not member.acknowledges().HasField("assignment")
        room.restart()
        assert room.group().assignment("m").state is MemberState.STABLE

    def test_it_moves_to_the_newest_target_and_its_former_share_is_free(self, room: ConsumerRoom) -> None:
        first, second = room.members("first", "second")
        room.stable(first)
        second.joins("foo", "bar")
        room_with_unknown_state(room, first)
        first.assigned = frozenset()
        first.acknowledges()
        assert first.epoch == second.epoch == 2
        second.beats()
        assert first.assigned | second.assigned == all_of(foo=6, bar=3)
        assert not first.assigned & second.assigned

    def test_what_it_had_been_told_to_give_up_is_free(self, room: ConsumerRoom) -> None:
        first, second = room.members("first", "second")
        room.stable(first)
        second.joins("foo", "bar")
        first.beats()
        kept = first.assigned
        assert room.group().assignment("first").state is MemberState.UNREVOKED
        room_with_unknown_state(room, first)
        first.assigned = frozenset()
        first.acknowledges()
        second.beats()
        assert (first.assigned, second.assigned) == (kept, all_of(foo=6, bar=3) - kept)

    def test_the_epoch_before_will_do(self, room: ConsumerRoom) -> None:
        first, second = room.stable(*room.members("first", "second"))
        held, epoch = first.assigned, first.epoch
        before = room.group().assignment("first").previous_member_epoch
        assert before < epoch
        room_with_unknown_state(room, first)
        first.assigned = frozenset()
        assert first.beats(before, topic_partitions=partition_set(())).member_epoch == epoch
        assert first.assigned == held
        assert room.state() == "Stable"
        assert code(second.acknowledges()) is OK

    def test_an_epoch_that_it_never_had_will_not(self, room: ConsumerRoom) -> None:
        (member,) = room.stable(room.member())
        room_with_unknown_state(room, member)
        nothing = partition_set(())
        assert code(member.beats(member.epoch + 1, topic_partitions=nothing)) is ErrorCode.FENCED_MEMBER_EPOCH

    def test_it_does_not_wait_for_what_it_is_told(self, room: ConsumerRoom) -> None:
        (member,) = room.stable(room.member())
        room_with_unknown_state(room, member)
        waiting = member.waits(topic_partitions=partition_set(()))
        room.settle()
        assert waiting.result().HasField("assignment")

    def test_a_static_one_too(self, room: ConsumerRoom) -> None:
        (member,) = room.stable(room.member("m", "i1"))
        held = member.assigned
        room_with_unknown_state(room, member)
        member.assigned = frozenset()
        assert code(member.acknowledges()) is OK
        assert member.assigned == held


def test_what_it_holds_is_nobody_elses_until_it_is_gone(room: ConsumerRoom) -> None:
    first, second = room.stable(*room.members("first", "second"))
    held = first.assigned
    room_with_unknown_state(room, first)
    for _ in range(3):
        assert code(second.acknowledges()) is OK
    assert not second.assigned & held
    room.tick(45_001)
    second.joins("foo", "bar")
    room.quiet(second)
    assert second.assigned == all_of(foo=6, bar=3)


def test_it_may_leave(room: ConsumerRoom) -> None:
    first, second = room.stable(*room.members("first", "second"))
    room_with_unknown_state(room, first)
    assert code(first.leaves()) is OK
    room.quiet(second)
    assert second.assigned == all_of(foo=6, bar=3)


def test_it_is_still_unknown_after_another_restart(room: ConsumerRoom) -> None:
    (member,) = room.stable(room.member())
    room_with_unknown_state(room, member)
    room.restart()
    assert code(member.beats()) is ErrorCode.FENCED_MEMBER_EPOCH


def test_a_classic_member_of_the_group_is_fenced_in_its_own_words() -> None:
    room = MixedRoom()
    modern, classic = room.member("modern"), room.classic()
    room.stable(modern)
    assert code(classic.join_as_new().result()) is OK
    room.quiet(modern)
    assert code(classic.joins()) is OK
    assert (code(classic.syncs()), classic.beats()) == (OK, OK)
    room_with_unknown_state(room, classic)
    assert classic.beats() is ErrorCode.ILLEGAL_GENERATION
    assert code(modern.beats()) is OK
    assert code(classic.joins()) is OK
    assert (code(classic.syncs()), classic.beats()) == (OK, OK)


@pytest.mark.parametrize("state", [3, 126, 127, 128, 2**32 - 1])
def test_every_number_without_a_meaning_is_unknown(room: ConsumerRoom, state: int) -> None:
    (member,) = room.stable(room.member())
    room_with_unknown_state(room, member, state)
    assert room.group().assignment("m").state is MemberState.UNKNOWN


def test_what_it_had_to_give_up_and_still_owns_stays_its_own() -> None:
    """A classic member joins again without having given everything up."""
    topic_id = b"t" * 16
    held = CurrentAssignment(5, 5, MemberState.UNKNOWN, {topic_id: {0: 5}}, {topic_id: {1: 4}})
    destination = Destination(
        epoch=6, share={topic_id: (0,)}, is_free=lambda *_: True, is_subscribed=lambda _topic: True
    )
    after = reconcile(held, destination, {topic_id: frozenset({0, 1})})
    assert after == CurrentAssignment(5, 5, MemberState.UNREVOKED, {topic_id: {0: 5}}, {topic_id: {1: 4}})
