"""`examples/two_phase_postgres.py` with real processes: client and server are killed at every step, and database and
log never differ."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from examples.two_phase_postgres import CRASHED, STEPS
from tests.harness import forked
from tests.harness.server_process import ROOT, ServerProcess

pytestmark = [pytest.mark.slow, pytest.mark.kill, pytest.mark.usefixtures("combination")]

ENABLED = {"TXN_TRANSACTION_TWO_PHASE_COMMIT_ENABLE": "true"}
ENVIRONMENT = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'proto'}"}
DECIDED = {"decided", "committed"}
"""Steps after which the order is to be in both; before, in neither."""

FINISHED_ALONE = {"initialised", "committed"}
"""Steps after which nothing is left to be recovered."""


def run(server: ServerProcess, database: Path, *arguments: str, expected: int = 0) -> list[str]:
    example = ROOT / "examples" / "two_phase_postgres.py"
    command = [sys.executable, str(example), server.address, "--database", str(database), *arguments]
    done = forked.run(command, capture_output=True, text=True, check=False, env=ENVIRONMENT)
    assert done.returncode == expected, done.stdout + done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    "steps",
    [("decided",), pytest.param(tuple(step for step in STEPS if step != "kept"), marks=pytest.mark.long)],
    ids=["decided", "every step"],
)
def test_database_and_log_agree_after_a_crash_at_every_step(tmp_path: Path, steps: tuple[str, ...]) -> None:
    database, kept = tmp_path / "shop.sqlite", 0
    orders: list[int] = []
    with ServerProcess(tmp_path / "data", environment=ENABLED) as server:
        for order, step in enumerate(steps, start=1):
            run(server, database, "--order", str(order), "--crash-at", step, expected=CRASHED)
            server.kill()
            server.start()
            if step not in FINISHED_ALONE:
                # The first recovery crashes too, and is then recovered like anybody else.
                kept += 1
                assert run(server, database, "--crash-at", "kept", expected=CRASHED) == ["crashing: kept"]
                server.kill()
                server.start()
            orders += [order] if step in DECIDED else []
            *_, in_database, in_log = run(server, database)
            assert (in_database, in_log) == (f"database {orders}", f"log {orders}"), step
            # A lost order is ordered again, one that is there is not made twice.
            run(server, database, "--order", str(order))
            orders = sorted({*orders, order})
            *_, in_database, in_log = run(server, database)
            assert (in_database, in_log) == (f"database {orders}", f"log {orders}"), step
    assert kept == len({*steps} - FINISHED_ALONE)


def test_it_says_what_is_missing_where_two_phase_commit_is_off(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server:
        example = ROOT / "examples" / "two_phase_postgres.py"
        command = [sys.executable, str(example), server.address, "--database", str(tmp_path / "shop.sqlite")]
        done = forked.run(command, capture_output=True, text=True, check=False, env=ENVIRONMENT)
    assert done.returncode == 1
    assert "TRANSACTIONAL_ID_AUTHORIZATION_FAILED (53)" in done.stderr
    assert "transaction_two_phase_commit_enable" in done.stderr
