"""RocksDB's own files, as far as we look at them without RocksDB.

CURRENT names the MANIFEST, which lists the other files of the store. RocksDB trusts an older MANIFEST, and then shows
some families as they were and others as they are now. So the durable mark records the current MANIFEST and its length.

A damaged block of a sorted file affects only its readers, until a compaction reads it. RocksDB then takes no more
writes, the process ends, and every later start meets the same block again. So the family of such a file is not
compacted once damage is known, from a reader or from the failed write. A small file beside the store keeps this over
restarts. The price: reads look into more and more files, and the space of deleted topics is not freed. It ends when the
directory is restored from a backup, or the file is deleted with its topics.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from coordinator_runtime.rocks.durable_mark import FileGrowth
from coordinator_runtime.rocks.store_directory import StoreDirectory
from coordinator_runtime.store import Family, StoreRefused

_DATA_FILE: Final = re.compile(r"MANIFEST-\d+|\d+\.(sst|log)")
_MANIFEST: Final = re.compile(r"MANIFEST-(\d+)\n?")

RESTORE: Final = (
    "Nothing was changed. Put the file back from a copy, or restore the whole directory from a backup;"
    " --accept-data-loss does not help here, because what is left is not the state of any one moment"
)
"""Advice for missing or damaged files without which the others make no sense."""


def holds_data(store_path: Path) -> bool:
    """Return True if RocksDB ever began to keep data here."""
    return store_path.is_dir() and any(_DATA_FILE.fullmatch(path.name) for path in store_path.iterdir())


def current_manifest(store_path: Path) -> Path | None:
    """Return the MANIFEST that CURRENT names, even if it is missing; None if there is no CURRENT.

    Raises StoreRefused if CURRENT is damaged, OSError if it cannot be read."""
    path = store_path / "CURRENT"
    try:
        named = path.read_bytes().decode("ascii", "replace")
    except FileNotFoundError:
        return None
    if not named.endswith("\n") or _MANIFEST.fullmatch(named) is None:
        raise StoreRefused(f"{path} is damaged: it names no MANIFEST. {RESTORE}")
    return store_path / named.rstrip("\n")


def growth_of(manifest: Path) -> FileGrowth:
    """Return the growth of a MANIFEST, with length 0 if it is missing. Raises OSError."""
    try:
        length = manifest.stat().st_size
    except FileNotFoundError:
        length = 0
    return FileGrowth(manifest_number(manifest), length)


def synced_growth(store_path: Path, last: FileGrowth) -> FileGrowth:
    """Return the growth of the current MANIFEST, with that much of it on disk. Raises OSError.

    RocksDB may be in the middle of a record that it has not synced yet, so the file is synced before its length is
    promised. If nothing has changed since the `last` time, no sync is needed."""
    try:
        return _synced(store_path, last)
    except FileNotFoundError:
        # RocksDB begins a new MANIFEST when one grows large, and deletes the old one.
        return _synced(store_path, last)


def _synced(store_path: Path, last: FileGrowth) -> FileGrowth:
    manifest = current_manifest(store_path)
    if manifest is None:
        raise FileNotFoundError(f"{store_path / 'CURRENT'} is gone while the store is open")
    growth = FileGrowth(manifest_number(manifest), manifest.stat().st_size)
    if growth != last:
        file = os.open(manifest, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(file)
        finally:
            os.close(file)
    return growth


def manifest_number(manifest: Path) -> int:
    """Return the number in the name of a MANIFEST."""
    found = _MANIFEST.fullmatch(manifest.name)
    assert found is not None, "a path that `current_manifest` returned"
    return int(found[1])


def manifest_name(number: int) -> str:
    """Return the name of the MANIFEST with this number."""
    return f"MANIFEST-{number:06}"


def blamed_file(complaint: str) -> str | None:
    """Return the file at fault in an error of RocksDB; None if the error names none.

    RocksDB names logs by their number. For damage that it finds while it reads the MANIFEST, it names the MANIFEST
    too."""
    if found := re.search(r"log number: (\d+)", complaint):
        return f"{int(found[1]):06}.log"
    named = re.findall(r"\d+\.sst|\d+\.log|MANIFEST-\d+|CURRENT", complaint)
    return next((name for name in named if not name.startswith("MANIFEST")), named[0] if named else None)


_SORTED_FILE: Final = re.compile(r"\b\d+\.sst\b")
_NOTE: Final = re.compile(r"^(\d+\.sst) (\S+)$", re.MULTILINE)
_ALL_FAMILIES: Final = "*"
"""Stands for the family if it is unknown."""


class DamagedFiles:
    """Names of damaged files that still exist, each with its family. For any thread."""

    def __init__(self, directory: StoreDirectory) -> None:
        self._directory = directory
        self._lock = threading.Lock()
        self._families: dict[str, str] = {}
        with suppress(FileNotFoundError):
            # A damaged line is left out: its file is noted again at the next read of the damage.
            noted = directory.damaged_files_path.read_text(errors="replace")
            for name, family in _NOTE.findall(noted):
                if (directory.store_path / name).exists():
                    self._families[name] = family

    @property
    def names(self) -> Sequence[str]:
        return sorted(self._families)

    def spares(self, family: Family) -> bool:
        """Return True if this family must not be compacted."""
        return not {family.name, _ALL_FAMILIES}.isdisjoint(self._families.values())

    def note(self, words: str, family: Family | None) -> bool:
        """Record the files that an error of RocksDB names; return True if one of them is new. `family`: None if
        unknown."""
        with self._lock:
            found = set(_SORTED_FILE.findall(words)) - self._families.keys()
            if not found:
                return False
            self._families.update(dict.fromkeys(found, _ALL_FAMILIES if family is None else family.name))
            # A disk that takes nothing fails the next write too. Even so, nothing is compacted until then.
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
