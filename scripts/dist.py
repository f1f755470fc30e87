"""Builds the published packages into dist/: source archive and wheel, or with `--native` the compiled transport's.

The wheel of the product has no compiled code and fits every system. The wheel of the compiled transport is built
against Python's stable interface (abi3). So one wheel fits every Python from 3.11 on, but only systems like this one.

Runs in `.venv-dist`, which has only the locked build tool of the product. The build tool of the compiled transport is
in `.venv-native`, and uses cargo.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path
from typing import Final

from coordinator_protocol.version import IS_RELEASE, version_at
from coordinator_runtime.running_version import CommitUnknown, commit_of, running_version
from scripts.native import CRATE, build_wheel, cargo_problem
from scripts.venv import bring_up

ROOT: Final = Path(__file__).resolve().parent.parent
_DYNAMIC: Final = 'dynamic = ["version"]'


def main() -> int:
    """Remove earlier results from the target directory and build. Returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--out", type=Path, default=ROOT / "dist", metavar="DIR", help="where to put it (default: dist)"
    )
    parser.add_argument("--native", action="store_true", help="build the wheel of the compiled transport instead")
    arguments = parser.parse_args()
    # The builds run in other directories: the tree and the crate.
    target: Path = arguments.out.resolve()
    began = time.monotonic()
    try:
        built = build_native(target) if arguments.native else build_product(target)
    except subprocess.CalledProcessError as failed:
        print(f"nothing to publish: {' '.join(map(str, failed.cmd))} failed", file=sys.stderr)
        return failed.returncode
    for path in built:
        print(f"built {path} ({path.stat().st_size / 1e6:.1f} MB)")
    if built:
        say(f"done in {time.monotonic() - began:.0f} s")
    return int(not built)


def build_product(target: Path) -> list[Path]:
    """Print the version to build, and build it. Raises: CalledProcessError."""
    say(f"building the source archive and the wheel of txn-coordinator {running_version()}")
    try:
        if commit_of(ROOT).is_changed:
            say("the product was changed and not committed: builds of other changes have the same version")
    except CommitUnknown as unknown:
        say(f"the commit is not known, so all such builds have the same version: {unknown}")
    return build(target)


def build(target: Path) -> list[Path]:
    """Build the source archive and the wheel with the build tool of this environment. Raises: CalledProcessError."""
    remove(target, "txn_coordinator-*")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "sdist", "--target", "wheel"]
    done = subprocess.run([*command, "--directory", str(target)], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        print(done.stdout, done.stderr, sep="", file=sys.stderr)
        done.check_returncode()
    return sorted(target.glob("txn_coordinator-*"))


def build_native(target: Path) -> list[Path]:
    """Build the wheel of the compiled transport in `.venv-native`, or print why there is none. Raises:
    CalledProcessError."""
    problem = cargo_problem()
    if problem is not None:
        print(f"no wheel of the compiled transport: {problem}", file=sys.stderr)
        return []
    bring_up("native")
    with tempfile.TemporaryDirectory() as staged:
        crate = Path(staged) / CRATE.name
        version = stage(crate)
        say(f"compiling txn-native-transport {version} with the crates of its Cargo.lock: some minutes, the first time")
        remove(target, "txn_native_transport-*")
        build_wheel(target, crate)
    return sorted(target.glob("txn_native_transport-*"))


def stage(crate: Path) -> str:
    """Copy the crate, and give the copy the version of its commit, which a manifest of cargo cannot express."""
    shutil.copytree(CRATE, crate, ignore=shutil.ignore_patterns("target"))
    version = native_version(tomllib.loads((crate / "Cargo.toml").read_text())["package"]["version"])
    project = crate / "pyproject.toml"
    text = project.read_text()
    assert text.count(_DYNAMIC) == 1, f"{project} has no {_DYNAMIC} to replace"
    project.write_text(text.replace(_DYNAMIC, f'version = "{version}"'))
    return version


def native_version(base: str) -> str:
    """Return the version of the wheel, from the crate and the commit.

    A release has the commit, too, because the version of the crate's last release is not recorded."""
    try:
        version = version_at(commit_of(ROOT, [CRATE.name]), base=base, is_release=False)
    except CommitUnknown:
        return version_at(None, base=base, is_release=False)
    return version.partition("+")[0] if IS_RELEASE else version


def remove(target: Path, pattern: str) -> None:
    """Remove results of an earlier build, so that commands with a `*` find one file."""
    for old in target.glob(pattern):
        old.unlink()


def say(step: str) -> None:
    """Print the next step to stderr."""
    print(step, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
