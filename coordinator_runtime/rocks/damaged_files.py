"""Sorted files in which damage was met, so that RocksDB leaves them alone.

A damaged block is its reader's business, until a compaction reads it: RocksDB then takes no writes any more, the
process ends, and every start after that meets the same block again. So the family of such a file is not compacted from
the moment on that damage is known, by a reader or by the write that failed; a small file beside the store keeps that
over restarts. What it costs: reads look into more and more files, and the room of deleted topics does not come back,
until the directory is restored from a backup or the file is gone with its topics.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from coordinator_runtime.store import Family
from coordinator_runtime.store_directory import StoreDirectory

_FILE: Final = re.compile(r"\b\d+\.sst\b")
_NOTE: Final = re.compile(r"^(\d+\.sst) (\S+)$", re.MULTILINE)
_ALL: Final = "*"
"""Stands for the family where nobody knows which one it is."""


class DamagedFiles:
    """Names of damaged files that are still there, each with the family it belongs to. Any thread."""

    def __init__(self, directory: StoreDirectory) -> None:
        self._directory = directory
        self._lock = threading.Lock()
        self._families: dict[str, str] = {}
        with suppress(FileNotFoundError):
            # A line that is damaged itself is left out: its file is noted again when somebody meets it.
            noted = directory.damaged_files_path.read_text(errors="replace")
            for name, family in _NOTE.findall(noted):
                if (directory.store_path / name).exists():
                    self._families[name] = family

    @property
    def names(self) -> Sequence[str]:
        return sorted(self._families)

    def spares(self, family: Family) -> bool:
        """Whether this family must not be compacted."""
        return not {family.name, _ALL}.isdisjoint(self._families.values())

    def note(self, words: str, family: Family | None) -> bool:
        """Remember the files that an error of RocksDB names; True if one of them is new. `family`: None = not known."""
        with self._lock:
            found = set(_FILE.findall(words)) - self._families.keys()
            if not found:
                return False
            self._families.update(dict.fromkeys(found, _ALL if family is None else family.name))
            # A disk that takes nothing fails the next write too. Until then nothing is compacted all the same.
            with suppress(OSError):
                self._write()
        return True

    def _write(self) -> None:
        path = self._directory.damaged_files_path
        written = path.with_suffix(".new")
        with written.open("w") as file:
            file.writelines(f"{name} {family}\n" for name, family in sorted(self._families.items()))
            file.flush()
            os.fsync(file.fileno())
        written.replace(path)
        self._directory.sync()
