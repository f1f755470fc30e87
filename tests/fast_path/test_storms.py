"""The same storm, with a fast path and without: all clients see the same, whatever crashes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.harness.of_commit import seeds
from tests.harness.shelf import MemoryShelf
from tests.simulation.history import History
from tests.simulation.options import Options
from tests.simulation.simulation import Simulation

FAST_SEEDS = 6
SLOW_SEEDS = 150


def live_through(seed: int) -> None:
    with_lane, without = (_storm(seed, lane=lane) for lane in (True, False))
    assert with_lane == without


def _storm(seed: int, *, lane: bool) -> tuple[History, object]:
    """Return the history of the clients, and the store in the end. Without members of groups: the server draws their
    ids."""
    options = replace(Options.of(seed), lane=lane, transact_share=0.7, version_1_share=0.4, member_weight=0.0)
    print(options)
    simulation = Simulation(options)
    history = simulation.run()
    assert isinstance(simulation.world.shelf, MemoryShelf)
    store = simulation.world.shelf.store
    return history, [(family.values, store.version()) for family in store._families]


def test_storms_are_the_same(request: pytest.FixtureRequest) -> None:
    for seed in seeds(request.config, FAST_SEEDS):
        live_through(seed)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("first", range(0, SLOW_SEEDS, 30))
def test_many_storms_are_the_same(first: int, request: pytest.FixtureRequest) -> None:
    for seed in seeds(request.config, 30, behind=FAST_SEEDS + first):
        live_through(seed)
