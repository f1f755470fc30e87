"""Every case is held to in every row (tests/harness/combinations.py), in `make test` in one by the commit."""

from __future__ import annotations

import pytest

from tests.harness.combinations import Combination


@pytest.fixture(autouse=True)
def _in_every_row(every_combination: Combination) -> Combination:
    return every_combination
