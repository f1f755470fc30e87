"""What is counted of groups and offsets, each thing once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from coordinator_protocol.assignors.values import Shares
from coordinator_server.metrics.groups import STATES, GroupNumbers, measured
from coordinator_server.metrics.instruments import Histogram
from group_coordinator.assignors import SERVER_ASSIGNORS
from group_coordinator.consumer import targets
from group_coordinator.events import LeaveReason
from tests.groups.classic.members import DELAY_MS, OK
from tests.groups.committed.room import ABORT, COMMIT
from tests.groups.counting import check_counts
from tests.groups.room import RoomOptions
from tests.harness.manual_clock import ManualClock
from tests.harness.workers import HeldWorker
from tests.metrics.observed_groups import ObservedGroups

CLASSIC, CONSUMER = ("classic",), ("consumer",)
WEEK_MS = 7 * 24 * 3_600_000


@pytest.fixture
def room() -> Iterator[ObservedGroups]:
    room = ObservedGroups()
    yield room
    check_counts(room)


class TestClassic:
    def test_a_group_on_its_way(self, room: ObservedGroups) -> None:
        leader, follower = room.classic(), room.classic()
        joining = [leader.join_as_new(), follower.join_as_new()]
        assert room.non_zero("groups") == {("classic", "PreparingRebalance"): 1}
        room.tick(2 * DELAY_MS)
        assert all(reply.is_settled for reply in joining)
        assert room.non_zero("groups") == {("classic", "CompletingRebalance"): 1}
        room.assign([leader, follower], {})
        assert room.non_zero("groups") == {("classic", "Stable"): 1}
        assert room.non_zero("creations_total") == {CLASSIC: 1}
        assert room.non_zero("member_joins_total") == {CLASSIC: 2}
        assert room.non_zero("rebalances_total") == room.non_zero("rebalances_completed_total") == {CLASSIC: 1}
        assert room.histogram("rebalance_seconds", "classic").total == 2 * DELAY_MS / 1_000

    def test_an_id_that_was_only_given_away_is_no_member(self, room: ObservedGroups) -> None:
        room.classic().asked_for_id()
        assert room.non_zero("member_joins_total") == {}
        assert room.non_zero("groups") == {("classic", "Empty"): 1}

    def test_a_rebalance_that_must_begin_again(self, room: ObservedGroups) -> None:
        leader, follower = room.pair()
        assert room.rejoin(leader, follower) == [OK, OK]
        room.classic().join_as_new()
        assert room.non_zero("rebalances_failed_total") == {CLASSIC: 1}
        assert room.non_zero("rebalances_total") == {CLASSIC: 3}
        assert room.non_zero("rebalances_completed_total") == {CLASSIC: 1}

    def test_a_group_that_had_members_is_deleted(self, room: ObservedGroups) -> None:
        for member in room.pair():
            member.leaves()
        assert room.non_zero("groups") == {("classic", "Empty"): 1}
        room.deletes_group()
        assert room.non_zero("groups") == {}
        assert room.non_zero("deletions_total") == {("classic", "deleted"): 1}

    def test_nothing_is_counted_before_it_is_durable(self, room: ObservedGroups) -> None:
        room.commit({"foo-0": 1})
        assert (room.non_zero("creations_total"), room.non_zero("groups"), room.value("offsets")) == ({}, {}, 0)
        room.settle()
        assert (room.non_zero("creations_total"), room.value("offsets")) == ({CLASSIC: 1}, 1)


class TestWhyMembersGo:
    def test_it_said_so(self, room: ObservedGroups) -> None:
        _leader, follower = room.pair()
        follower.leaves()
        assert room.non_zero("member_leaves_total") == {("classic", "leave"): 1}

    def test_nothing_was_heard_of_it(self, room: ObservedGroups) -> None:
        room.pair()
        room.tick(5_000)
        assert room.non_zero("member_leaves_total") == {("classic", "session"): 2}

    def test_it_did_not_join_again(self, room: ObservedGroups) -> None:
        leader, follower = room.classic(), room.classic(session_timeout_ms=20_000)
        room.classic_group(leader, follower, plan={})
        leader.joining()
        room.tick(10_000)
        assert room.non_zero("member_leaves_total") == {("classic", "rebalance"): 1}

    def test_it_did_not_ask_for_its_assignment(self, room: ObservedGroups) -> None:
        leader, follower = (room.classic(session_timeout_ms=20_000) for _ in range(2))
        room.completing(leader, follower)
        leader.syncs({})
        room.tick(10_000)
        assert room.non_zero("member_leaves_total") == {("classic", "sync"): 1}

    def test_a_newer_one_has_its_instance_id(self, room: ObservedGroups) -> None:
        room.classic_group(room.classic("i"), plan={})
        room.classic("i").joins()
        assert room.non_zero("member_leaves_total") == {("classic", "fenced"): 1}
        assert room.non_zero("member_joins_total") == {CLASSIC: 2}

    def test_there_is_no_room(self, room: ObservedGroups) -> None:
        leader, follower = room.pair()
        room.reconfigured(size_max=1)
        leader.joining()
        follower.join()
        room.settle()
        assert room.non_zero("member_leaves_total") == {("classic", "size"): 1}

    def test_it_did_not_give_up_its_partitions(self, room: ObservedGroups) -> None:
        first, second = room.members("first", "second")
        room.stable(first)
        second.joins("foo", "bar")
        first.beats()
        room.tick(10_000)
        assert room.non_zero("member_leaves_total") == {("consumer", "rebalance"): 1}

    def test_every_reason_is_there_from_the_start(self) -> None:
        found = GroupNumbers().readings()["txn_group_member_leaves_total"]
        assert {reason for _kind, reason in found} == {reason.value for reason in LeaveReason}


class TestConsumer:
    def test_a_group_on_its_way(self, room: ObservedGroups) -> None:
        first, second = room.members("first", "second")
        room.stable(first)
        assert room.non_zero("groups") == {("consumer", "Stable"): 1}
        assert room.non_zero("rebalances_completed_total") == {CONSUMER: 1}
        second.joins("foo", "bar")
        assert room.non_zero("groups") == {("consumer", "Reconciling"): 1}
        room.tick(2_000)
        first.beats()
        first.acknowledges()
        assert room.non_zero("rebalances_completed_total") == {CONSUMER: 1}
        second.beats()
        assert room.non_zero("rebalances_completed_total") == {CONSUMER: 2}
        assert room.histogram("rebalance_seconds", "consumer").total == 2.0
        assert room.non_zero("rebalances_total") == {CONSUMER: 2}
        assert room.non_zero("assignment_changes_total") == {("uniform",): 3}
        assert room.non_zero("creations_total") == {CONSUMER: 1}

    def test_one_end_for_all_that_began_meanwhile(self, room: ObservedGroups) -> None:
        members = room.members("first", "second", "third")
        for member in members:
            member.joins("foo", "bar")
            room.tick(1_000)
        room.quiet(*members)
        assert room.non_zero("rebalances_total") == {CONSUMER: 3}
        assert room.non_zero("rebalances_completed_total") == {CONSUMER: 2}
        assert room.histogram("rebalance_seconds", "consumer").total == 2.0

    def test_a_classic_member_comes_back_under_its_static_name(self, room: ObservedGroups) -> None:
        (modern,) = room.stable(room.member())
        old, new = room.classic("i"), room.classic("i")
        old.joins()
        room.quiet(modern)
        old.joins()
        assert room.non_zero("groups") == {("consumer", "Stable"): 1}
        new.joins()
        assert room.non_zero("member_leaves_total") == {("consumer", "fenced"): 1}
        assert room.non_zero("groups") == {("consumer", "Stable"): 1}

    def test_the_last_one_goes(self, room: ObservedGroups) -> None:
        (member,) = room.stable(room.member())
        member.leaves()
        assert room.non_zero("groups") == {("consumer", "Empty"): 1}
        assert room.non_zero("rebalances_completed_total") == {CONSUMER: 2}

    def test_one_that_a_restart_interrupts_is_never_over(self, room: ObservedGroups) -> None:
        first, second = room.members("first", "second")
        room.stable(first)
        second.joins("foo", "bar")
        room.restart()
        assert room.non_zero("groups") == {("consumer", "Reconciling"): 1}
        room.quiet(first, second)
        assert room.non_zero("groups") == {("consumer", "Stable"): 1}
        assert room.non_zero("rebalances_completed_total") == {}

    def test_a_group_changes_its_protocol_and_back(self, room: ObservedGroups) -> None:
        room.pair()
        modern = room.member()
        modern.joins("foo")
        assert room.non_zero("converted_total") == {CONSUMER: 1}
        assert {kind for kind, _state in room.non_zero("groups")} == {"consumer"}
        modern.leaves()
        assert room.non_zero("converted_total") == {CONSUMER: 1, CLASSIC: 1}
        assert {kind for kind, _state in room.non_zero("groups")} == {"classic"}

    def test_how_long_the_worker_took(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(targets, "ON_LOOP_US_MAX", 0)
        worker = HeldWorker(is_held=True)
        room = ObservedGroups(RoomOptions(worker=worker))
        room.member().joins("foo")
        room.clock.advance(700)
        worker.release()
        room.settle()
        assert room.histogram("assignment_seconds", "uniform", "worker").total == 0.7

    def test_how_long_an_assignor_took_here(self) -> None:
        clock, numbers = ManualClock(), GroupNumbers()

        def slow(_members: Any, _topics: Any) -> Shares[bytes]:
            clock.advance(30)
            return {}

        assert measured({"slow": slow}, clock, numbers.computed)["slow"]({}, {}) == {}
        taken = numbers.readings()["txn_group_assignment_seconds"]["slow", "loop"]
        assert isinstance(taken, Histogram)
        assert (taken.count, taken.total) == (1, 0.03)
        assert measured(SERVER_ASSIGNORS, clock, numbers.computed).keys() == SERVER_ASSIGNORS.keys()


class TestOffsets:
    def test_plain_ones_and_those_of_transactions(self, room: ObservedGroups) -> None:
        room.commits({"foo-0": 1, "foo-1": 1})
        producer = room.producer()
        producer.commits({"foo-1": 2, "foo-2": 2, "foo-3": 2})
        room.tick(4_000)
        producer.commits({"foo-3": 3})
        room.tick(1_000)
        assert room.non_zero("offset_commits_total") == {("plain",): 2, ("transactional",): 4}
        assert (room.value("offsets"), room.value("pending_offsets"), room.value("open_transactions")) == (4, 3, 1)
        assert room.value("oldest_pending_offset_age_seconds") == 5.0
        producer.ends(COMMIT)
        assert room.non_zero("offsets_settled_total") == {("commit",): 3}
        assert room.numbers.markers() == {("commit", "group"): 1, ("abort", "group"): 0}
        assert (room.value("offsets"), room.value("pending_offsets"), room.value("open_transactions")) == (4, 0, 0)
        assert room.value("oldest_pending_offset_age_seconds") == 0

    def test_those_of_an_aborted_transaction(self, room: ObservedGroups) -> None:
        producer = room.producer()
        producer.commits({"foo-0": 2})
        producer.ends(ABORT)
        assert room.non_zero("offsets_settled_total") == {("abort",): 1}
        assert (room.value("offsets"), room.non_zero("groups")) == (0, {})

    def test_after_a_restart_there_is_what_there_was(self, room: ObservedGroups) -> None:
        room.commits({"foo-0": 1})
        room.producer().commits({"foo-1": 2})
        room.restart()
        assert (room.value("offsets"), room.value("pending_offsets"), room.value("open_transactions")) == (2, 1, 1)
        assert room.non_zero("groups") == {("classic", "Empty"): 1}
        assert room.non_zero("creations_total") == {}

    def test_a_clock_that_was_set_back_gives_no_negative_age(self, room: ObservedGroups) -> None:
        room.producer().commits({"foo-1": 2})
        room.clock.step_wall(-3_600_000)
        assert room.value("oldest_pending_offset_age_seconds") == 0

    def test_a_group_that_is_forgotten_and_one_that_is_deleted(self, room: ObservedGroups) -> None:
        room.commits({"foo-0": 1, "foo-1": 1}, group_id="old")
        room.tick(WEEK_MS)
        room.commits({"foo-0": 1}, group_id="unwanted")
        room.tick(3_600_000)
        assert room.value("offset_expirations_total") == 2
        room.deletes_group("unwanted")
        assert room.value("offset_deletions_total") == 1
        assert room.non_zero("deletions_total") == {("classic", "expired"): 1, ("classic", "deleted"): 1}
        assert room.non_zero("groups") == {}

    def test_a_group_that_goes_with_the_last_of_its_offsets(self, room: ObservedGroups) -> None:
        room.commits({"foo-0": 1, "foo-1": 1}, group_id="emptied")
        room.deletes("foo-0", group_id="emptied")
        assert room.non_zero("deletions_total") == {}
        room.deletes("foo-1", group_id="emptied")
        assert room.non_zero("deletions_total") == {("classic", "deleted"): 1}
        room.commits({"zar-0": 1}, group_id="of zar alone")
        room.delete_topic("zar")
        assert room.non_zero("deletions_total") == {("classic", "deleted"): 1, ("classic", "expired"): 1}
        assert room.non_zero("groups") == {}

    def test_a_shard_that_leaves_takes_its_groups_along(self, room: ObservedGroups) -> None:
        room.commits({"foo-0": 1})
        room.unload("g")
        assert (room.value("offsets"), room.non_zero("groups")) == (0, {})
        room.restart()


def test_every_state_of_every_kind_is_there_from_the_start(room: ObservedGroups) -> None:
    found = room.readings()["txn_group_groups"]
    assert set(found) == {(kind.value, state) for kind, states in STATES.items() for state in states}
