"""Runs seeds until its time is used up, and shows that the net holds: every mutant is caught.

A failing seed is run again with `pytest tests/simulation --seed N`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.rocks_shelf import RocksShelf
from tests.simulation.auditor import Auditor
from tests.simulation.catching import catch, run
from tests.simulation.mutant import Mutant
from tests.simulation.mutants import CANARIES, MUTANTS, SPECIFIED
from tests.simulation.options import Options
from tests.simulation.simulation import Simulation
from tests.simulation.told import Violation

FAST_SEEDS = 50
SLOW_SEEDS = 1_500
SLOW_CHUNKS = 10


def seeds_to_run(request: pytest.FixtureRequest, seeds: range) -> list[int]:
    wanted: int | None = request.config.getoption("--seed")
    return list(seeds) if wanted is None else [wanted]


def test_storm_and_calm(request: pytest.FixtureRequest) -> None:
    seeds = seeds_to_run(request, range(FAST_SEEDS))
    torn_vectors = sum(run(Options.of(seed)).snapshots.torn_vectors() for seed in seeds)
    # Where no snapshot and no delta tears, vectors of last stable offsets do.
    assert torn_vectors or len(seeds) < FAST_SEEDS


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(SLOW_CHUNKS))
def test_many_storms(chunk: int) -> None:
    size = SLOW_SEEDS // SLOW_CHUNKS
    first = FAST_SEEDS + chunk * size
    for seed in range(first, first + size):
        run(Options.of(seed))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_storm_on_rocksdb(seed: int, tmp_path: Path) -> None:
    shelf = RocksShelf(tmp_path / "store")
    try:
        Auditor(Simulation(Options.of(seed), shelf).run()).check()
    finally:
        shelf.close()


def test_a_seed_says_everything() -> None:
    """The same seed tells the same story."""
    histories = [Simulation(Options.of(7)).run() for _ in range(2)]
    assert histories[0] == histories[1]


@pytest.mark.parametrize("canary", CANARIES, ids=lambda mutant: mutant.name)
def test_the_auditor_catches_the_canary(canary: Mutant) -> None:
    assert isinstance(catch(canary).finding, Violation)


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_mutant_is_caught(mutant: Mutant) -> None:
    catch(mutant)


def test_the_eight_of_the_specification_are_there() -> None:
    assert len(SPECIFIED) == 8
    assert all(mutant in MUTANTS for mutant in SPECIFIED)
