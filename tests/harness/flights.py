"""The real data of the tests that need it."""

from __future__ import annotations

import os

import pytest

from examples.demo_parts.failures import NoFlights
from examples.demo_parts.flights import open_flights


def require_flights() -> None:
    """Skip the test where the data set is not installed. `make test` and `make demo` install it, and on CI it must be
    there; other ways to run the tests need not have it."""
    try:
        with open_flights():
            return
    except NoFlights as problem:
        if os.environ.get("CI", "").lower() in {"1", "true"}:
            pytest.fail(str(problem), pytrace=False)
        pytest.skip(str(problem))
