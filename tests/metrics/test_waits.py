"""Duration and end of the calls that waited behind a transaction that was being completed."""

from __future__ import annotations

import pytest

from coordinator_protocol.marker import Outcome
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import CallContext
from coordinator_runtime.runtime import RuntimeLimits
from coordinator_server.metrics.instruments import Histogram
from coordinator_server.metrics.server import RuntimeNumbers
from tests.harness.inside import WorldOptions
from tests.metrics.observed import TOPIC, ObservedWorld
from txn_coordinator.config import TwoPhase
from txn_coordinator.state import Identity

METHOD = "InitProducerId"


class Waits:
    """A transaction whose PREPARE is durable and whose markers are not, and calls that meet it."""

    def __init__(self, *, parked_calls_max: int = 10) -> None:
        limits = RuntimeLimits(parked_calls_max=parked_calls_max)
        self.world = ObservedWorld(WorldOptions(two_phase=TwoPhase.SPLIT, runtime_limits=limits))
        self.world.create_topic(TOPIC, 1)
        self.numbers = RuntimeNumbers()
        self.world.inside.runtime.parking.on_wait_ended = self.numbers.waited
        self.world.end("a", self.world.opened("a"), Outcome.COMMIT)
        self.world.flush()

    def call(self, deadline_ms: int | None = None) -> Pending[Identity]:
        return self.world.init("a", CallContext(deadline_ms=deadline_ms, method=METHOD))

    def counted(self) -> dict[str, float]:
        """Calls by result."""
        counted: dict[str, float] = {}
        for (method, result), number in self.numbers.readings()["txn_coordinator_concurrent_waits_total"].items():
            assert method == METHOD
            assert not isinstance(number, Histogram)
            counted[result] = number
        return counted

    def seconds(self, result: str) -> float:
        waited = self.numbers.readings()["txn_coordinator_concurrent_wait_seconds"][METHOD, result]
        assert isinstance(waited, Histogram)
        return waited.total


@pytest.fixture
def waits() -> Waits:
    return Waits()


def test_a_call_that_met_nothing_in_its_way_is_not_counted(waits: Waits) -> None:
    waits.world.settle()
    waits.call()
    assert waits.counted() == {}


def test_a_call_is_served_once_the_way_is_free(waits: Waits) -> None:
    waiting = waits.call()
    waits.world.clock.advance(40)
    assert waits.counted() == {}
    waits.world.settle()
    assert waiting.is_settled
    assert (waits.counted(), waits.seconds("served")) == ({"served": 1}, 0.04)


def test_a_call_whose_deadline_comes_first(waits: Waits) -> None:
    waits.call(deadline_ms=waits.world.clock.monotonic_ms() + 100)
    waits.world.tick(100)
    assert (waits.counted(), waits.seconds("expired")) == ({"expired": 1}, 0.1)


def test_a_caller_that_leaves(waits: Waits) -> None:
    waits.call().cancel()
    assert waits.counted() == {"left": 1}


def test_a_call_for_which_there_is_no_room() -> None:
    waits = Waits(parked_calls_max=1)
    waits.call()
    waits.call()
    assert waits.counted() == {"refused": 1}


def test_a_server_that_stops(waits: Waits) -> None:
    waits.call()
    waits.world.inside.runtime.fail(OSError("the disk"))
    assert waits.counted() == {"stopped": 1}


def test_every_call_counts_once_whatever_comes_after(waits: Waits) -> None:
    for _ in range(3):
        waits.call()
    waits.world.settle()
    waits.world.tick(60_000)
    waits.world.settle()
    assert waits.counted() == {"served": 3}
