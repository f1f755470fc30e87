"""Topics that come, go and grow, and patterns that stand for them."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator_protocol.errors import ErrorCode
from coordinator_runtime.ports import AllowAll, CallContext, Permission, ResourceType
from group_coordinator.consumer import background
from group_coordinator.consumer.background import PAUSE_MS
from tests.harness.consumers import Consumer, all_of, of, partition_set
from tests.harness.group_world import group_world
from tests.harness.groups import OK, code

SOON_MS = 20


def joins_with(member: Consumer, regex: str, *topics: str) -> Any:
    return member.beats(**{**member.join_fields(*topics), "subscribed_topic_regex": regex})


def waits(member: Consumer) -> Any:
    return member.waits(topic_partitions=partition_set(member.assigned))


class TestNames:
    def test_a_topic_that_comes_reaches_who_waits_for_it(self) -> None:
        world = group_world()
        (member,) = world.consumers.stable(world.consumers.member(), topics=["foo", "new"])
        waiting = waits(member)
        world.create_topic("new", 2)
        world.pass_time(SOON_MS)
        assert waiting.is_settled
        assert member.assigned == all_of(foo=6, new=2)

    def test_more_partitions_reach_who_waits_for_them(self) -> None:
        world = group_world()
        first, second = world.consumers.stable(*world.consumers.members("a", "b"), topics=["bar"])
        epoch = world.consumers.epoch()
        waiting = waits(first), waits(second)
        world.add_partitions("bar", 5)
        world.pass_time(SOON_MS)
        assert any(each.is_settled for each in waiting)
        world.consumers.quiet(first, second)
        assert first.assigned | second.assigned == all_of(bar=5)
        assert (first.assigned & second.assigned, world.consumers.epoch()) == (frozenset(), epoch + 1)

    def test_more_partitions_are_noticed_by_a_group_that_was_not_there(self) -> None:
        world = group_world()
        (member,) = world.consumers.stable(world.consumers.member(), topics=["bar"])
        world.add_partitions("bar", 5)
        world.crash()
        world.settle()
        world.consumers.quiet(member)
        assert member.assigned == all_of(bar=5)

    def test_more_partitions_that_a_crash_took_back_are_unassigned(self) -> None:
        world = group_world()
        (member,) = world.consumers.stable(world.consumers.member(), topics=["bar"])
        world.add_partitions("bar", 5, is_durable=False)
        world.crash()
        world.settle()
        world.consumers.quiet(member)
        assert member.assigned == all_of(bar=3)

    def test_a_topic_that_is_made_anew_is_another_topic(self) -> None:
        world = group_world()
        (member,) = world.consumers.stable(world.consumers.member(), topics=["foo"])
        epoch = world.consumers.epoch()
        world.delete_topic("foo")
        world.settle()
        world.create_topic("foo", 2)
        world.pass_time(SOON_MS)
        world.consumers.quiet(member)
        assert (member.assigned, world.consumers.epoch()) == (all_of(foo=2), epoch + 2)

    def test_topics_of_others_do_not_matter(self) -> None:
        world = group_world()
        (member,) = world.consumers.stable(world.consumers.member(), topics=["foo"])
        epoch, version = world.consumers.epoch(), world.inside.runtime.groups.durable_version
        world.create_topic("new", 2)
        world.pass_time(SOON_MS)
        assert not member.beats().HasField("assignment")
        assert (world.consumers.epoch(), world.inside.runtime.groups.durable_version) == (epoch, version + 1)

    def test_after_a_restart_the_topics_are_compared_once(self) -> None:
        world = group_world()
        (member,) = world.consumers.stable(world.consumers.member(), topics=["foo"])
        epoch = world.consumers.epoch()
        world.restart()
        member.beats()
        assert (world.consumers.epoch(), world.consumers.group().checked_ms) == (epoch, world.clock.wall_ms())

    def test_now_and_then_the_topics_are_looked_at_anyway(self) -> None:
        world = group_world()
        (member,) = world.consumers.stable(world.consumers.member(), topics=["foo"])
        checked_ms = world.consumers.group().checked_ms
        for _round in range(10):
            world.pass_time(30_000)
            member.beats()
        assert world.consumers.group().checked_ms == (checked_ms or 0) + 300_000
        world.clock.step_wall(-3_600_000)
        member.beats()
        assert world.consumers.group().checked_ms == world.clock.wall_ms()


class TestPatterns:
    def test_a_pattern_matches_nothing_until_it_is_resolved(self) -> None:
        world = group_world()
        member = world.consumers.member()
        joins_with(member, "fo.*|ba.")
        assert member.assigned == frozenset()
        waiting = waits(member)
        world.pass_time(SOON_MS)
        assert waiting.is_settled
        assert (member.assigned, world.consumers.epoch()) == (all_of(foo=6, bar=3), 2)

    def test_names_and_a_pattern_are_united(self) -> None:
        world = group_world()
        member = world.consumers.member()
        joins_with(member, "b.*", "zar")
        world.pass_time(SOON_MS)
        world.consumers.quiet(member)
        assert member.assigned == all_of(bar=3, zar=1)

    def test_what_is_no_pattern_is_refused(self) -> None:
        world = group_world()
        assert code(joins_with(world.consumers.member(), "(")) is ErrorCode.INVALID_REGULAR_EXPRESSION
        assert not world.groups.has()

    def test_a_pattern_must_match_the_whole_name(self) -> None:
        world = group_world()
        member = world.consumers.member()
        joins_with(member, "fo")
        world.pass_time(SOON_MS)
        world.consumers.quiet(member)
        assert (member.assigned, world.consumers.epoch()) == (frozenset(), 1)

    def test_more_partitions_of_what_a_pattern_matches_are_shared(self) -> None:
        world = group_world()
        member = world.consumers.member()
        joins_with(member, "ba.")
        world.pass_time(SOON_MS)
        world.consumers.quiet(member)
        world.add_partitions("bar", 5)
        world.pass_time(SOON_MS)
        world.consumers.quiet(member)
        assert member.assigned == all_of(bar=5)

    def test_topics_that_come_and_go_are_matched(self) -> None:
        world = group_world()
        member = world.consumers.member()
        joins_with(member, "fo.*")
        world.pass_time(PAUSE_MS + SOON_MS)
        world.consumers.quiet(member)
        waiting = waits(member)
        world.create_topic("fo-2", 1)
        world.pass_time(SOON_MS)
        assert waiting.is_settled
        assert member.assigned == all_of(foo=6) | of("fo-2", 0)
        world.pass_time(PAUSE_MS)
        world.delete_topic("foo")
        world.settle()
        world.pass_time(SOON_MS)
        world.consumers.quiet(member)
        assert member.assigned == of("fo-2", 0)

    def test_changes_in_a_row_share_a_resolution_and_none_is_missed(self) -> None:
        world = group_world()
        member = world.consumers.member()
        joins_with(member, "fo.*")
        for number in range(5):
            world.create_topic(f"fo-{number}", 1)
        world.pass_time(2 * PAUSE_MS)
        world.consumers.quiet(member)
        assert len(member.assigned) == 6 + 5
        assert world.consumers.epoch() <= 4

    def test_another_pattern_takes_the_place_of_the_first(self) -> None:
        world = group_world()
        member, other = world.consumers.members("first", "other")
        joins_with(member, "fo.*")
        joins_with(other, "fo.*")
        world.pass_time(PAUSE_MS + SOON_MS)
        world.consumers.quiet(member, other)
        member.beats(subscribed_topic_regex="ba.*")
        assert {regex for regex, _found in world.consumers.group().regexes.items()} == {"fo.*"}
        world.pass_time(PAUSE_MS + SOON_MS)
        world.consumers.quiet(member, other)
        assert (member.assigned, other.assigned) == (all_of(bar=3), all_of(foo=6))
        other.beats(subscribed_topic_regex="")
        assert {regex for regex, _found in world.consumers.group().regexes.items()} == {"ba.*"}
        member.leaves()
        assert len(world.consumers.group().regexes) == 0

    def test_after_a_restart_the_stored_result_stands(self) -> None:
        world = group_world()
        member = world.consumers.member()
        joins_with(member, "fo.*")
        world.pass_time(PAUSE_MS + SOON_MS)
        world.consumers.quiet(member)
        epoch = world.consumers.epoch()
        world.restart()
        member.beats()
        world.pass_time(PAUSE_MS + SOON_MS)
        assert (code(member.beats()), world.consumers.epoch(), member.assigned) == (OK, epoch, all_of(foo=6))
        assert world.consumers.group().regexes_checked_ms is not None

    def test_hidden_topics_match_nothing(self) -> None:
        class Hides(AllowAll):
            def is_allowed(
                self, context: CallContext, permission: Permission, resource: ResourceType, name: str
            ) -> bool:
                return name != "foo"

        world = group_world(authorizer=Hides())
        member = world.consumers.member()
        joins_with(member, ".*")
        world.pass_time(SOON_MS)
        world.consumers.quiet(member)
        assert member.assigned == all_of(bar=3, zar=1)

    def test_many_topics_are_matched_in_steps(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(background, "NAMES_PER_STEP", 10)
        world = group_world(topics={f"t{number}": 1 for number in range(25)})
        member = world.consumers.member()
        joins_with(member, "t.*7")
        runtime = world.inside.runtime
        steps = 0
        while world.consumers.group().has_unresolved_regex:
            runtime.run_due_timers()
            world.settle()
            steps += 1
        assert steps == 4
