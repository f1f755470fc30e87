"""Checks the compiled transport (`native_transport/`), builds its wheel and installs it into .venv.

Only this script needs cargo: the server and every test run without the wheel.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CRATE = ROOT / "native_transport"
WHEELS = ROOT / ".cache" / "native"
BUILDER = ROOT / ".venv-native" / "bin" / "maturin"
CHECKS: tuple[tuple[str, ...], ...] = (
    ("cargo", "clippy", "--locked", "--all-targets", "--", "-D", "warnings"),
    ("cargo", "test", "--locked", "--", "--quiet"),
)
"""Checks before a wheel is built, clippy first. Cargo prints each crate that it compiles."""


def main() -> int:
    """Build and install, or with `--look` only print what is missing (exit status 1)."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--look", action="store_true", help="build nothing, fail if cargo is missing or too old")
    parser.add_argument("--built", action="store_true", help="install what was built before, if anything was")
    asked = parser.parse_args()
    problem = None if asked.built else cargo_problem()
    if problem is not None:
        print(problem, file=sys.stderr)
        return 1
    if asked.look:
        return 0
    try:
        if not asked.built:
            check()
            build()
        install()
    except subprocess.CalledProcessError as failed:
        print(f"the compiled transport is not installed: {' '.join(map(str, failed.cmd))} failed", file=sys.stderr)
        return failed.returncode
    return 0


def check() -> None:
    """Run clippy and the crate's own tests.

    The results of compiling stay in the crate's folder `target`, so that the next run takes seconds. Raises:
    CalledProcessError."""
    checks = CHECKS
    if not has_clippy():
        print("clippy is not installed beside cargo: the crate is tested, and not checked by it", file=sys.stderr)
        checks = CHECKS[1:]
    for command in checks:
        subprocess.run(command, cwd=CRATE, check=True)


def has_clippy() -> bool:
    """True if cargo has clippy, which some systems package separately."""
    return subprocess.run(["cargo", "clippy", "--version"], capture_output=True, check=False).returncode == 0


def build() -> None:
    """Build the wheel anew; cargo detects changed parts. Raises: CalledProcessError."""
    shutil.rmtree(WHEELS, ignore_errors=True)
    build_wheel(WHEELS)


def install() -> None:
    """Install the built wheels, if any, into the environment of this interpreter. Raises: CalledProcessError."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    for wheel in WHEELS.glob("*.whl"):
        subprocess.run([*pip, "--no-index", "--no-deps", "--force-reinstall", str(wheel)], check=True)
        print(
            f"installed {wheel.name}: servers with transport = auto and sessions of the SDK use it from their next "
            "start on"
        )


def build_wheel(target: Path, crate: Path = CRATE) -> None:
    """Build the wheel of a crate, or of a copy of it, into a directory.

    Cargo uses the locked crates, prints those that it compiles, and keeps the results with the crate. Raises:
    CalledProcessError."""
    build = [str(BUILDER), "build", "--release", "--locked", "--interpreter", sys.executable, "--out", str(target)]
    subprocess.run(build, cwd=crate, check=True, env=os.environ | {"CARGO_TARGET_DIR": str(CRATE / "target")})


def cargo_problem() -> str | None:
    """Return one line with the problem of cargo and advice; None if it can build the crate."""
    oldest = oldest_rust()
    advice = f"install Rust {oldest} or newer; without the compiled transport everything works, too"
    program = shutil.which("cargo")
    if program is None:
        return f"the compiled transport is built by cargo, and none was found: {advice}"
    answer = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    version = rust_version(answer.stdout)
    if version is None:
        return f"{program} does not tell its version: {advice}"
    if version < tuple(int(part) for part in oldest.split(".")):
        return f"{program} is {'.'.join(map(str, version))}: {advice}"
    return None


def oldest_rust() -> str:
    """Return the oldest Rust version that the crate supports."""
    version: str = tomllib.loads((CRATE / "Cargo.toml").read_text())["package"]["rust-version"]
    return version


def rust_version(said: str) -> tuple[int, int] | None:
    """Return the version in the output of `cargo --version`."""
    found = re.match(r"cargo (\d+)\.(\d+)", said)
    return None if found is None else (int(found[1]), int(found[2]))


if __name__ == "__main__":
    sys.exit(main())
