"""Directories that the user of a command may not enter: refused in words, never reported as a defect of txnctl."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from coordinator_server.exits import ExitStatus
from tests.harness.patience import DEADLINE_SECONDS
from tests.harness.rights import as_user
from tests.harness.server_process import ROOT

pytestmark = pytest.mark.slow


@pytest.fixture
def closed(tmp_path: Path) -> Iterator[Path]:
    """A directory without the right to list it."""
    directory = tmp_path / "closed"
    directory.mkdir(mode=0)
    yield directory
    directory.chmod(0o700)


def told(closed: Path, *words: str | Path) -> tuple[int, str, str]:
    """Status, stdout and stderr of a command for which rights count."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TXN")}
    done = subprocess.run(
        [*as_user(closed), sys.executable, "-m", "txnctl", *words],
        env=environment | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'proto'}"},
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def test_doctor_finds_that_the_directory_cannot_be_made(closed: Path) -> None:
    status, findings, _ = told(closed, "doctor", "--data-dir", closed / "data", "-o", "json")
    (finding,) = [each for each in json.loads(findings) if each["subject"] == "data directory"]
    assert status == ExitStatus.PROBLEM
    assert (finding["verdict"], finding["found"]) == ("problem", f"{closed} cannot be written by this user")
    assert "write access" in finding["advice"]


@pytest.mark.parametrize(
    "words", [("store", "verify"), pytest.param(("log", "dump", "t", "--data-dir"), marks=pytest.mark.long)]
)
def test_a_store_that_may_not_be_looked_at_is_refused(closed: Path, words: tuple[str, ...]) -> None:
    directory = closed / "data"
    status, nothing, said = told(closed, *words, directory)
    assert (status, nothing) == (ExitStatus.STORE_REFUSED, "")
    reason = "cannot be looked at (Permission denied); run this as the user that runs the server"
    assert said == f"txnctl: {directory} {reason}\n"
