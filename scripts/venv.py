"""Makes the project's virtual environments from the lock files and leaves a finished one alone.

Runs on the bare interpreter, before anything is installed, so it uses the standard library only.
An environment is finished when its stamp holds the digest of everything it was made from. The
digest is of contents, not of file times: a fresh checkout of the same locks installs nothing.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCKS = ROOT / "requirements"
OLDEST_PYTHON = (3, 11)
STAMP = "installed-from"


@dataclass(frozen=True, slots=True)
class Environment:
    """One virtual environment: where it lives and what goes into it."""

    directory: str
    lock: str
    holds_project: bool
    """Whether the project itself is installed, editable, beside its dependencies."""
    unlocked_dependencies: str | None = None
    """A second lock whose packages are installed without the dependencies they declare."""


ENVIRONMENTS = {
    "dev": Environment(".venv", "dev.txt", holds_project=True),
    "demo": Environment(".venv", "dev.txt", holds_project=True, unlocked_dependencies="demo.txt"),
    "lowest": Environment(".venv-lowest", "lowest.txt", holds_project=False),
    "generate": Environment(".venv-generate", "generate.txt", holds_project=False),
    "lock": Environment(".venv-lock", "lock.txt", holds_project=False),
}


def main() -> int:
    """Bring the named environments up to date; the exit status says whether that worked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("names", nargs="+", choices=ENVIRONMENTS, metavar="NAME", help=", ".join(ENVIRONMENTS))
    names = parser.parse_args().names
    if sys.version_info < OLDEST_PYTHON:
        found, wanted = ".".join(map(str, sys.version_info[:2])), ".".join(map(str, OLDEST_PYTHON))
        print(
            f"Python {wanted} or newer is needed, {sys.executable} is {found}: install it, or name one with "
            f"`make PYTHON=/path/to/python{wanted} ...`",
            file=sys.stderr,
        )
        return 1
    try:
        for name in names:
            bring_up(name)
    except subprocess.CalledProcessError as failed:
        print(f"could not set up the environment: {' '.join(map(str, failed.cmd))} failed", file=sys.stderr)
        return failed.returncode
    return 0


def bring_up(name: str) -> None:
    """Install what is missing; a finished environment costs one digest."""
    environment = ENVIRONMENTS[name]
    if environment.unlocked_dependencies:
        bring_up("dev")
    directory = ROOT / environment.directory
    stamp = directory / f"{STAMP}-{name}"
    wanted = digest(environment)
    if stamp.is_file() and stamp.read_text() == wanted and runs(directory):
        return
    stamp.unlink(missing_ok=True)
    print(f"setting up {environment.directory} for {name} (only when its lock changes)", file=sys.stderr)
    if not runs(directory):
        subprocess.run([sys.executable, "-m", "venv", "--clear", directory], check=True)
    install(directory, environment)
    # The stamp comes last: an interrupted installation is taken up again, not taken for finished.
    stamp.write_text(wanted)


def install(directory: Path, environment: Environment) -> None:
    """Install the locked packages by hash, then the project, which needs no network any more."""
    if environment.unlocked_dependencies:
        extra = LOCKS / environment.unlocked_dependencies
        # A source archive is built with the build tools of the dev lock: nothing unpinned is fetched for it.
        pip(directory, "--no-deps", "--no-build-isolation", "--require-hashes", "-r", str(extra))
        return
    pip(directory, "--require-hashes", "-r", str(LOCKS / environment.lock))
    if environment.holds_project:
        pip(directory, "--no-deps", "--no-build-isolation", "--no-index", "-e", str(ROOT))


def pip(directory: Path, *arguments: str) -> None:
    """Run pip's install in the environment, quietly unless something is wrong."""
    quiet = ("--quiet", "--disable-pip-version-check", "--no-input")
    subprocess.run([interpreter(directory), "-m", "pip", "install", *quiet, *arguments], check=True)


def digest(environment: Environment) -> str:
    """One line that changes with anything the environment is made from."""
    sources = [LOCKS / (environment.unlocked_dependencies or environment.lock)]
    if environment.holds_project:
        sources.append(ROOT / "pyproject.toml")
    content = hashlib.sha256(f"{ROOT}\0{sys.version}".encode())
    for source in sources:
        content.update(b"\0" + source.read_bytes())
    return content.hexdigest()


def runs(directory: Path) -> bool:
    """Whether the environment has a working interpreter of the version that runs this script."""
    program = interpreter(directory)
    if not program.exists():
        return False
    question = "import sys; print(sys.version)"
    answer = subprocess.run([program, "-c", question], capture_output=True, text=True, check=False)
    return answer.stdout.strip() == sys.version.strip()


def interpreter(directory: Path) -> Path:
    """The environment's own Python."""
    return directory / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


if __name__ == "__main__":
    sys.exit(main())
