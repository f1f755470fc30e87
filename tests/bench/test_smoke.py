"""One tiny case with real processes, from the command line to the table."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.load.init_producer_id import DRIVERS

ROOT = Path(__file__).resolve().parent.parent.parent

pytestmark = [pytest.mark.slow, pytest.mark.long]


def test_a_case_runs_by_name_and_leaves_nothing_behind(tmp_path: Path) -> None:
    written, stores = tmp_path / "figures.json", tmp_path / "stores"
    stores.mkdir()
    command = [sys.executable, "-m", "bench", "init_producer_id", "--quick", "--kafka", "none"]
    done = subprocess.run(
        [*command, "--json", str(written), "--dir", str(stores)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "| init_producer_id: new ids, 64 at a time | ours |" in done.stdout
    results = json.loads(written.read_text())["results"]
    assert all(result["median"]["operations"] > 0 for result in results)
    assert len(results) == 2 * len(DRIVERS)
    assert all(run["errors"] == 0 for result in results for run in result["runs"])
    assert list(stores.iterdir()) == []
