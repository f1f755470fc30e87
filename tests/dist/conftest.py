"""What is published, built once per run, and empty environments that it is installed into as a user would."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from scripts.dist import build
from tests.tidy.test_requirements import pins

INSTALL_SECONDS_MAX = 600
"""For an installation that hangs: packages come over a network."""


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the source archive and the wheel."""
    target = tmp_path_factory.mktemp("dist")
    build(target)
    return target


@pytest.fixture(scope="session")
def install(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return the folder of programs of a new environment that has the wheel with these extras, and nothing else.

    Versions are those of the lock, so that a new release of a dependency does not fail an old commit.
    """
    (wheel,) = built.glob("*.whl")

    def into_an_empty_environment(extras: str = "") -> Path:
        directory = tmp_path_factory.mktemp("installed")
        programs = directory / "venv" / "bin"
        chosen = directory / "constraints.txt"
        chosen.write_text("".join(f"{name}=={version}\n" for name, version in pins("dev.txt").items()))
        run([sys.executable, "-m", "venv", str(directory / "venv")])
        quiet = ["--quiet", "--disable-pip-version-check", "--no-input", "--only-binary", ":all:"]
        run([str(programs / "python"), "-m", "pip", "install", *quiet, "-c", str(chosen), f"{wheel}{extras}"])
        return programs

    return into_an_empty_environment


def run(command: list[str]) -> None:
    """Run a step of an installation; what it said is in the failure."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS_MAX, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
