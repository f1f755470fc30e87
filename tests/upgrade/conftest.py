"""The older build, installed as a user would."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.dist.conftest import built, locked, run
from tests.harness.server_process import ROOT

__all__ = ["built", "locked"]

OLDER_WHEEL: Final = "TXN_OLDER_WHEEL"
"""Names the wheel of the release that is upgraded from. Unset: one built from this tree, so that the drill itself is
tried with every change."""


@pytest.fixture(scope="session")
def older(built: Path, locked: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with the older build and what its server needs."""
    named = os.environ.get(OLDER_WHEEL)
    wheel = Path(named) if named else next(built.glob("*.whl"))
    assert wheel.is_file(), f"{OLDER_WHEEL} names {wheel}, which is no file"
    environment = tmp_path_factory.mktemp("older") / "venv"
    run([sys.executable, "-m", "venv", str(environment)], locked)
    run([str(environment / "bin" / "pip"), "install", f"txn-coordinator[server] @ file://{wheel.resolve()}"], locked)
    python = environment / "bin" / "python"
    where = "import coordinator_server; print(coordinator_server.__file__)"
    # A Spark session of this process leads its workers to this tree.
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    found = subprocess.run(
        [python, "-c", where], capture_output=True, text=True, cwd="/", env=environ, check=True
    ).stdout
    assert str(environment) in found, "it must be the installed build that runs"
    assert str(ROOT) not in found
    return python
