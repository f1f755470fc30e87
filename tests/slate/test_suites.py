"""The suites on a store in a bucket: a part here, and with the long tests each module by `pytest --engine slate`.

Modules run in processes of their own, because the engine is chosen for a whole run.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.conformance.groups import test_n_transactional_offsets as offsets
from tests.conformance.transactions import test_c_end_txn as ends
from tests.harness.engines import ENGINE_VARIABLE, SLATE
from tests.harness.of_commit import seeds
from tests.harness.patience import DEADLINE_SECONDS
from tests.harness.server_process import ROOT
from tests.simulation.catching import run
from tests.simulation.options import Options

_SUITES = (ends, offsets)
globals().update({name: test for suite in _SUITES for name, test in vars(suite).items() if name.startswith("test_")})

TESTS: Final = ROOT / "tests"
IN_LOOP: Final = [
    path.relative_to(TESTS)
    for folder in ("conformance", "groups", "scenarios", "simulation")
    for path in sorted((TESTS / folder).rglob("test_*.py"))
]
"""Modules of worlds and of servers in the loop of the test."""
OF_PROCESSES: Final = [
    Path("server/test_crash_points.py"),
    Path("server/test_groups_after_kill.py"),
    Path("spark/test_sink_crashes.py"),
    Path("spark/test_snapshot_process.py"),
    Path("spark/test_stream_source.py"),
]
"""Modules with servers in processes that are killed, and with Spark."""


@pytest.fixture(autouse=True)
def _in_a_bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENGINE_VARIABLE, SLATE)


def test_a_storm_of_the_simulation_holds_in_a_bucket(request: pytest.FixtureRequest) -> None:
    for seed in seeds(request.config, 1):
        run(Options.of(seed))


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("module", [*IN_LOOP, *OF_PROCESSES], ids=str)
def test_a_suite_holds_in_a_bucket(module: Path, request: pytest.FixtureRequest) -> None:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    options = ["--engine", SLATE, "--commit", request.config.getoption("--commit"), "-m", "not long"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, TESTS / module],
        cwd=ROOT,
        env=inherited,
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    # 5: all tests of the module are long, or of another engine.
    assert done.returncode in (0, 5), done.stdout[-20_000:] + done.stderr[-2_000:]
