"""What `pip install` brings: the SDK alone works without the server's packages, `[server]` brings `txnctl`, and
`[spark]` what reads and writes with Spark."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.docs.fences import programs
from tests.tidy.tree import project

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("dist")]

README = "README.md"
DEFAULT_ENDPOINT = "127.0.0.1:7070"
PROGRAMS = programs(README)
"""With the SDK, with stubs, as a group, and the one with Spark that reads what they wrote; then others with Spark."""


def clean() -> dict[str, str]:
    """The environment without what would lead a program to this checkout, or to another Python's packages."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("TXN_", "PYTHON", "PYSPARK"))}


@contextmanager
def running_server(programs: Path) -> Iterator[str]:
    """HOST:PORT of `txnctl dev` of an installed environment, as the README starts it."""
    command = [str(programs / "txnctl"), "dev", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=clean(), cwd="/") as process:
        assert process.stdout is not None
        try:
            said = re.search(r"gRPC on (\S+),", process.stdout.readline())
            assert said is not None
            yield said[1]
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()
    assert process.returncode == 0


def run_program(number: int, python: Path, endpoint: str, directory: Path) -> str:
    """Run a program of the README, and compare what it prints with what is promised there. Returns its complaints."""
    block, promised = PROGRAMS[number]
    command = [python, "-c", block.text.replace(DEFAULT_ENDPOINT, endpoint)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=directory, env=clean(), check=False)
    assert (done.returncode, done.stdout) == (0, promised), f"README.md:{block.line}\n{done.stderr}"
    return done.stderr


def test_the_quick_start_runs_with_the_sdk_alone_against_an_installed_server(
    sdk: Path, server: Path, tmp_path: Path
) -> None:
    with running_server(server) as endpoint:
        assert run_program(0, sdk / "python", endpoint, tmp_path) == ""


@pytest.mark.spark
def test_what_the_first_steps_commit_is_read_by_the_spark_that_was_installed(spark: Path, tmp_path: Path) -> None:
    with running_server(spark) as endpoint:
        for number in range(4):
            run_program(number, spark / "python", endpoint, tmp_path)


def test_the_sdk_brings_only_what_it_is_said_to_bring(sdk: Path) -> None:
    listed = subprocess.run([sdk / "python", "-m", "pip", "freeze"], capture_output=True, text=True, check=True)
    installed = {re.split(r" @ |==", line)[0] for line in listed.stdout.splitlines()}
    declared = {re.split(r"[<>=]", line)[0] for line in project()["project"]["dependencies"]}
    # What a dependency of ours needs itself.
    assert installed - {"typing-extensions", "typing_extensions"} == declared | {"txn-coordinator"}


def test_txnctl_without_the_server_says_in_one_line_what_to_install(sdk: Path) -> None:
    done = subprocess.run([sdk / "txnctl", "dev"], capture_output=True, text=True, cwd="/", check=False)
    assert done.returncode == 2
    assert re.fullmatch(
        r"txnctl: the package \w+ is not installed, only the SDK is: pip install 'txn-coordinator\[server\]' "
        r"brings what txnctl and the server need\n",
        done.stderr,
    )


def test_the_wheel_holds_all_packages_their_types_and_the_licence(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    held = set(zipfile.ZipFile(wheel).namelist())
    for package in project()["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]:
        assert f"{package.removeprefix('proto/')}/py.typed" in held
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in held)
    assert not [name for name in held if name.startswith(("tests/", "bench/", "examples/", "scripts/"))]


def test_the_source_archive_builds_the_same_wheel(built: Path, tmp_path: Path) -> None:
    (archive,), (wheel,) = built.glob("*.tar.gz"), built.glob("*.whl")
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel"]
    subprocess.run([*build, "--directory", str(tmp_path)], cwd=source, capture_output=True, check=True)
    (again,) = tmp_path.glob("*.whl")
    assert zipfile.ZipFile(again).namelist() == zipfile.ZipFile(wheel).namelist()
