"""Topics that come, go and grow, and patterns that stand for them."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator_protocol.errors import ErrorCode
from coordinator_runtime.ports import AllowAll, CallContext, Permission, ResourceType
from group_coordinator.consumer import background
from group_coordinator.consumer.background import PAUSE_MS
from tests.groups.consumer.members import OK, Consumer, ConsumerRoom, all_of, code, of, partition_set
from tests.groups.room import RoomOptions

SOON_MS = 20


def joins_with(member: Consumer, regex: str, *topics: str) -> Any:
    return member.beats(**{**member.join_fields(*topics), "subscribed_topic_regex": regex})


def waits(member: Consumer) -> Any:
    return member.waits(topic_partitions=partition_set(member.assigned))


class TestNames:
    def test_a_topic_that_comes_reaches_who_waits_for_it(self) -> None:
        room = ConsumerRoom()
        (member,) = room.stable(room.member(), topics=["foo", "new"])
        waiting = waits(member)
        room.create_topic("new", 2)
        room.tick(SOON_MS)
        assert waiting.is_settled
        assert member.assigned == all_of(foo=6, new=2)

    def test_more_partitions_reach_who_waits_for_them(self) -> None:
        room = ConsumerRoom()
        first, second = room.stable(*room.members("a", "b"), topics=["bar"])
        epoch = room.epoch()
        waiting = waits(first), waits(second)
        room.add_partitions("bar", 5)
        room.tick(SOON_MS)
        assert any(each.is_settled for each in waiting)
        room.quiet(first, second)
        assert first.assigned | second.assigned == all_of(bar=5)
        assert (first.assigned & second.assigned, room.epoch()) == (frozenset(), epoch + 1)

    def test_more_partitions_are_noticed_by_a_group_that_was_not_there(self) -> None:
        room = ConsumerRoom()
        (member,) = room.stable(room.member(), topics=["bar"])
        room.add_partitions("bar", 5)
        room.crash()
        room.quiet(member)
        assert member.assigned == all_of(bar=5)

    def test_more_partitions_that_a_crash_took_back_are_nobodys(self) -> None:
        room = ConsumerRoom()
        (member,) = room.stable(room.member(), topics=["bar"])
        room.add_partitions("bar", 5, is_durable=False)
        room.crash()
        room.quiet(member)
        assert member.assigned == all_of(bar=3)

    def test_a_topic_that_is_made_anew_is_another_topic(self) -> None:
        room = ConsumerRoom()
        (member,) = room.stable(room.member(), topics=["foo"])
        epoch = room.epoch()
        room.delete_topic("foo")
        room.create_topic("foo", 2)
        room.tick(SOON_MS)
        room.quiet(member)
        assert (member.assigned, room.epoch()) == (all_of(foo=2), epoch + 2)

    def test_topics_of_others_do_not_matter(self) -> None:
        room = ConsumerRoom()
        (member,) = room.stable(room.member(), topics=["foo"])
        epoch, version = room.epoch(), room.inside.runtime.groups.durable_version
        room.create_topic("new", 2)
        room.tick(SOON_MS)
        assert not member.beats().HasField("assignment")
        assert (room.epoch(), room.inside.runtime.groups.durable_version) == (epoch, version + 1)

    def test_after_a_restart_the_topics_are_compared_once(self) -> None:
        room = ConsumerRoom()
        (member,) = room.stable(room.member(), topics=["foo"])
        epoch = room.epoch()
        room.restart()
        member.beats()
        assert (room.epoch(), room.group().checked_ms) == (epoch, room.clock.wall_ms())

    def test_now_and_then_the_topics_are_looked_at_anyway(self) -> None:
        room = ConsumerRoom()
        (member,) = room.stable(room.member(), topics=["foo"])
        checked_ms = room.group().checked_ms
        for _round in range(10):
            room.tick(30_000)
            member.beats()
        assert room.group().checked_ms == (checked_ms or 0) + 300_000
        room.clock.step_wall(-3_600_000)
        member.beats()
        assert room.group().checked_ms == room.clock.wall_ms()


class TestPatterns:
    def test_a_pattern_matches_nothing_until_it_is_resolved(self) -> None:
        room = ConsumerRoom()
        member = room.member()
        joins_with(member, "fo.*|ba.")
        assert member.assigned == frozenset()
        waiting = waits(member)
        room.tick(SOON_MS)
        assert waiting.is_settled
        assert (member.assigned, room.epoch()) == (all_of(foo=6, bar=3), 2)

    def test_names_and_a_pattern_are_united(self) -> None:
        room = ConsumerRoom()
        member = room.member()
        joins_with(member, "b.*", "zar")
        room.tick(SOON_MS)
        room.quiet(member)
        assert member.assigned == all_of(bar=3, zar=1)

    def test_what_is_no_pattern_is_refused(self) -> None:
        room = ConsumerRoom()
        assert code(joins_with(room.member(), "(")) is ErrorCode.INVALID_REGULAR_EXPRESSION
        assert not room.has_group()

    def test_a_pattern_must_match_the_whole_name(self) -> None:
        room = ConsumerRoom()
        member = room.member()
        joins_with(member, "fo")
        room.tick(SOON_MS)
        room.quiet(member)
        assert (member.assigned, room.epoch()) == (frozenset(), 1)

    def test_more_partitions_of_what_a_pattern_matches_are_shared(self) -> None:
        room = ConsumerRoom()
        member = room.member()
        joins_with(member, "ba.")
        room.tick(SOON_MS)
        room.quiet(member)
        room.add_partitions("bar", 5)
        room.tick(SOON_MS)
        room.quiet(member)
        assert member.assigned == all_of(bar=5)

    def test_topics_that_come_and_go_are_matched(self) -> None:
        room = ConsumerRoom()
        member = room.member()
        joins_with(member, "fo.*")
        room.tick(PAUSE_MS + SOON_MS)
        room.quiet(member)
        waiting = waits(member)
        room.create_topic("fo-2", 1)
        room.tick(SOON_MS)
        assert waiting.is_settled
        assert member.assigned == all_of(foo=6) | of("fo-2", 0)
        room.tick(PAUSE_MS)
        room.delete_topic("foo")
        room.tick(SOON_MS)
        room.quiet(member)
        assert member.assigned == of("fo-2", 0)

    def test_changes_in_a_row_share_a_resolution_and_none_is_missed(self) -> None:
        room = ConsumerRoom()
        member = room.member()
        joins_with(member, "fo.*")
        for number in range(5):
            room.create_topic(f"fo-{number}", 1)
        room.tick(2 * PAUSE_MS)
        room.quiet(member)
        assert len(member.assigned) == 6 + 5
        assert room.epoch() <= 4

    def test_another_pattern_takes_the_place_of_the_first(self) -> None:
        room = ConsumerRoom()
        member, other = room.members("first", "other")
        joins_with(member, "fo.*")
        joins_with(other, "fo.*")
        room.tick(PAUSE_MS + SOON_MS)
        room.quiet(member, other)
        member.beats(subscribed_topic_regex="ba.*")
        assert {regex for regex, _found in room.group().regexes.items()} == {"fo.*"}
        room.tick(PAUSE_MS + SOON_MS)
        room.quiet(member, other)
        assert (member.assigned, other.assigned) == (all_of(bar=3), all_of(foo=6))
        other.beats(subscribed_topic_regex="")
        assert {regex for regex, _found in room.group().regexes.items()} == {"ba.*"}
        member.leaves()
        assert len(room.group().regexes) == 0

    def test_after_a_restart_the_stored_result_stands(self) -> None:
        room = ConsumerRoom()
        member = room.member()
        joins_with(member, "fo.*")
        room.tick(PAUSE_MS + SOON_MS)
        room.quiet(member)
        epoch = room.epoch()
        room.restart()
        member.beats()
        room.tick(PAUSE_MS + SOON_MS)
        assert (code(member.beats()), room.epoch(), member.assigned) == (OK, epoch, all_of(foo=6))
        assert room.group().regexes_checked_ms is not None

    def test_topics_that_nobody_may_know_of_match_nothing(self) -> None:
        class Hides(AllowAll):
            def is_allowed(
                self, context: CallContext, permission: Permission, resource: ResourceType, name: str
            ) -> bool:
                return name != "foo"

        room = ConsumerRoom(RoomOptions(authorizer=Hides()))
        member = room.member()
        joins_with(member, ".*")
        room.tick(SOON_MS)
        room.quiet(member)
        assert member.assigned == all_of(bar=3, zar=1)

    def test_many_topics_are_matched_in_steps(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(background, "NAMES_PER_STEP", 10)
        room = ConsumerRoom(RoomOptions(topics={f"t{number}": 1 for number in range(25)}))
        member = room.member()
        joins_with(member, "t.*7")
        runtime = room.inside.runtime
        steps = 0
        while room.group().has_unresolved_regex:
            runtime.run_due_timers()
            room.settle()
            steps += 1
        assert steps == 4
