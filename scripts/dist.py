"""Builds what is published, into dist/: the source archive and the wheel, and where cargo is, the compiled transport's.

The wheel of the product holds no compiled code and fits every system. That of the compiled transport is built
against Python's stable interface (abi3), so one fits every Python from 3.11 on, but only systems like this one.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from scripts.native import build_wheel, cargo_problem
from scripts.venv import bring_up

ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    """Empty the target directory of earlier results and build; the exit status says whether that worked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--out", type=Path, default=ROOT / "dist", metavar="DIR", help="where to put it (default: dist)"
    )
    parser.add_argument("--without-native", action="store_true", help="leave the compiled transport out")
    arguments = parser.parse_args()
    target: Path = arguments.out
    for old in [*target.glob("txn_coordinator-*"), *target.glob("txn_native_transport-*")]:
        old.unlink()
    try:
        build(target)
        if not arguments.without_native:
            build_native(target)
    except subprocess.CalledProcessError as failed:
        print(f"nothing to publish: {' '.join(map(str, failed.cmd))} failed", file=sys.stderr)
        return failed.returncode
    for path in sorted(target.iterdir()):
        print(f"built {path}")
    return 0


def build(target: Path) -> None:
    """Build the source archive and the wheel with the locked build tools."""
    hatchling = [sys.executable, "-m", "hatchling", "build", "--target", "sdist", "--target", "wheel"]
    done = subprocess.run(
        [*hatchling, "--directory", str(target)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        print(done.stdout, done.stderr, sep="", file=sys.stderr)
        done.check_returncode()


def build_native(target: Path) -> None:
    """Build the wheel of the compiled transport, or say why there is none."""
    problem = cargo_problem()
    if problem is not None:
        print(f"no wheel of the compiled transport: {problem}", file=sys.stderr)
        return
    bring_up("native")
    build_wheel(target)


if __name__ == "__main__":
    sys.exit(main())
