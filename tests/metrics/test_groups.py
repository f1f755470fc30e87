"""Counts of groups and offsets, each thing once."""

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
from tests.groups.counting import check_counts
from tests.harness.classic_members import DELAY_MS
from tests.harness.committed_offsets import ABORT, COMMIT
from tests.harness.groups import OK
from tests.harness.manual_clock import ManualClock
from tests.harness.streams_groups import StreamsGroups
from tests.harness.workers import HeldWorker
from tests.metrics.observed_groups import ObservedGroups

CLASSIC, CONSUMER, STREAMS = ("classic",), ("consumer",), ("streams",)
WEEK_MS = 7 * 24 * 3_600_000


@pytest.fixture
def observed() -> Iterator[ObservedGroups]:
    observed = ObservedGroups()
    yield observed
    check_counts(observed.world)


class TestClassic:
    def test_a_group_on_its_way(self, observed: ObservedGroups) -> None:
        leader, follower = observed.world.classic.subscriber(), observed.world.classic.subscriber()
        joining = [leader.join_as_new(), follower.join_as_new()]
        assert observed.non_zero("groups") == {("classic", "PreparingRebalance"): 1}
        observed.world.pass_time(2 * DELAY_MS)
        assert all(reply.is_settled for reply in joining)
        assert observed.non_zero("groups") == {("classic", "CompletingRebalance"): 1}
        observed.world.classic.assign([leader, follower], {})
        assert observed.non_zero("groups") == {("classic", "Stable"): 1}
        assert observed.non_zero("creations_total") == {CLASSIC: 1}
        assert observed.non_zero("member_joins_total") == {CLASSIC: 2}
        assert observed.non_zero("rebalances_total") == observed.non_zero("rebalances_completed_total") == {CLASSIC: 1}
        assert observed.histogram("rebalance_seconds", "classic").total == 2 * DELAY_MS / 1_000

    def test_an_id_that_was_only_given_away_is_no_member(self, observed: ObservedGroups) -> None:
        observed.world.classic.subscriber().asked_for_id()
        assert observed.non_zero("member_joins_total") == {}
        assert observed.non_zero("groups") == {("classic", "Empty"): 1}

    def test_a_rebalance_that_must_begin_again(self, observed: ObservedGroups) -> None:
        leader, follower = observed.pair()
        assert observed.rejoin(leader, follower) == [OK, OK]
        observed.world.classic.subscriber().join_as_new()
        assert observed.non_zero("rebalances_failed_total") == {CLASSIC: 1}
        assert observed.non_zero("rebalances_total") == {CLASSIC: 3}
        assert observed.non_zero("rebalances_completed_total") == {CLASSIC: 1}

    def test_a_group_that_had_members_is_deleted(self, observed: ObservedGroups) -> None:
        for member in observed.pair():
            member.leaves()
        assert observed.non_zero("groups") == {("classic", "Empty"): 1}
        observed.world.groups.delete()
        assert observed.non_zero("groups") == {}
        assert observed.non_zero("deletions_total") == {("classic", "deleted"): 1}

    def test_nothing_is_counted_before_it_is_durable(self, observed: ObservedGroups) -> None:
        observed.world.offsets.commit({"foo-0": 1})
        assert (observed.non_zero("creations_total"), observed.non_zero("groups"), observed.value("offsets")) == (
            {},
            {},
            0,
        )
        observed.world.settle()
        assert (observed.non_zero("creations_total"), observed.value("offsets")) == ({CLASSIC: 1}, 1)


