"""A server's directory from a backup: every byte is checked while it is copied, and the store begins a new incarnation.

The file RESTORING is made first and removed last, and a directory that has it cannot be opened. So a restore that is
killed leaves a directory that the next one clears, and never a store that looks complete and is not.

The restored store does not go on where the backup ended, but begins another incarnation
(`coordinator_runtime/incarnation.py`). Clients may know numbers that were assigned since the backup.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

from msgspec import Struct

from coordinator_runtime.backups.files import BackupRefused, CopyProgress, copy_file, held, refused_in_words, write_file
from coordinator_runtime.backups.manifest import Manifest, read_manifest
from coordinator_runtime.backups.verification import wrong_names
from coordinator_runtime.clock import Clock
from coordinator_runtime.identity import uuid_text
from coordinator_runtime.incarnation import Incarnation, IncarnationCause, next_beginning_ms
from coordinator_runtime.rocks.opening import Found, inspect, open_store
from coordinator_runtime.rocks.store_directory import StoreDirectory, sync_directory
from coordinator_runtime.store import StoreFailed, StoreRefused

_OF_THE_FILE_SYSTEM: Final = frozenset({"lost+found"})
"""Names in the root of an empty disk."""


class Restored(Struct, frozen=True):
    """Result of a restore."""

    manifest: Manifest
    incarnation: Incarnation
    """Incarnation that the restored store begins."""


def restore(
    backup: Path,
    target: Path,
    *,
    clock: Clock,
    pause: Callable[[int], None],
    store_id: str | None = None,
    progress: CopyProgress | None = None,
) -> Restored:
    """Make the directory of a server from a backup; on disk when this returns.

    It takes up to a second longer, so that no two restores of one backup begin incarnations of the same number.

    `target` is empty or missing, or has the rest of a killed restore. `pause` waits so many milliseconds. `store_id`:
    the id that the backup must have.

    Raises BackupRefused, and any error of `progress`. Then the target is as empty as it was."""
    directory = StoreDirectory(target)
    with (
        refused_in_words(f"{backup} cannot be restored into {target}"),
        held(backup, f"another process restores or removes {backup}"),
    ):
        manifest = _trusted(backup, store_id, clock.wall_ms())
        is_new = not target.exists()
        if is_new:
            target.mkdir(parents=True)
        with held(target, f"another process restores into {target}"):
            _check_empty(directory)
            try:
                _fill(directory, backup, manifest, progress or CopyProgress())
                restored = Restored(manifest, _begin_incarnation(directory, manifest, clock))
                pause(max(0, next_beginning_ms(restored.incarnation) - clock.wall_ms()))
                directory.restoring_path.unlink()
                directory.sync()
            except BaseException:
                _clear(directory)
                if is_new:
                    target.rmdir()
                raise
    return restored


def _trusted(backup: Path, store_id: str | None, now_ms: int) -> Manifest:
    """Return the manifest, if it allows the backup to be restored now. Raises BackupRefused, OSError."""
    manifest = read_manifest(backup)
    if store_id is not None and manifest.store_id != store_id:
        raise BackupRefused(f"{backup} is of the store {manifest.store_id}, and not of {store_id}")
    if now_ms < manifest.created_ms:
        raise BackupRefused(
            f"the clock of this machine is {manifest.created_ms - now_ms} ms behind the moment at which the backup was"
            " made: set it first, because numbers that were given since then are told apart by it"
        )
    wrong = wrong_names(backup, manifest)
    if wrong:
        raise BackupRefused(f"{backup} is not whole: {'; '.join(wrong)}. Use another backup")
    return manifest


def _check_empty(directory: StoreDirectory) -> None:
    """Allow only an empty directory; the rest of a killed restore is removed. Raises BackupRefused, OSError."""
    if directory.restoring_path.exists():
        _clear(directory)
    there = {path.name for path in directory.path.iterdir()} - _OF_THE_FILE_SYSTEM
    if there:
        raise BackupRefused(f"{directory.path} is not empty ({', '.join(sorted(there)[:3])}): name an empty directory")


def _fill(directory: StoreDirectory, backup: Path, manifest: Manifest, progress: CopyProgress) -> None:
    """Copy every file, and check it against the manifest. Raises BackupRefused, OSError."""
    directory.create()
    write_file(directory.restoring_path, f"{manifest.name}\n".encode())
    directory.sync()
    free_bytes = shutil.disk_usage(directory.path).free
    if free_bytes < manifest.size_bytes:
        raise BackupRefused(
            f"there is no room in {directory.path}: {manifest.size_bytes} bytes are needed, {free_bytes} are free"
        )
    progress.total_bytes = manifest.size_bytes
    for file in manifest.files:
        there = directory.path / file.path
        there.parent.mkdir(exist_ok=True)
        if copy_file(backup / file.path, there, progress) != file.sha256 or there.stat().st_size != file.size_bytes:
            raise BackupRefused(
                f"{backup / file.path} is damaged: its checksum is not that in the manifest. Use another backup"
            )
    for path in (directory.store_path, directory.segments_path):
        if path.exists():
            sync_directory(path)


def _begin_incarnation(directory: StoreDirectory, manifest: Manifest, clock: Clock) -> Incarnation:
    """Check that the files are the store of the manifest, and begin its next incarnation. Raises BackupRefused."""
    try:
        inspected = inspect(directory)
        _check_found(inspected.found, manifest)
        if inspected.loss is not None:
            raise BackupRefused(f"the backup is not whole: {inspected.loss}. Use another backup")
        store = open_store(
            directory.path, shard_count=manifest.shard_count, begins=IncarnationCause.RESTORE, wall_ms=clock.wall_ms
        )
        store.close()
    except (StoreRefused, StoreFailed) as refusal:
        raise BackupRefused(f"what was restored cannot be opened: {refusal}") from refusal
    return store.incarnation


def _check_found(found: Found | None, manifest: Manifest) -> None:
    expected = (manifest.store_id, manifest.incarnation, manifest.version, manifest.shard_count)
    is_as_told = found is not None and expected == (
        uuid_text(found.identity.store_id),
        found.identity.incarnation.number,
        found.version,
        found.shard_count,
    )
    if not is_as_told:
        raise BackupRefused(f"the files of {manifest.name} are not the store that its manifest tells of")


def _clear(directory: StoreDirectory) -> None:
    """Remove the restored files; the file that marks them as incomplete goes last."""
    for path in (directory.store_path, directory.segments_path):
        if path.exists():
            shutil.rmtree(path)
    marks = (directory.durable_mark_path, directory.damaged_files_path, directory.lock_path)
    for path in (*marks, directory.restoring_path):
        if path.exists():
            path.unlink()
