"""Owners of a store in a bucket are killed, stopped and ended under producers of librdkafka and of the SDK."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.of_commit import first_seed

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.kill]

FAULTS = 4


def test_acknowledged_transactions_outlive_their_owners(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    pytest.importorskip("confluent_kafka", reason="the environment is older than the lock")
    from tests.slate.owner_storm import run

    seed = first_seed(request.config.getoption("--commit"))
    print(f"seed {seed}")
    run(tmp_path, seed, FAULTS)
