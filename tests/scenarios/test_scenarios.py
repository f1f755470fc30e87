"""Plays every transcript beside this file, in the modes that it names."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.transcript import check

SCENARIOS = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenario(path: Path, request: pytest.FixtureRequest) -> None:
    check(path, rewrite=request.config.getoption("--rewrite"))
