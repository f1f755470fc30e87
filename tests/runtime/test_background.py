"""Background work gives way to other threads, and still comes to its end beside programs that never rest."""

from __future__ import annotations

import os

import pytest

from coordinator_runtime import background
from coordinator_runtime.background import ORDINARY_MS, WAIT_MS_MAX, BackgroundPriority
from tests.harness.manual_clock import ManualClock


class Machine:
    """A thread with its clocks, and the priorities that it asked for."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.used_ms = 3_000
        self.asked: list[bool] = []
        self.priority = BackgroundPriority(self.asked.append, self.clock, lambda: self.used_ms)

    def compute(self, used_ms: int, waited_ms: int = 0) -> None:
        with self.priority.applied():
            self.clock.advance(used_ms + waited_ms)
            self.used_ms += used_ms


def test_the_priority_is_changed_once_for_many_computations() -> None:
    machine = Machine()
    for _ in range(3):
        machine.compute(5_000)
    assert machine.asked == [True]


def test_a_long_wait_makes_it_ordinary_for_a_while() -> None:
    machine = Machine()
    machine.compute(100, waited_ms=WAIT_MS_MAX + 1)
    machine.compute(ORDINARY_MS - 1)
    machine.compute(1)
    assert machine.asked == [True, False]
    machine.compute(100)
    assert machine.asked == [True, False, True]


def test_a_long_wait_as_an_ordinary_thread_lets_it_stay_one() -> None:
    machine = Machine()
    machine.compute(100, waited_ms=WAIT_MS_MAX + 1)
    machine.compute(100, waited_ms=ORDINARY_MS)
    machine.compute(100)
    assert machine.asked == [True, False]


def test_short_waits_are_the_price_of_the_low_priority() -> None:
    machine = Machine()
    for _ in range(3):
        machine.compute(100, waited_ms=WAIT_MS_MAX)
    assert machine.asked == [True]


@pytest.mark.skipif(not hasattr(os, "SCHED_IDLE"), reason="this system has no class for idle work")
def test_a_thread_has_its_usual_priority_again() -> None:
    before = os.sched_getscheduler(0)
    background.set_idle(True)
    low = os.sched_getscheduler(0)
    background.set_idle(False)
    assert (low, os.sched_getscheduler(0)) == (os.SCHED_IDLE, before)


def test_a_system_that_forbids_the_change_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbid(*_arguments: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "sched_setscheduler", forbid, raising=False)
    background.set_idle(True)