class TestWhyMembersGo:
    def test_it_said_so(self, observed: ObservedGroups) -> None:
        _leader, follower = observed.pair()
        follower.leaves()
        assert observed.non_zero("member_leaves_total") == {("classic", "leave"): 1}

    def test_nothing_was_heard_of_it(self, observed: ObservedGroups) -> None:
        observed.pair()
        observed.world.pass_time(5_000)
        assert observed.non_zero("member_leaves_total") == {("classic", "session"): 2}

    def test_it_did_not_join_again(self, observed: ObservedGroups) -> None:
        leader, follower = (
            observed.world.classic.subscriber(),
            observed.world.classic.subscriber(session_timeout_ms=20_000),
        )
        observed.world.classic.form(leader, follower, plan={})
        leader.joining()
        observed.world.pass_time(10_000)
        assert observed.non_zero("member_leaves_total") == {("classic", "rebalance"): 1}

    def test_it_did_not_ask_for_its_assignment(self, observed: ObservedGroups) -> None:
        leader, follower = (observed.world.classic.subscriber(session_timeout_ms=20_000) for _ in range(2))
        observed.world.classic.completing(leader, follower)
        leader.syncs({})
        observed.world.pass_time(10_000)
        assert observed.non_zero("member_leaves_total") == {("classic", "sync"): 1}

    def test_a_newer_one_has_its_instance_id(self, observed: ObservedGroups) -> None:
        observed.world.classic.form(observed.world.classic.subscriber("i"), plan={})
        observed.world.classic.subscriber("i").joins()
        assert observed.non_zero("member_leaves_total") == {("classic", "fenced"): 1}
        assert observed.non_zero("member_joins_total") == {CLASSIC: 2}

    def test_there_is_no_room(self, observed: ObservedGroups) -> None:
        leader, follower = observed.pair()
        observed.reconfigured(size_max=1)
        leader.joining()
        follower.join()
        observed.world.settle()
        assert observed.non_zero("member_leaves_total") == {("classic", "size"): 1}

    def test_it_did_not_give_up_its_partitions(self, observed: ObservedGroups) -> None:
        first, second = observed.world.consumers.members("first", "second")
        observed.world.consumers.stable(first)
        second.joins("foo", "bar")
        first.beats()
        observed.world.pass_time(10_000)
        assert observed.non_zero("member_leaves_total") == {("consumer", "rebalance"): 1}

    def test_every_reason_is_there_from_the_start(self) -> None:
        found = GroupNumbers().readings()["txn_group_member_leaves_total"]
        assert {reason for _kind, reason in found} == {reason.value for reason in LeaveReason}


