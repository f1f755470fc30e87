"""What is counted of sinks: decisions once, and members as long as they are undecided."""

from __future__ import annotations

import pytest

from tests.metrics.observed import ObservedWorld
from tests.sinks.room import TIMEOUT_MS, SinkRoom
from txn_coordinator.config import TwoPhase

BATCHES = "txn_sink_batches_total"
JOINS = "txn_sink_joins_total"
MEMBERS = "txn_sink_members"
OLDEST = "txn_sink_oldest_sealed_age_seconds"


class Observed(SinkRoom):
    """A room whose world counts."""

    def __init__(self, two_phase: TwoPhase) -> None:
        super().__init__(two_phase=two_phase, world_type=ObservedWorld)

    def counted(self, name: str) -> dict[str, float]:
        """What is not zero of a metric, by its label."""
        assert isinstance(self.world, ObservedWorld)
        return {label: value for (label,), value in self.world.non_zero(name).items()}

    def oldest(self) -> float:
        assert isinstance(self.world, ObservedWorld)
        readings = self.world.transactions.readings(self.world.clock.wall_ms())
        return float(readings[OLDEST][()])  # type: ignore[arg-type]  # it is a number


@pytest.fixture(params=list(TwoPhase))
def room(request: pytest.FixtureRequest) -> Observed:
    return Observed(request.param)


def test_a_decision_counts_once_and_its_repetitions_for_themselves(room: Observed) -> None:
    tasks = room.written(0, "a"), room.written(0, "b")
    assert room.counted(MEMBERS) == {"sealed": 2}
    room.commit(0, *tasks)
    assert room.counted(BATCHES) == {"committed": 1}
    assert room.counted(MEMBERS) == {}
    room.commit(0, *tasks)
    room.commit(0, *tasks)
    assert room.counted(BATCHES) == {"committed": 1, "repeated": 2}


def test_tasks_that_replay_a_committed_batch_are_counted_and_make_no_member(room: Observed) -> None:
    room.commit(0, room.written(0, "a"), room.written(0, "b"))
    assert room.counted(JOINS) == {"member": 2}
    for _task in range(3):
        assert room.answer(room.ask_join(0, run_id="run 2")).identity is None
    assert room.counted(JOINS) == {"member": 2, "committed": 3}
    for _attempt in range(2):
        room.answer(room.ask_join(1, run_id="run 2", request_id=b"the same"))
    assert room.counted(JOINS) == {"member": 3, "committed": 3}, "a repeated join is the same member"
    assert room.counted(BATCHES) == {"committed": 1}


def test_members_are_open_until_they_are_sealed_and_gone_when_they_are_given_up(room: Observed) -> None:
    room.member(0)
    sealed = room.written(0, "a")
    assert room.counted(MEMBERS) == {"open": 1, "sealed": 1}
    room.commit(0, sealed)
    assert room.counted(MEMBERS) == {}
    assert room.counted(BATCHES) == {"committed": 1}, "who was not chosen is part of the decision"


def test_what_nobody_decides_on_is_given_up_once(room: Observed) -> None:
    room.written(0, "a")
    room.member(0)
    assert room.abort() == 2
    assert room.abort() == 0
    assert room.counted(BATCHES) == {"given_up": 1}
    room.written(1, "b")
    room.member(2)
    assert room.counted(BATCHES) == {"given_up": 2}, "a later batch gives up the one before"
    room.member(0, run_id="run 2")
    assert room.counted(BATCHES) == {"given_up": 3}, "and so does a newer run"
    room.settle()
    room.world.tick(TIMEOUT_MS + 2)
    room.settle()
    assert room.counted(BATCHES) == {"given_up": 4}
    assert room.counted(MEMBERS) == {}


def test_the_oldest_sealed_member_has_an_age_that_a_restart_keeps(room: Observed) -> None:
    assert room.oldest() == 0
    task = room.written(0, "a")
    room.world.clock.advance(5_000)
    room.written(0, "b")
    assert 5 <= room.oldest() < 6
    room.world.crash()
    assert 5 <= room.oldest() < 6
    assert room.counted(MEMBERS) == {"sealed": 2}
    room.commit(0, task)
    assert room.oldest() == 0
