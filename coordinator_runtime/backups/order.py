"""The request for a backup, as the server hands it to the engine of its store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from coordinator_runtime.backups.files import CopyProgress
from coordinator_runtime.backups.manifest import Manifest


@dataclass(frozen=True, slots=True)
class BackupOrder:
    """A backup that an engine is to make."""

    shelf: Path
    """Directory of the backups."""
    now_ms: int
    is_independent: bool
    """True if it may share no file with the store, or with another backup."""
    progress: CopyProgress
    on_version: Callable[[int], None]
    """Called once the version of the backup is fixed, before it is copied."""


class MakeBackup(Protocol):
    """Makes a backup of an open store, on any thread but the loop's.

    It has everything that was durable when the call began. Raises BackupRefused, StoreFailed, StoreUnreadable; any
    error of the progress. Then there is no backup."""

    def __call__(self, order: BackupOrder) -> Manifest: ...