class TestConsumer:
    def test_a_group_on_its_way(self, observed: ObservedGroups) -> None:
        first, second = observed.world.consumers.members("first", "second")
        observed.world.consumers.stable(first)
        assert observed.non_zero("groups") == {("consumer", "Stable"): 1}
        assert observed.non_zero("rebalances_completed_total") == {CONSUMER: 1}
        second.joins("foo", "bar")
        assert observed.non_zero("groups") == {("consumer", "Reconciling"): 1}
        observed.world.pass_time(2_000)
        first.beats()
        first.acknowledges()
        assert observed.non_zero("rebalances_completed_total") == {CONSUMER: 1}
        second.beats()
        assert observed.non_zero("rebalances_completed_total") == {CONSUMER: 2}
        assert observed.histogram("rebalance_seconds", "consumer").total == 2.0
        assert observed.non_zero("rebalances_total") == {CONSUMER: 2}
        assert observed.non_zero("assignment_changes_total") == {("uniform",): 3}
        assert observed.non_zero("creations_total") == {CONSUMER: 1}

    def test_one_end_for_all_that_began_meanwhile(self, observed: ObservedGroups) -> None:
        members = observed.world.consumers.members("first", "second", "third")
        for member in members:
            member.joins("foo", "bar")
            observed.world.pass_time(1_000)
        observed.world.consumers.quiet(*members)
        assert observed.non_zero("rebalances_total") == {CONSUMER: 3}
        assert observed.non_zero("rebalances_completed_total") == {CONSUMER: 2}
        assert observed.histogram("rebalance_seconds", "consumer").total == 2.0

    def test_a_classic_member_comes_back_under_its_static_name(self, observed: ObservedGroups) -> None:
        (modern,) = observed.world.consumers.stable(observed.world.consumers.member())
        old, new = observed.world.classic.subscriber("i"), observed.world.classic.subscriber("i")
        old.joins()
        observed.world.consumers.quiet(modern)
        old.joins()
        assert observed.non_zero("groups") == {("consumer", "Stable"): 1}
        new.joins()
        assert observed.non_zero("member_leaves_total") == {("consumer", "fenced"): 1}
        assert observed.non_zero("groups") == {("consumer", "Stable"): 1}

    def test_the_last_one_goes(self, observed: ObservedGroups) -> None:
        (member,) = observed.world.consumers.stable(observed.world.consumers.member())
        member.leaves()
        assert observed.non_zero("groups") == {("consumer", "Empty"): 1}
        assert observed.non_zero("rebalances_completed_total") == {CONSUMER: 2}

    def test_one_that_a_restart_interrupts_is_never_over(self, observed: ObservedGroups) -> None:
        first, second = observed.world.consumers.members("first", "second")
        observed.world.consumers.stable(first)
        second.joins("foo", "bar")
        observed.world.restart()
        assert observed.non_zero("groups") == {("consumer", "Reconciling"): 1}
        observed.world.consumers.quiet(first, second)
        assert observed.non_zero("groups") == {("consumer", "Stable"): 1}
        assert observed.non_zero("rebalances_completed_total") == {}

    def test_a_group_changes_its_protocol_and_back(self, observed: ObservedGroups) -> None:
        observed.pair()
        modern = observed.world.consumers.member()
        modern.joins("foo")
        assert observed.non_zero("converted_total") == {CONSUMER: 1}
        assert {kind for kind, _state in observed.non_zero("groups")} == {"consumer"}
        modern.leaves()
        assert observed.non_zero("converted_total") == {CONSUMER: 1, CLASSIC: 1}
        assert {kind for kind, _state in observed.non_zero("groups")} == {"classic"}

    def test_how_long_the_worker_took(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(targets, "ON_LOOP_US_MAX", 0)
        worker = HeldWorker(is_held=True)
        observed = ObservedGroups(worker=worker)
        observed.world.consumers.member().joins("foo")
        observed.world.clock.advance(700)
        worker.release()
        observed.world.settle()
        assert observed.histogram("assignment_seconds", "uniform", "worker").total == 0.7

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


class TestStreams:
    def test_a_group_on_its_way(self, observed: ObservedGroups) -> None:
        streams = StreamsGroups(observed.world)
        first, second = streams.members("first", "second")
        streams.runs(first)
        assert observed.non_zero("groups") == {("streams", "Stable"): 1}
        streams.runs(first, second)
        second.leaves()
        first.leaves()
        assert observed.non_zero("groups") == {("streams", "Empty"): 1}
        assert observed.non_zero("creations_total") == {STREAMS: 1}
        assert observed.non_zero("member_joins_total") == {STREAMS: 2}
        assert observed.non_zero("member_leaves_total") == {("streams", "leave"): 2}
        assert observed.non_zero("rebalances_total") == {STREAMS: 4}
        assert observed.non_zero("rebalances_completed_total") == {STREAMS: 3}
        assert observed.value("assignment_changes_total", "sticky") > 0

    def test_a_silent_member_is_counted(self, observed: ObservedGroups) -> None:
        streams = StreamsGroups(observed.world)
        streams.runs(streams.member())
        observed.world.pass_time(46_000)
        assert observed.non_zero("member_leaves_total") == {("streams", "session"): 1}


class TestOffsets:
    def test_plain_ones_and_those_of_transactions(self, observed: ObservedGroups) -> None:
        observed.world.offsets.commits({"foo-0": 1, "foo-1": 1})
        producer = observed.world.offsets.producer()
        producer.commits({"foo-1": 2, "foo-2": 2, "foo-3": 2})
        observed.world.pass_time(4_000)
        producer.commits({"foo-3": 3})
        observed.world.pass_time(1_000)
        assert observed.non_zero("offset_commits_total") == {("plain",): 2, ("transactional",): 4}
        assert (observed.value("offsets"), observed.value("pending_offsets"), observed.value("open_transactions")) == (
            4,
            3,
            1,
        )
        assert observed.value("oldest_pending_offset_age_seconds") == 5.0
        producer.ends(COMMIT)
        assert observed.non_zero("offsets_settled_total") == {("commit",): 3}
        assert observed.numbers.markers() == {("commit", "group"): 1, ("abort", "group"): 0}
        assert (observed.value("offsets"), observed.value("pending_offsets"), observed.value("open_transactions")) == (
            4,
            0,
            0,
        )
        assert observed.value("oldest_pending_offset_age_seconds") == 0

    def test_those_of_an_aborted_transaction(self, observed: ObservedGroups) -> None:
        producer = observed.world.offsets.producer()
        producer.commits({"foo-0": 2})
        producer.ends(ABORT)
        assert observed.non_zero("offsets_settled_total") == {("abort",): 1}
        assert (observed.value("offsets"), observed.non_zero("groups")) == (0, {})

    def test_after_a_restart_there_is_what_there_was(self, observed: ObservedGroups) -> None:
        observed.world.offsets.commits({"foo-0": 1})
        observed.world.offsets.producer().commits({"foo-1": 2})
        observed.world.restart()
        assert (observed.value("offsets"), observed.value("pending_offsets"), observed.value("open_transactions")) == (
            2,
            1,
            1,
        )
        assert observed.non_zero("groups") == {("classic", "Empty"): 1}
        assert observed.non_zero("creations_total") == {}

    def test_a_clock_that_was_set_back_gives_no_negative_age(self, observed: ObservedGroups) -> None:
        observed.world.offsets.producer().commits({"foo-1": 2})
        observed.world.clock.step_wall(-3_600_000)
        assert observed.value("oldest_pending_offset_age_seconds") == 0

    def test_a_group_that_is_forgotten_and_one_that_is_deleted(self, observed: ObservedGroups) -> None:
        observed.world.offsets.commits({"foo-0": 1, "foo-1": 1}, group_id="old")
        observed.world.pass_time(WEEK_MS)
        observed.world.offsets.commits({"foo-0": 1}, group_id="unwanted")
        observed.world.pass_time(3_600_000)
        assert observed.value("offset_expirations_total") == 2
        observed.world.groups.delete("unwanted")
        assert observed.value("offset_deletions_total") == 1
        assert observed.non_zero("deletions_total") == {("classic", "expired"): 1, ("classic", "deleted"): 1}
        assert observed.non_zero("groups") == {}

    def test_a_group_that_goes_with_the_last_of_its_offsets(self, observed: ObservedGroups) -> None:
        observed.world.offsets.commits({"foo-0": 1, "foo-1": 1}, group_id="emptied")
        observed.world.offsets.deletes("foo-0", group_id="emptied")
        assert observed.non_zero("deletions_total") == {}
        observed.world.offsets.deletes("foo-1", group_id="emptied")
        assert observed.non_zero("deletions_total") == {("classic", "deleted"): 1}
        observed.world.offsets.commits({"zar-0": 1}, group_id="of zar alone")
        observed.world.delete_topic("zar")
        observed.world.settle()
        assert observed.non_zero("deletions_total") == {("classic", "deleted"): 1, ("classic", "expired"): 1}
        assert observed.non_zero("groups") == {}

    def test_a_shard_that_leaves_takes_its_groups_along(self, observed: ObservedGroups) -> None:
        observed.world.offsets.commits({"foo-0": 1})
        observed.world.unload("group:g")
        assert (observed.value("offsets"), observed.non_zero("groups")) == (0, {})
        observed.world.restart()


def test_every_state_of_every_kind_is_there_from_the_start(observed: ObservedGroups) -> None:
    found = observed.readings()["txn_group_groups"]
    assert set(found) == {(kind.value, state) for kind, states in STATES.items() for state in states}
