"""Makes the project's virtual environments from the lock files, and leaves up-to-date ones alone.

Runs on the bare interpreter, before anything is installed. So it uses the standard library only, and no syntax that an
old Python would reject before it can print that it is too old. An environment is up to date when its stamp has the
digest of everything that it was made from. The digest covers contents, not file times: a fresh checkout of the same
locks installs nothing.
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


@dataclass(frozen=True)
class Environment:
    """One virtual environment: its directory and its contents."""

    directory: str
    lock: str
    needs: str | None = None
    """Environment in the same directory that must be installed first."""
    options: tuple[str, ...] = ()
    """Options of pip for installing the lock."""
    holds_project: bool = False
    """True if the project itself is installed, editable, beside its dependencies."""


# A source archive is built with the locked build tools, so nothing unlocked is fetched for it.
LOCKED_BUILD = "--no-build-isolation"
ENVIRONMENTS = {
    "build": Environment(".venv", "build.txt"),
    "dev": Environment(".venv", "dev.txt", needs="build", options=(LOCKED_BUILD,), holds_project=True),
    # Only the data set, without the old libraries that it declares.
    "demo": Environment(".venv", "demo.txt", needs="dev", options=(LOCKED_BUILD, "--no-deps")),
    "lowest": Environment(".venv-lowest", "lowest.txt"),
    "lowest-spark": Environment(".venv-lowest-spark", "lowest-spark.txt"),
    "generate": Environment(".venv-generate", "generate.txt"),
    "dist": Environment(".venv-dist", "wheel.txt"),
    "native": Environment(".venv-native", "native.txt"),
    "ops": Environment(".venv-ops", "ops.txt"),
    "lock": Environment(".venv-lock", "lock.txt"),
}


def main() -> int:
    """Bring the named environments up to date. Returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("names", nargs="+", choices=list(ENVIRONMENTS), metavar="NAME", help=", ".join(ENVIRONMENTS))
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
    """Install what is missing. For a finished environment this takes only a digest and the start of its interpreter."""
    environment = ENVIRONMENTS[name]
    if environment.needs:
        bring_up(environment.needs)
    directory = ROOT / environment.directory
    stamp = directory / f"{STAMP}-{name}"
    wanted = digest(environment)
    usable = runs(directory)
    if usable and stamp.is_file() and stamp.read_text() == wanted:
        return
    print(f"setting up {environment.directory} from requirements/{environment.lock}", file=sys.stderr)
    stamp.unlink(missing_ok=True)
    if not usable:
        subprocess.run([sys.executable, "-m", "venv", "--clear", directory], check=True)
    pip(directory, *environment.options, "--require-hashes", "-r", str(LOCKS / environment.lock))
    if environment.holds_project:
        pip(directory, "--no-deps", "--no-build-isolation", "--no-index", "-e", str(ROOT))
    # The stamp comes last, so that an interrupted installation is repeated.
    stamp.write_text(wanted)


def pip(directory: Path, *arguments: str) -> None:
    """Run pip's install in the environment, quietly unless there is an error."""
    quiet = ("--quiet", "--disable-pip-version-check", "--no-input")
    subprocess.run([interpreter(directory), "-m", "pip", "install", *quiet, *arguments], check=True)


def digest(environment: Environment) -> str:
    """Return one line that changes with anything that the environment is made from."""
    content = hashlib.sha256(f"{ROOT}\0{sys.version}\0{environment}".encode())
    content.update((LOCKS / environment.lock).read_bytes())
    if environment.holds_project:
        content.update((ROOT / "pyproject.toml").read_bytes())
    return content.hexdigest()


def runs(directory: Path) -> bool:
    """True if the environment has a working interpreter of the version that runs this script."""
    program = interpreter(directory)
    if not program.exists():
        return False
    question = "import sys; print(sys.version)"
    answer = subprocess.run([program, "-c", question], capture_output=True, text=True, check=False)
    return answer.stdout.strip() == sys.version.strip()


def interpreter(directory: Path) -> Path:
    """Return the path of the environment's own Python."""
    return directory / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


if __name__ == "__main__":
    sys.exit(main())
