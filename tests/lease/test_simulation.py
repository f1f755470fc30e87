"""The simulation of the lease, and the bugs that it must catch."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coordinator_server.settings.store_config import StoreConfig
from tests.lease.mutants import MUTANTS, catch
from tests.lease.simulation import Options, Simulation, options_of
from tests.simulation.mutant import Mutant

DEFAULT_TTL_MS = StoreConfig.model_fields["lease_ttl_ms"].default


@pytest.mark.parametrize("seed", range(8))
def test_at_most_one_server_is_valid_at_any_moment(seed: int) -> None:
    Simulation(options_of(seed)).run()


def test_two_owners_by_force_are_one_again_after_a_time_to_live() -> None:
    assert len(Simulation(replace(options_of(3), overwrites=True)).run().terms) > 10


def test_a_slow_store_ends_no_owner_with_the_default_time() -> None:
    run = Simulation(Options.slow_store(1, ttl_ms=DEFAULT_TTL_MS, hours=1)).run()
    assert set(run.terms) == {1}


@pytest.mark.long
@pytest.mark.parametrize("seed", range(5))
def test_a_slow_store_ends_no_owner_in_a_day(seed: int) -> None:
    run = Simulation(Options.slow_store(seed, ttl_ms=DEFAULT_TTL_MS, hours=24)).run()
    assert set(run.terms) == {1}


@pytest.mark.long
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda each: each.name)
def test_the_simulation_catches_this_bug(mutant: Mutant) -> None:
    assert "hold the lease together" in str(catch(mutant).finding)


@pytest.mark.long
def test_hundreds_of_runs_have_one_valid_server_at_most() -> None:
    for seed in range(100, 300):
        Simulation(options_of(seed)).run()
