"""The version of the running code. The build asks here too (`tool.hatch.version` in pyproject.toml), so a wheel has the
version of its checkout.

An installed package has the version in its metadata. A source tree is asked again by every process, because it may be
at another commit than when it was installed. Git knows the commit of a checkout, `.git_archival.txt` that of an archive
made by git, and PKG-INFO the version of a source archive.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Final

from coordinator_protocol.version import Commit, version_at

DISTRIBUTION: Final = "txn-coordinator"

PRODUCT: Final = (
    "LICENSE",
    "NOTICE",
    "README.md",
    "coordinator_client",
    "coordinator_core",
    "coordinator_protocol",
    "coordinator_runtime",
    "coordinator_server",
    "group_coordinator",
    "partition_log",
    "proto/coordinator_api",
    "pyproject.toml",
    "pyspark_txnlog",
    "txn_coordinator",
    "txnctl",
)
"""Sources of the wheel. A change elsewhere, for example in a test, does not change the product."""

_ROOT: Final = Path(__file__).resolve().parent.parent
_ARCHIVED: Final = re.compile(r"^commit: (?P<hash>[0-9a-f]{40,64})\ncommitted: (?P<committed_s>\d+)$", re.MULTILINE)
_OF_SOURCE_ARCHIVE: Final = re.compile(r"^Version: (?P<version>\S+)$", re.MULTILINE)


class CommitUnknown(Exception):
    """The commit of a tree is unknown; the message says why."""


@cache
def running_version() -> str:
    """Return the version of this code; it stays as it was at the first call."""
    if (_ROOT / "pyproject.toml").is_file():
        return version_of_tree(_ROOT)
    try:
        return metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return version_at(None)


def version_of_tree(root: Path) -> str:
    """Return the version of a source tree."""
    told = root / "PKG-INFO"
    found = _OF_SOURCE_ARCHIVE.search(told.read_text()) if told.is_file() else None
    if found is not None:
        return found["version"]
    try:
        return version_at(commit_of(root))
    except CommitUnknown:
        return version_at(None)


def commit_of(root: Path, product: Sequence[str] = PRODUCT) -> Commit:
    """Return the commit of a tree. Raises CommitUnknown. `product`: paths in which a change that is not committed
    counts (`Commit.is_changed`)."""
    if (root / ".git").exists():
        commit, committed_s = _git(root, "log", "-1", "--format=%H %ct").split()
        is_changed = bool(_git(root, "status", "--porcelain", "--", *product))
        return Commit(commit, int(committed_s), is_changed)
    archived = root / ".git_archival.txt"
    found = _ARCHIVED.search(archived.read_text()) if archived.is_file() else None
    if found is None:
        raise CommitUnknown("the tree is no checkout of git, and no archive that git made")
    return Commit(found["hash"], int(found["committed_s"]))


def _git(root: Path, *words: str) -> str:
    """Return the output of a git command on this tree. Raises CommitUnknown."""
    # A git hook has the name of its own repository in the environment.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    command = ["git", "--no-optional-locks", *words]
    try:
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False, env=environment)
    except OSError as error:
        raise CommitUnknown(f"git cannot be run: {error.strerror}") from error
    if done.returncode:
        raise CommitUnknown(f"git says: {done.stderr.strip()}")
    return done.stdout
