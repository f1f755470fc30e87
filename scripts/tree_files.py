"""The maintained files of a tree: those that git tracks, and new ones that it does not ignore.

In a tree without git, such as an archive, the `.gitignore` alone decides. So checks ignore the environments, packages
and data that tools and the commands of README leave in a checkout.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Final

KAFKA_MESSAGES: Final = PurePosixPath("coordinator_server/kafka_front/messages")
"""Folder of the codecs that scripts/kafka_messages writes."""
_COMMENT_OR_EMPTY: Final = re.compile(r"\s*(#.*)?")


@dataclass(frozen=True, slots=True)
class Pattern:
    """One line of `.gitignore`."""

    glob: str
    is_anchored: bool
    """True if the glob is matched with the path from the top, and not with the name alone."""
    is_for_folders: bool

    def matches(self, path: PurePosixPath, *, is_folder: bool) -> bool:
        """Return True if the pattern ignores this path itself. The content of an ignored folder is ignored with it."""
        if self.is_for_folders and not is_folder:
            return False
        if not self.is_anchored:
            return fnmatchcase(path.name, self.glob)
        # A star matches within one name.
        globs = self.glob.split("/")
        return len(globs) == len(path.parts) and all(map(fnmatchcase, path.parts, globs))


def patterns_in(text: str) -> tuple[Pattern, ...]:
    """Read a `.gitignore`. Raises ValueError for unsupported lines: exceptions, `**` and escapes."""
    found = []
    for line in text.splitlines():
        if _COMMENT_OR_EMPTY.fullmatch(line):
            continue
        if line.startswith("!") or "**" in line or "\\" in line:
            raise ValueError(f"scripts/tree_files.py does not understand {line!r} in .gitignore")
        glob = line.rstrip()
        found.append(Pattern(glob.strip("/"), "/" in glob.rstrip("/"), glob.endswith("/")))
    return tuple(found)


def is_ignored(path: PurePosixPath, patterns: Sequence[Pattern], *, is_folder: bool) -> bool:
    """Return True if git would ignore this path, itself or with a folder above it."""
    places = [(path, is_folder), *((folder, True) for folder in path.parents if folder.parts)]
    return any(pattern.matches(place, is_folder=is_dir) for place, is_dir in places for pattern in patterns)


def files_of(root: Path) -> list[PurePosixPath]:
    """Return the maintained files by their path from the root, in order. Files that git tracks but that do not exist
    are left out."""
    is_checkout = (root / ".git").exists() and shutil.which("git") is not None
    found = _listed(root) if is_checkout else _walked(root)
    return sorted(path for path in found if (root / path).is_file())


def _listed(root: Path) -> set[PurePosixPath]:
    # A git hook sets its own repository in the environment.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, cwd=root, capture_output=True, check=False, env=environment)
    if done.returncode:
        raise SystemExit(f"git ls-files failed: {done.stderr.decode().strip()}")
    return {PurePosixPath(name) for name in done.stdout.decode().split("\0") if name}


def _walked(root: Path) -> Iterator[PurePosixPath]:
    rules = root / ".gitignore"
    patterns = patterns_in(rules.read_text()) if rules.is_file() else ()
    for folder, folders, names in os.walk(root):
        here = PurePosixPath(Path(folder).relative_to(root).as_posix())
        folders[:] = [
            name for name in folders if name != ".git" and not is_ignored(here / name, patterns, is_folder=True)
        ]
        yield from (here / name for name in names if not is_ignored(here / name, patterns, is_folder=False))
