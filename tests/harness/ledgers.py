"""Ledgers: committed files that count what was judged, with an entry for each state of the judged code.

An entry is of the commit at which its count began. It stands for every later commit that has the same code, byte for
byte, in the judged folders: a change of a page, of another test or of the version's name lets it stand.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from coordinator_runtime.running_version import PRODUCT, CommitUnknown, commit_of

ROOT: Final = Path(__file__).resolve().parent.parent.parent
PACKAGES: Final = tuple(path for path in PRODUCT if (ROOT / path).is_dir())
"""Folders of the product."""
_VERSION: Final = "coordinator_protocol/version.py"

_MINUTE_S: Final = 60
_HOUR_S: Final = 3_600


def digest_of(folders: Sequence[str], root: Path = ROOT) -> str:
    """Return the digest of all Python code in some folders, as it lies there, but for the name of the version."""
    digest = hashlib.sha256()
    for file in sorted({file for folder in folders for file in (root / folder).rglob("*.py")} - {root / _VERSION}):
        code = file.read_bytes()
        digest.update(f"{file.relative_to(root).as_posix()} {len(code)}\n".encode() + code)
    return digest.hexdigest()


def has_changes(folders: Sequence[str]) -> bool:
    """Return whether code in these folders is not committed, so that it would be counted for a commit without it."""
    try:
        return commit_of(ROOT, folders).is_changed
    except CommitUnknown:
        return False


class LedgerFile:
    """The file of a ledger."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.entries: list[dict[str, Any]] = json.loads(path.read_text()) if path.exists() else []

    def entry(self, judged: str, commit: str) -> dict[str, Any]:
        """Return the entry of the judged code with this digest. A new one is of this commit."""
        for entry in self.entries:
            if entry["judged"] == judged:
                return entry
        self.entries.append({"commit": commit, "judged": judged})
        return self.entries[-1]

    def write(self) -> None:
        """Write the file, whole or not at all."""
        partial = self._path.with_suffix(".part")
        partial.write_text(json.dumps(self.entries, indent=1) + "\n")
        partial.replace(self._path)


def headline(entry: dict[str, Any], judged_here: str) -> str:
    """Return the commit of an entry, and whether the entry stands for the code that lies here."""
    where = "the code here" if entry["judged"] == judged_here else "other code than here"
    return f"{entry['commit'][:8]}, {where}"


def time_left(done: int, missing: int, elapsed_s: float) -> str:
    """Return an estimate of the time that the missing ones take, by that of those that are done."""
    if not done:
        return "time left unknown"
    left_s = round(elapsed_s / done * missing)
    if left_s < _MINUTE_S:
        return f"{left_s} s left"
    if left_s < _HOUR_S:
        return f"{round(left_s / _MINUTE_S)} min left"
    minutes = round(left_s / _MINUTE_S)
    return f"{minutes // 60} h {minutes % 60:02} min left"
