"""Owners of a store in a bucket are killed, stopped, ended and cut off under producers of all kinds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.of_commit import first_seed

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.kill]

FAULTS = 4
CUTS = 3


def test_acknowledged_transactions_outlive_their_owners(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    pytest.importorskip("confluent_kafka", reason="the environment is older than the lock")
    from tests.slate.owner_storm import Plan, run

    seed = first_seed(request.config.getoption("--commit"))
    print(f"seed {seed}")
    print(run(tmp_path, Plan(seed=seed, faults=FAULTS, has_weather=True)))


def test_acknowledged_transactions_outlive_cuts_of_networks(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    pytest.importorskip("confluent_kafka", reason="the environment is older than the lock")
    from tests.slate.cuts import why_not
    from tests.slate.owner_storm import Plan, run

    if problem := why_not():
        pytest.skip(problem)
    seed = first_seed(request.config.getoption("--commit"))
    print(f"seed {seed}")
    print(run(tmp_path, Plan(seed=seed, faults=CUTS, has_cuts=True)))
