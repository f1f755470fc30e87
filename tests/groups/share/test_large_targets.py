"""Targets of share groups that are too large for the loop are computed elsewhere, and count only if their epoch still
stands."""

from __future__ import annotations

import pickle

import pytest

from coordinator_protocol.assignors.values import MemberSpec
from coordinator_runtime.worker import WorkerLost
from group_coordinator.share import computing
from group_coordinator.share.computing import ShareTargetTask, is_large
from tests.harness.consumers import all_of
from tests.harness.share_groups import ShareGroups, share_groups
from tests.harness.workers import HeldWorker


@pytest.fixture(autouse=True)
def _everything_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(computing, "ON_LOOP_US_MAX", 0)


def with_worker() -> tuple[ShareGroups, HeldWorker]:
    worker = HeldWorker(is_held=True)
    return share_groups(topics={"foo": 6, "bar": 2}, worker=worker), worker


def computed(shares: ShareGroups, worker: HeldWorker) -> None:
    worker.release()
    shares.world.settle()


def epochs(shares: ShareGroups) -> tuple[int, int]:
    """Group epoch and assignment epoch."""
    described = shares.describe()
    return described.group_epoch, described.assignment_epoch


def test_the_first_member_waits_with_an_empty_target() -> None:
    shares, worker = with_worker()
    member = shares.member()
    assert member.joins("foo").member_epoch == 1
    assert (member.assigned, epochs(shares)) == (frozenset(), (2, 1))
    waiting = member.waits()
    computed(shares, worker)
    shares.world.pass_time(10)
    assert waiting.result().member_epoch == 2
    assert (member.assigned, epochs(shares)) == (all_of(foo=6), (2, 2))
    shares.world.check_replay()
    shares.world.check_stored()


def test_meanwhile_the_members_keep_what_they_have() -> None:
    shares, worker = with_worker()
    first, second = shares.members("first", "second")
    first.joins("foo")
    computed(shares, worker)
    first.beats()
    assert first.assigned == all_of(foo=6)
    assert second.joins("foo", "bar").member_epoch == 2
    assert second.assigned == frozenset()
    assert not first.beats().HasField("assignment")
    computed(shares, worker)
    second.beats()
    assert second.assigned == all_of(foo=6, bar=2)
    assert not first.beats().HasField("assignment")
    assert first.epoch == second.epoch == 3


def test_a_target_of_an_older_epoch_is_discarded_and_computed_again() -> None:
    shares, worker = with_worker()
    first, second = shares.members("first", "second")
    first.joins("foo")
    second.joins("foo")
    first.subscribes("bar")
    assert len(worker.tasks) == 1, "one computation at a time"
    group_epoch, assignment_epoch = epochs(shares)
    computed(shares, worker)
    assert epochs(shares) == (group_epoch, assignment_epoch), "the late target is not used"
    assert len(worker.tasks) == 1
    computed(shares, worker)
    assert epochs(shares) == (group_epoch, group_epoch)
    first.beats()
    second.beats()
    assert (first.assigned, second.assigned) == (all_of(bar=2), all_of(foo=6))


def test_a_target_with_a_member_that_left_is_discarded() -> None:
    shares, worker = with_worker()
    first, second = shares.members("first", "second")
    first.joins("foo")
    second.joins("foo")
    computed(shares, worker)
    second.leaves()
    computed(shares, worker)
    computed(shares, worker)
    first.beats()
    assert (first.assigned, shares.member_ids()) == (all_of(foo=6), ["first"])
    shares.world.check_replay()


def test_a_target_for_a_group_without_members_is_forgotten() -> None:
    shares, worker = with_worker()
    member = shares.member()
    member.joins("foo")
    member.leaves()
    computed(shares, worker)
    assert (shares.state(), worker.tasks) == ("Empty", [])


def test_when_the_other_process_dies_the_target_is_computed_here() -> None:
    shares, worker = with_worker()
    member = shares.member()
    member.joins("foo")
    worker.die(WorkerLost("it is gone"))
    shares.world.settle()
    member.beats()
    assert member.assigned == all_of(foo=6)


def test_a_heartbeat_after_a_restart_asks_for_the_target_that_was_lost() -> None:
    shares, worker = with_worker()
    member = shares.member()
    member.joins("foo")
    worker.tasks.clear()
    shares.world.crash()
    member.beats()
    assert len(worker.tasks) == 1
    member.beats()
    assert len(worker.tasks) == 1
    computed(shares, worker)
    member.beats()
    assert member.assigned == all_of(foo=6)


def test_what_is_large_grows_with_members_and_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert not is_large(1, 10_000, 1)
    assert not is_large(100, 100, 1)
    assert is_large(1_000, 1_000, 1)
    assert is_large(10_000, 10, 1)
    assert is_large(50, 1_000, 1_000)


def test_a_task_reaches_another_process_as_it_is() -> None:
    members = {
        "a": MemberSpec(topics=frozenset({b"t"}), rack_id="r", owned={b"t": (1,)}),
        "b": MemberSpec(topics=frozenset()),
    }
    task = ShareTargetTask("g", 7, members, {b"t": (0, 1, 3)})
    assert pickle.loads(pickle.dumps(task)) == task
