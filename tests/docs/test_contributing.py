"""CONTRIBUTING.md names commands that are there."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys

import pytest

from tests.docs.fences import ROOT, commands

COMMANDS = commands("CONTRIBUTING.md")
OF_PYTEST = [command for command in COMMANDS if command.startswith(".venv/bin/python -m pytest ")]


def test_every_command_is_a_make_target_or_one_of_pytest() -> None:
    targets = re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(COMMANDS) - set(OF_PYTEST) <= {f"make {target}" for target in targets}
    assert OF_PYTEST


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("command", OF_PYTEST)
def test_the_tests_that_a_command_names_are_there(command: str) -> None:
    words = shlex.split(command.removeprefix(".venv/bin/python "))
    # pytest ends with 5 where nothing was selected, and with 4 where a name is unknown.
    asked = [sys.executable, *words, "--collect-only", "--quiet", "-p", "no:cacheprovider"]
    done = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
