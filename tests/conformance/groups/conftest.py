"""Every case is held to in every row (tests/harness/combinations.py)."""

from __future__ import annotations

import pytest

from tests.harness.combinations import Combination


@pytest.fixture(autouse=True)
def _in_every_row(every_combination: Combination) -> Combination:
    return every_combination
