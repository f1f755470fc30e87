"""The example whose workers share a queue: killed at any moment, each job is done, in transactions only once, and each
that cannot be done has one letter."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator

import pytest

from tests.docs.fences import ROOT
from tests.harness import forked
from tests.harness.server_process import ServerProcess

PROGRAM = ROOT / "examples" / "share_workers.py"
JOBS = 200
KILLS = 3

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("workers") / "data") as server:
        yield server


def run(server: ServerProcess, name: str, *options: str) -> list[str]:
    topics = f"--topic {name}-jobs --results {name}-results --letters {name}-dead"
    where = f"--server {server.address} {topics} --group {name} --name {name}"
    command = [sys.executable, str(PROGRAM), *where.split(), "--jobs", str(JOBS), "--kills", str(KILLS), *options]
    done = forked.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_in_transactions_each_job_is_done_exactly_once(shared: ServerProcess) -> None:
    *kills, result = run(shared, "exactly")
    assert len(kills) == KILLS
    assert result == f"{JOBS} jobs, 2 dead letters, 0 missing, 0 done again"


@pytest.mark.long
def test_without_transactions_each_job_is_done_at_least_once(shared: ServerProcess) -> None:
    *kills, result = run(shared, "plainly", "--plain")
    assert len(kills) == KILLS
    assert re.fullmatch(rf"{JOBS} jobs, 2 dead letters, 0 missing, \d+ done again", result)
