"""The version of everything in this distribution: a release, or a release and a later commit.

Between releases a build is called `1.0.0.post20261128125500+g4b8adbf3c1`: the newest release, the commit's time in UTC,
and the commit. The time makes builds of later commits newer for pip, which would ignore a `.dev` version beside a
release. It is also known in archives and shallow clones, where commits cannot be counted (PEP 440).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

BASE: Final = "1.0.0"
"""The newest release. Later commits build on it."""

IS_RELEASE: Final = False
"""True in the commit of the release itself, and in no other: the next one sets it back (docs/releasing.md)."""

_HASH_LENGTH: Final = 10


@dataclass(frozen=True, slots=True)
class Commit:
    """The commit that a build is made from."""

    hash: str
    committed_s: int
    """Time of the commit, in Unix seconds."""
    is_changed: bool = False
    """True if a file of the product was changed since, and not committed."""


def version_at(commit: Commit | None, *, base: str = BASE, is_release: bool = IS_RELEASE) -> str:
    """Return the version of a build from a commit, by PEP 440. None = the commit is not known."""
    if commit is None:
        return base if is_release else f"{base}+unknown"
    label = f"g{commit.hash[:_HASH_LENGTH]}{'.changed' * commit.is_changed}"
    if is_release:
        return f"{base}+{label}" if commit.is_changed else base
    return f"{base}.post{datetime.fromtimestamp(commit.committed_s, UTC):%Y%m%d%H%M%S}+{label}"
