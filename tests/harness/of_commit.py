"""Chooses by the commit: from which seed on storms are tried, and which tenth of the long tests runs.

A commit tries the same twice, the next commit tries others. pytest prints at its beginning of which commit it is, and
`--commit HASH` repeats what a run of another commit tried. Changes that are not committed change nothing here.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

import pytest

from coordinator_runtime.running_version import CommitUnknown, commit_of

TENTHS: Final = 10
UNKNOWN: Final = "0" * 40
"""Stands for the commit in a tree that does not say which one it is of."""

_ROOT: Final = Path(__file__).resolve().parent.parent.parent
_SEEDS: Final = 10**6


def commit_here() -> str:
    """Return the hash of the commit of this tree."""
    try:
        return commit_of(_ROOT, ("LICENSE",)).hash
    except CommitUnknown:
        return UNKNOWN


def first_seed(commit: str) -> int:
    """Return the seed from which on tests of this commit count theirs."""
    return _number(commit) % _SEEDS


def seeds(config: pytest.Config, count: int, *, behind: int = 0) -> list[int]:
    """Return the seeds to try: so many from the first one of the commit on, behind those that others try; or the one
    that `--seed` names."""
    wanted: int | None = config.getoption("--seed")
    if wanted is not None:
        return [wanted]
    first = first_seed(config.getoption("--commit")) + behind
    return list(range(first, first + count))


def tenth_in_turn(commit: str) -> int:
    """Return which tenth of the long tests is that of this commit."""
    return _number(f"tenth {commit}") % TENTHS


def tenth_of(item: pytest.Item) -> int:
    """Return the tenth that a test is in. The word in front makes tenths that take about as long as each other."""
    return _number(f"long {unit_of(item)}") % TENTHS


def unit_of(item: pytest.Item) -> str:
    """Return what is in one tenth with the test: its module, where tests share something that takes long to make; else
    each case is by itself."""
    is_shared = shares_a_fixture(item) or item.get_closest_marker("xdist_group") is not None
    return item.nodeid.partition("::")[0] if is_shared else item.nodeid


def shares_a_fixture(item: pytest.Item) -> bool:
    """Return whether the test uses a fixture that is made once for its module."""
    if not isinstance(item, pytest.Function):
        return False
    made = (definitions[-1] for definitions in item._fixtureinfo.name2fixturedefs.values())
    return any(each.scope == "module" for each in made)


def _number(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
