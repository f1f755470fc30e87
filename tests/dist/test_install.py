"""The effect of `pip install`: the SDK alone works without the server's packages, `[server]` brings `txnctl`, and
`[spark]` the packages that read and write with Spark."""

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
from packaging.version import Version

from coordinator_protocol.version import BASE
from tests.docs.fences import ROOT, programs
from tests.docs.test_readme import PAGES
from tests.tidy.tree import project

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.xdist_group("dist")]

DEFAULT_ENDPOINT = "127.0.0.1:7070"
PROGRAMS = [program for page in PAGES for program in programs(page)]
"""With the SDK, as a group, with stubs, and the one with Spark that reads what they wrote; then others with Spark."""


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
            line = process.stdout.readline()
            assert "no page for the browser" in line, "its packages are an extra of their own"
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
    assert (done.returncode, done.stdout) == (0, promised), f"{block.place}\n{done.stderr}"
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
    # typing-extensions is a dependency of a dependency of ours.
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
    for name in ("LICENSE", "NOTICE"):
        assert any(each.endswith(f".dist-info/licenses/{name}") for each in held)
    assert not [name for name in held if name.startswith(("tests/", "bench/", "examples/", "scripts/"))]


def test_the_source_archive_builds_the_same_wheel(built: Path, tmp_path: Path) -> None:
    (archive,), (wheel,) = built.glob("*.tar.gz"), built.glob("*.whl")
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel"]
    subprocess.run([*build, "--directory", str(tmp_path)], cwd=source, capture_output=True, check=True)
    (again,) = tmp_path.glob("*.whl")
    assert again.name == wheel.name
    assert zipfile.ZipFile(again).namelist() == zipfile.ZipFile(wheel).namelist()


def test_what_is_built_of_a_later_commit_upgrades_what_is_installed(tmp_path: Path) -> None:
    """The README's steps in a clone without tags, and a commit later in an archive of it."""
    if not (ROOT / ".git").exists():
        pytest.skip("an archive has no next commit")
    clone, archive = tmp_path / "clone", tmp_path / "archive"
    git(ROOT, "clone", "--quiet", "--no-tags", "--depth", "1", ROOT.as_uri(), str(clone))
    environment = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    first = installed_from(clone, environment)
    assert first != BASE
    assert installed_from(clone, environment) == first
    (clone / "coordinator_core" / "later.py").write_text('"""Of the next commit."""\n')
    git(clone, "add", ".")
    git(clone, "commit", "--quiet", "--message", "Go on", "--date", "now")
    archive.mkdir()
    git(clone, "archive", "--output", str(tmp_path / "archive.tar"), "HEAD")
    with tarfile.open(tmp_path / "archive.tar") as packed:
        packed.extractall(archive, filter="data")
    second = installed_from(archive, environment)
    assert Version(second) > Version(first)
    assert second.endswith(git(clone, "rev-parse", "HEAD")[:10])
    assert (environment / "lib" / f"python3.{sys.version_info.minor}/site-packages/coordinator_core/later.py").exists()


def installed_from(tree: Path, environment: Path) -> str:
    """Run `make dist` there, upgrade from its packages without dependencies, and return the installed version."""
    made = subprocess.run(
        ["make", "dist", f"PYTHON={sys.executable}"], cwd=tree, env=clean(), capture_output=True, text=True, check=False
    )
    assert made.returncode == 0, made.stderr
    assert re.search(r"building the source archive and the wheel of txn-coordinator \S+", made.stderr)
    assert made.stdout.count("built ") == 2
    assert not (tree / ".venv").exists(), "the environment of the developers is not needed"
    pip = [str(environment / "bin" / "pip"), "install", "--quiet", "--no-deps", "--no-index", "--find-links", "dist"]
    subprocess.run([*pip, "--upgrade", "txn-coordinator"], cwd=tree, check=True, capture_output=True)
    # Isolated: the dependencies, which the version does not need, are not there.
    ask = "from coordinator_runtime.running_version import running_version; print(running_version())"
    python = str(environment / "bin" / "python")
    done = subprocess.run([python, "-I", "-c", ask], capture_output=True, text=True, check=True, cwd="/")
    return done.stdout.strip()


def git(directory: Path, *words: str) -> str:
    """Run git with an author."""
    who = ["-c", "user.name=somebody", "-c", "user.email=somebody@example.org", "-c", "commit.gpgSign=false"]
    done = subprocess.run(["git", *who, *words], cwd=directory, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_installed_server_shows_the_version_of_its_wheel(built: Path, server: Path) -> None:
    (wheel,) = built.glob("*.whl")
    told = subprocess.run([server / "txnctl", "--version"], capture_output=True, text=True, check=True, env=clean())
    assert told.stdout == f"txnctl {wheel.name.split('-')[1]}\n"
