"""A part of the suites on a store in a bucket; `pytest --engine slate` runs whole suites there."""

from __future__ import annotations

import pytest

from tests.conformance.groups import test_n_transactional_offsets as offsets
from tests.conformance.transactions import test_c_end_txn as ends
from tests.harness.engines import ENGINE_VARIABLE, SLATE

_SUITES = (ends, offsets)
globals().update({name: test for suite in _SUITES for name, test in vars(suite).items() if name.startswith("test_")})


@pytest.fixture(autouse=True)
def _in_a_bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENGINE_VARIABLE, SLATE)
