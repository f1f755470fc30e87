"""Targets that are too large for the loop are computed elsewhere, and count only if their epoch still stands."""

from __future__ import annotations

import pytest

from coordinator_protocol.assignors.values import Shares
from coordinator_runtime.worker import WorkerLost
from group_coordinator.assignors import ServerAssignor
from group_coordinator.consumer import targets
from group_coordinator.events import TargetFailed
from tests.harness.consumers import Consumer, all_of
from tests.harness.group_world import group_world
from tests.harness.workers import HeldWorker
from tests.harness.world import World

SOON_MS = 10


@pytest.fixture(autouse=True)
def everything_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "ON_LOOP_US_MAX", 0)


def world_and_worker() -> tuple[World, HeldWorker]:
    worker = HeldWorker(is_held=True)
    return group_world(worker=worker), worker


def computed(world: World, worker: HeldWorker, *members: Consumer) -> None:
    worker.release()
    world.settle()
    world.consumers.quiet(*members)


def test_the_first_members_wait_with_an_empty_target() -> None:
    world, worker = world_and_worker()
    member = world.consumers.member()
    assert member.joins("foo").member_epoch == 1
    assert (member.assigned, world.consumers.state(), world.consumers.epoch()) == (frozenset(), "Assigning", 2)
    waiting = member.waits()
    worker.release()
    world.settle()
    world.pass_time(SOON_MS)
    assert waiting.result().member_epoch == 2
    assert (member.assigned, world.consumers.state()) == (all_of(foo=6), "Stable")


def test_meanwhile_the_others_go_on_with_the_old_target() -> None:
    world, worker = world_and_worker()
    first, second = world.consumers.members("first", "second")
    first.joins("foo")
    computed(world, worker, first)
    assert second.joins("foo").member_epoch == 2
    assert not first.beats().HasField("assignment")
    computed(world, worker, first, second)
    assert (len(first.assigned), len(second.assigned), world.consumers.state()) == (3, 3, "Stable")


def test_one_computation_at_a_time_and_a_late_one_is_done_again() -> None:
    world, worker = world_and_worker()
    members = world.consumers.members("first", "second", "third")
    for member in members:
        member.joins("foo")
    assert len(worker.tasks) == 1
    worker.release()
    world.settle()
    assert (worker.done_count, len(worker.tasks), world.consumers.state()) == (1, 1, "Assigning")
    computed(world, worker, *members)
    assert {len(member.assigned) for member in members} == {2}


def test_when_the_other_process_dies_the_target_is_computed_here() -> None:
    world, worker = world_and_worker()
    member = world.consumers.member()
    member.joins("foo")
    worker.die(WorkerLost("it is gone"))
    world.settle()
    member.beats()
    assert (member.assigned, world.consumers.state()) == (all_of(foo=6), "Stable")


def broken(_members: object, _topics: object) -> Shares[bytes]:
    raise RuntimeError("no idea")


def forgetful(_members: object, _topics: object) -> Shares[bytes]:
    return {}


@pytest.mark.parametrize(("assignor", "error"), [(broken, "no idea"), (forgetful, "KeyError")])
def test_an_assignor_that_fails_is_named_and_the_next_heartbeat_tries_again(
    assignor: ServerAssignor, error: str
) -> None:
    worker = HeldWorker()
    world = group_world(worker=worker, assignors={"uniform": assignor}, consumer_assignors=("uniform",))
    events: list[object] = []
    world.inside.runtime.on_event = lambda event, _turn: events.append(event)
    member = world.consumers.member()
    member.joins("foo")
    (failed,) = (event for event in events if isinstance(event, TargetFailed))
    assert (failed.group_id, failed.group_epoch, failed.assignor_name) == ("g", 2, "uniform")
    assert error in failed.error
    member.beats()
    assert (worker.done_count, member.assigned, world.consumers.state()) == (2, frozenset(), "Assigning")


def test_a_computation_for_a_group_that_is_gone_is_forgotten() -> None:
    world, worker = world_and_worker()
    member = world.consumers.member()
    member.joins("foo")
    member.leaves()
    worker.release()
    world.settle()
    assert (world.consumers.state(), world.groups.timers()) == ("Empty", {})


def test_a_restart_computes_what_was_lost() -> None:
    world, worker = world_and_worker()
    member = world.consumers.member()
    member.joins("foo")
    worker.tasks.clear()
    worker.is_held = False
    world.restart()
    world.pass_time(SOON_MS)
    member.beats()
    assert member.assigned == all_of(foo=6)
