"""Resolves the requirement files: every version and every hash, for all supported Pythons and systems.

Runs in its own environment, made from `requirements/lock.txt`. The written files have only names of packages and
hashes, so that they work with any index that the user's pip is configured for.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OLDEST_PYTHON = "3.11"
HEADER = "# Made by `make lock` from {sources}. Change those, not this file.\n"


@dataclass(frozen=True, slots=True)
class Lock:
    """One requirement file and its sources."""

    target: str
    sources: tuple[str, ...]
    options: tuple[str, ...] = ()


LOCKS = (
    Lock("lock.txt", ("requirements/lock.in",)),
    Lock("build.txt", ("requirements/build.in",)),
    Lock(
        "dev.txt",
        ("pyproject.toml",),
        ("--extra", "server", "--extra", "page", "--extra", "objectstore", "--extra", "spark", "--extra", "dev"),
    ),
    # The declared lower bounds are a promise to users. This environment tests them.
    Lock(
        "lowest.txt",
        ("pyproject.toml", "requirements/lowest.in"),
        ("--extra", "server", "--extra", "page", "--resolution", "lowest-direct"),
    ),
    Lock(
        "lowest-spark.txt",
        ("pyproject.toml", "requirements/lowest.in", "requirements/lowest-spark.in"),
        ("--extra", "server", "--extra", "spark", "--resolution", "lowest-direct"),
    ),
    Lock("generate.txt", ("requirements/generate.in",)),
    Lock("native.txt", ("requirements/native.in",)),
    Lock("ops.txt", ("requirements/ops.in",)),
    # Contents of the image of the server, and of the one for Spark jobs (ops/docker/Dockerfile).
    Lock("wheel.txt", ("requirements/wheel.in",)),
    Lock("server.txt", ("pyproject.toml",), ("--extra", "server", "--extra", "objectstore")),
    Lock("spark.txt", ("pyproject.toml",), ("--extra", "server", "--extra", "spark")),
    Lock("demo.txt", ("requirements/demo.in",), ("--no-deps",)),
)


def main() -> int:
    """Write every lock, or only the named ones. Without `--upgrade`, versions that are already chosen stay."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--upgrade", action="store_true", help="take the newest versions that fit")
    parser.add_argument("targets", nargs="*", metavar="FILE", help="files of requirements/ to write (default: all)")
    arguments = parser.parse_args()
    for lock in LOCKS:
        if not arguments.targets or lock.target in arguments.targets:
            resolve(lock, upgrade=arguments.upgrade)
    return 0


def resolve(lock: Lock, *, upgrade: bool) -> None:
    """Write one requirement file with the hashes of all wheels and archives of each package."""
    target = ROOT / "requirements" / lock.target
    # `uv` is beside the interpreter of this script's environment.
    command = [str(Path(sys.executable).parent / "uv"), "pip", "compile", "--quiet", "--universal"]
    command += ["--python-version", OLDEST_PYTHON, "--generate-hashes", "--no-header", "--no-emit-index-url"]
    command += ["--no-emit-find-links", "--no-annotate", *lock.options]
    command += ["--upgrade"] if upgrade else []
    command += ["--output-file", str(target), *lock.sources]
    subprocess.run(command, cwd=ROOT, check=True)
    target.write_text(HEADER.format(sources=" and ".join(lock.sources)) + target.read_text())
    print(f"wrote requirements/{lock.target}")


if __name__ == "__main__":
    sys.exit(main())
