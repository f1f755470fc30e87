"""The published packages, built once per run, and empty environments that they are installed into as a user would."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.dist import build
from tests.docs.test_readme import INSTALL, INSTALL_SPARK
from tests.tidy.test_requirements import pins


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the source archive and the wheel."""
    target = tmp_path_factory.mktemp("dist")
    build(target)
    return target


@pytest.fixture(scope="session")
def locked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of an installation: quiet, wheels only, and with the versions of the lock, so that a new release
    of a dependency does not fail an old commit."""
    chosen = tmp_path_factory.mktemp("chosen") / "constraints.txt"
    chosen.write_text("".join(f"{name}=={version}\n" for name, version in pins("dev.txt").items()))
    # A Spark session of this process sets PYTHONPATH to its own packages, which pip would take for installed.
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    wishes = {"CONSTRAINT": str(chosen), "QUIET": "1", "DISABLE_PIP_VERSION_CHECK": "1", "NO_INPUT": "1"}
    return environ | {f"PIP_{name}": value for name, value in {**wishes, "ONLY_BINARY": ":all:"}.items()}


@pytest.fixture(scope="session")
def as_published(built: Path, locked: dict[str, str]) -> dict[str, str]:
    """The same, where the packages of this tree are found, too, wherever the README takes them from."""
    return locked | {"PIP_FIND_LINKS": str(built)}


@pytest.fixture(scope="session")
def sdk(built: Path, locked: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of a new environment with the SDK alone."""
    (wheel,) = built.glob("*.whl")
    environment = tmp_path_factory.mktemp("sdk") / "venv"
    run([sys.executable, "-m", "venv", str(environment)], locked)
    run([str(environment / "bin" / "pip"), "install", str(wheel)], locked)
    return environment / "bin"


@pytest.fixture(scope="session")
def server(built: Path, as_published: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment that was made as the README says, but for building the packages once more."""
    directory = tmp_path_factory.mktemp("server")
    (directory / "dist").symlink_to(built)
    lines = [line for line in INSTALL if line != "make dist"]
    run(["bash", "-c", "\n".join(["set -e", *lines])], as_published, directory)
    return directory / "venv" / "bin"


@pytest.fixture(scope="session")
def spark(server: Path, as_published: dict[str, str]) -> Path:
    """The programs of the same environment, to which Spark was added as the README says."""
    # PySpark is published as source only; there is nothing in it to compile.
    lines = ["set -e", f". {server / 'activate'}", *INSTALL_SPARK]
    run(["bash", "-c", "\n".join(lines)], as_published | {"PIP_NO_BINARY": "pyspark"}, server.parent.parent)
    return server


def run(command: list[str], environment: dict[str, str], directory: Path | None = None) -> None:
    """Run a step of an installation; what it said is in the failure."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=directory)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
