"""Targets that are too large for the loop are computed elsewhere, and count only if their epoch still stands."""

from __future__ import annotations

import pytest

from coordinator_runtime.worker import WorkerLost
from group_coordinator.shard import GroupShard
from group_coordinator.streams import assigning, background, computing
from group_coordinator.streams.computing import TaskPlan
from group_coordinator.streams.group import StreamsGroup
from tests.harness.streams_groups import StreamsGroups, streams_groups, tasks
from tests.harness.workers import HeldWorker


@pytest.fixture(autouse=True)
def everything_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(computing, "TASKS_ON_LOOP_MAX", 0)


def groups_and_worker() -> tuple[StreamsGroups, HeldWorker]:
    worker = HeldWorker(is_held=True)
    return streams_groups(worker=worker, streams_initial_rebalance_delay_ms=0), worker


def test_the_first_members_wait_without_tasks() -> None:
    streams, worker = groups_and_worker()
    member = streams.member()
    assert member.joins().member_epoch == 1
    assert (member.active, streams.state(), streams.epoch()) == (frozenset(), "Assigning", 2)
    waiting = member.waits()
    worker.release()
    streams.world.settle()
    streams.world.pass_time(10)
    assert waiting.result().member_epoch == 2
    assert (member.active, streams.state()) == (tasks("0", *range(6)), "Stable")


def test_a_target_that_comes_too_late_is_computed_again() -> None:
    streams, worker = groups_and_worker()
    members = streams.members("first", "second", "third")
    for member in members:
        member.joins()
    assert len(worker.tasks) == 1
    worker.release()
    streams.world.settle()
    assert (worker.done_count, len(worker.tasks), streams.state()) == (1, 1, "Assigning")
    worker.release()
    streams.world.settle()
    streams.settles(*members)
    assert {len(member.active) for member in members} == {2}


def test_heartbeats_beside_a_computation_do_not_gather_its_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gathering takes the loop a walk over all members, for each heartbeat of a forming group."""
    planned = []

    def plan(shard: GroupShard, group: StreamsGroup) -> TaskPlan:
        planned.append(group.group_id)
        return gathered(shard, group)

    gathered = assigning.task_plan
    for module in (assigning, background):
        monkeypatch.setattr(module, "task_plan", plan)
    streams, worker = groups_and_worker()
    for member in streams.members("first", "second", "third"):
        member.joins()
        member.beats()
    assert len(planned) == len(worker.tasks) == 1


def test_when_the_other_process_dies_the_target_is_computed_here() -> None:
    streams, worker = groups_and_worker()
    member = streams.member()
    member.joins()
    worker.die(WorkerLost("it is gone"))
    streams.world.settle()
    member.beats()
    assert (member.active, streams.state()) == (tasks("0", *range(6)), "Stable")
