"""Runs seeds, of each commit others, and shows that the net holds: every mutant is caught.

A failing seed is run again with `pytest tests/simulation --seed N`: its number is in what the test printed.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.harness.of_commit import seeds
from tests.harness.rocks_shelf import RocksShelf
from tests.simulation.auditor import Auditor
from tests.simulation.catching import catch, run
from tests.simulation.mutant import Mutant
from tests.simulation.mutants import CANARIES, MUTANTS, SPECIFIED
from tests.simulation.options import Options
from tests.simulation.simulation import Simulation
from tests.simulation.told import Violation

FAST_SEEDS = 30
"""Enough for nearly all bugs of `make mutants`, which prints the seed that shows each."""

TEARING_SEED = 4
"""One of the few storms in which a reader without snapshots would see a torn decision."""

SLOW_SEEDS = 1_500
SLOW_CHUNKS = 10


def test_storm_and_calm(request: pytest.FixtureRequest) -> None:
    for seed in seeds(request.config, FAST_SEEDS):
        run(Options.of(seed))


def test_vectors_of_last_stable_offsets_tear_where_no_snapshot_and_no_delta_does() -> None:
    assert run(replace(Options.of(TEARING_SEED), kafka_share=0.0)).snapshots.torn_vectors()


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("chunk", range(SLOW_CHUNKS))
def test_many_storms(chunk: int, request: pytest.FixtureRequest) -> None:
    size = SLOW_SEEDS // SLOW_CHUNKS
    for seed in seeds(request.config, size, behind=FAST_SEEDS + chunk * size):
        run(Options.of(seed))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_storm_on_rocksdb(seed: int, tmp_path: Path) -> None:
    shelf = RocksShelf(tmp_path / "store")
    try:
        Auditor(Simulation(Options.of(seed), shelf).run()).check()
    finally:
        shelf.close()


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("seed", range(6))
def test_storm_in_a_bucket(seed: int) -> None:
    """Every crash is a second server that fences the first."""
    pytest.importorskip("slatedb", reason="the extra objectstore is not installed")
    from tests.harness.bucket_shelf import BucketShelf

    shelf = BucketShelf()
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
@pytest.mark.long
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_mutant_is_caught(mutant: Mutant) -> None:
    catch(mutant)


def test_the_eight_of_the_specification_are_there() -> None:
    assert len(SPECIFIED) == 8
    assert all(mutant in MUTANTS for mutant in SPECIFIED)
