"""Long random schedules; `tests.conformance.groups.test_k_reconciliation` runs short ones."""

from __future__ import annotations

import pytest

from tests.groups.consumer.schedule import run_schedule


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 140))
def test_a_long_schedule(seed: int) -> None:
    run_schedule(seed, steps=300)
