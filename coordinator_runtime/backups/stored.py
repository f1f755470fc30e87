"""The directory of backups: listing, and removing old ones."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from coordinator_runtime.backups.files import BackupRefused, held, refused_in_words
from coordinator_runtime.backups.manifest import Manifest, read_manifest
from coordinator_runtime.rocks.store_directory import sync_directory

PARTIAL_SUFFIX: Final = ".partial"
_LOCK_NAME: Final = ".lock"


@dataclass(frozen=True, slots=True)
class StoredBackup:
    """A finished backup."""

    path: Path
    manifest: Manifest | None
    """Manifest of the backup; None if it cannot be read."""
    problem: str = ""
    """Description of a problem with the backup; empty if none is known."""


def backups_in(directory: Path) -> Sequence[StoredBackup]:
    """Return the finished backups, the oldest first. Only their manifests are read. Raises BackupRefused."""
    with refused_in_words(f"the backup directory {directory} cannot be read"):
        found = sorted(path for path in directory.iterdir() if path.is_dir() and path.suffix != PARTIAL_SUFFIX)
    return [_read(path) for path in found]


def _read(path: Path) -> StoredBackup:
    try:
        return StoredBackup(path, read_manifest(path))
    except BackupRefused as refusal:
        return StoredBackup(path, None, str(refusal))


@contextmanager
def shelf_held(directory: Path) -> Iterator[None]:
    """Make the directory if it is missing, lock it against other processes, and remove backups that were cut short.

    Raises BackupRefused."""
    with refused_in_words(f"the backup directory {directory} cannot be made or used"):
        directory.mkdir(parents=True, exist_ok=True)
        (directory / _LOCK_NAME).touch()
        with held(directory / _LOCK_NAME, f"another process makes or removes backups in {directory}; try again later"):
            for left in directory.glob(f"*{PARTIAL_SUFFIX}"):
                shutil.rmtree(left)
            yield


def prune(directory: Path, keep: int) -> Sequence[StoredBackup]:
    """Remove all but the newest `keep` backups of each store, and all that were cut short. Return the removed ones.

    Backups that cannot be read, or are being restored, stay. Raises BackupRefused."""
    with shelf_held(directory):
        return [backup for backup in prunable(directory, keep) if _removed(backup.path)]


def prunable(directory: Path, keep: int) -> Sequence[StoredBackup]:
    """Return the backups that `prune` would remove now, the oldest first. Raises BackupRefused."""
    older, newer = [], Counter[str]()
    for backup in reversed(backups_in(directory)):
        if backup.manifest is not None:
            newer[backup.manifest.store_id] += 1
            if newer[backup.manifest.store_id] > keep:
                older.append(backup)
    return older[::-1]


def _removed(path: Path) -> bool:
    try:
        with held(path, "it is being restored"):
            # This process may end when half of it is deleted, so from here on it is no backup any more.
            left = path.rename(path.with_name(path.name + PARTIAL_SUFFIX))
    except BackupRefused:
        return False
    sync_directory(path.parent)
    shutil.rmtree(left)
    return True
