"""Counts of sinks: decisions once, and members as long as they are undecided."""

from __future__ import annotations

import pytest

from tests.harness.inside import WorldOptions
from tests.harness.sinks import TIMEOUT_MS
from tests.metrics.observed import ObservedWorld
from txn_coordinator.config import TwoPhase

BATCHES = "txn_sink_batches_total"
JOINS = "txn_sink_joins_total"
MEMBERS = "txn_sink_members"
OLDEST = "txn_sink_oldest_sealed_age_seconds"


def counted(world: ObservedWorld, name: str) -> dict[str, float]:
    """Return the values of a metric that are not zero, by its label."""
    return {label: value for (label,), value in world.non_zero(name).items()}


def oldest(world: ObservedWorld) -> float:
    readings = world.transactions.readings(world.clock.wall_ms())
    return float(readings[OLDEST][()])  # type: ignore[arg-type]  # it is a number


@pytest.fixture(params=list(TwoPhase))
def world(request: pytest.FixtureRequest) -> ObservedWorld:
    world = ObservedWorld(WorldOptions(two_phase=request.param))
    world.create_topic("t", 2)
    return world


def test_a_decision_counts_once_and_its_repetitions_for_themselves(world: ObservedWorld) -> None:
    tasks = world.sinks.written(0, "a"), world.sinks.written(0, "b")
    assert counted(world, MEMBERS) == {"sealed": 2}
    world.sinks.commit(0, *tasks)
    assert counted(world, BATCHES) == {"committed": 1}
    assert counted(world, MEMBERS) == {}
    world.sinks.commit(0, *tasks)
    world.sinks.commit(0, *tasks)
    assert counted(world, BATCHES) == {"committed": 1, "repeated": 2}


def test_tasks_that_replay_a_committed_batch_are_counted_and_make_no_member(world: ObservedWorld) -> None:
    world.sinks.commit(0, world.sinks.written(0, "a"), world.sinks.written(0, "b"))
    assert counted(world, JOINS) == {"member": 2}
    for _task in range(3):
        assert world.sinks.answer(world.sinks.ask_join(0, run_id="run 2")).identity is None
    assert counted(world, JOINS) == {"member": 2, "committed": 3}
    for _attempt in range(2):
        world.sinks.answer(world.sinks.ask_join(1, run_id="run 2", request_id=b"the same"))
    assert counted(world, JOINS) == {"member": 3, "committed": 3}, "a repeated join is the same member"
    assert counted(world, BATCHES) == {"committed": 1}


def test_members_are_open_until_they_are_sealed_and_gone_when_they_are_given_up(world: ObservedWorld) -> None:
    world.sinks.member(0)
    sealed = world.sinks.written(0, "a")
    assert counted(world, MEMBERS) == {"open": 1, "sealed": 1}
    world.sinks.commit(0, sealed)
    assert counted(world, MEMBERS) == {}
    assert counted(world, BATCHES) == {"committed": 1}, "who was not chosen is part of the decision"


def test_an_undecided_batch_is_given_up_once(world: ObservedWorld) -> None:
    world.sinks.written(0, "a")
    world.sinks.member(0)
    assert world.sinks.abort() == 2
    assert world.sinks.abort() == 0
    assert counted(world, BATCHES) == {"given_up": 1}
    world.sinks.written(1, "b")
    world.sinks.member(2)
    assert counted(world, BATCHES) == {"given_up": 2}, "a later batch gives up the one before"
    world.sinks.member(0, run_id="run 2")
    assert counted(world, BATCHES) == {"given_up": 3}, "and so does a newer run"
    world.sinks.settle()
    world.tick(TIMEOUT_MS + 2)
    world.sinks.settle()
    assert counted(world, BATCHES) == {"given_up": 4}
    assert counted(world, MEMBERS) == {}


def test_the_oldest_sealed_member_has_an_age_that_a_restart_keeps(world: ObservedWorld) -> None:
    assert oldest(world) == 0
    task = world.sinks.written(0, "a")
    world.clock.advance(5_000)
    world.sinks.written(0, "b")
    assert 5 <= oldest(world) < 6
    world.crash()
    assert 5 <= oldest(world) < 6
    assert counted(world, MEMBERS) == {"sealed": 2}
    world.sinks.commit(0, task)
    assert oldest(world) == 0
