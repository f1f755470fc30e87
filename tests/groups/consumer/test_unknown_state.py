"""Members whose stored state only a newer server knows are fenced; nobody else of their shard notices."""

from __future__ import annotations

import pytest

from coordinator_api.storage.v1 import group_pb2 as storage
from coordinator_protocol.errors import ErrorCode
from coordinator_runtime.decision import Coordinator
from coordinator_runtime.store import CommitGroup, Family
from group_coordinator.codec import CONSUMER_CURRENT_ASSIGNMENT
from group_coordinator.consumer.rules import Destination, reconcile
from group_coordinator.consumer.state import CurrentAssignment, MemberState
from tests.groups.consumer.members import OK, Consumer, ConsumerRoom, all_of, code
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


def test_one_that_owns_nothing_is_fenced_too(room: ConsumerRoom) -> None:
    (member,) = room.stable(room.member())
    room_with_unknown_state(room, member)
    member.assigned = frozenset()
    assert code(member.acknowledges()) is ErrorCode.FENCED_MEMBER_EPOCH


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
