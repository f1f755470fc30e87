"""Builds of other people's code, each made once in a directory named after the digest of its sources."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

ROOT: Final = Path(__file__).resolve().parent.parent.parent
CACHE: Final = ROOT / ".cache" / "kafka-clients"
TOOLCHAINS: Final = Path(__file__).parent / "toolchains"
_BUILD_S_MAX: Final = 1_800


class CannotRunError(Exception):
    """A suite lacks a program, or a build failed. The message says which."""


class Cache(msgspec.Struct, frozen=True):
    """The directory of builds."""

    directory: Path = CACHE

    def once(self, name: str, sources: Sequence[Path], build: Callable[[Path], None]) -> Path:
        """Return the directory of this build, made now if it is missing. An interrupted build is repeated."""
        target = self.directory / f"{name}-{_digest(sources)}"
        finished = target / ".finished"
        if not finished.exists():
            shutil.rmtree(target, ignore_errors=True)
            target.mkdir(parents=True)
            build(target)
            finished.touch()
        return target


def program(name: str) -> str:
    """Return the path of an installed program. Raises: CannotRunError."""
    found = shutil.which(name)
    if found is None:
        raise CannotRunError(f"{name} is not in the search path")
    return found


def build_step(
    command: Sequence[str | Path], folder: Path | None = None, environment: Mapping[str, str] | None = None
) -> None:
    """Run one command of a build. Raises: CannotRunError."""
    words = [str(each) for each in command]
    try:
        done = subprocess.run(
            words,
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=_BUILD_S_MAX,
        )
    except subprocess.TimeoutExpired:
        raise CannotRunError(f"{words[0]} took longer than {_BUILD_S_MAX} s") from None
    if done.returncode:
        said = (done.stdout + done.stderr).strip().splitlines()
        raise CannotRunError(f"{' '.join(words[:4])} failed: {' / '.join(said[-3:])}")


def _digest(sources: Sequence[Path]) -> str:
    content = hashlib.sha256()
    for source in sources:
        for path in sorted([source] if source.is_file() else source.rglob("*")):
            if path.is_file():
                content.update(f"{path.relative_to(source.parent)}\0".encode())
                content.update(path.read_bytes())
    return content.hexdigest()[:12]
