"""Making a backup of files that do not change: a checkpoint of a serving store, or the directory of a stopped one."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from coordinator_runtime.backups.files import (
    BackupRefused,
    CopyProgress,
    checksum_of,
    copy_file,
    link_if_possible,
    refused_in_words,
)
from coordinator_runtime.backups.manifest import LAYOUT, BackedUpFile, Manifest, write_manifest
from coordinator_runtime.backups.stored import PARTIAL_SUFFIX, backups_in, shelf_held
from coordinator_runtime.identity import uuid_text
from coordinator_runtime.rocks.opening import Found, inspect
from coordinator_runtime.rocks.store_directory import DirectoryLock, StoreDirectory, sync_directory
from coordinator_runtime.store import StoreRefused

_NEVER_CHANGED: Final = frozenset({".sst", ".segment"})
"""Suffixes of files that are written once, under a name that no other file of this incarnation of the store ever
has."""
_NOT_OF_THE_STORE: Final = ("LOG", "LOCK")
"""Name prefixes of RocksDB's files that are for people, or for one process."""


def create_backup_of_stopped(
    data_dir: Path, shelf: Path, *, now_ms: int, is_independent: bool = False, progress: CopyProgress | None = None
) -> Manifest:
    """Make a backup of a directory that no server has open. The directory stays locked meanwhile.

    Otherwise as `create_backup`."""
    directory = StoreDirectory(data_dir)
    try:
        with refused_in_words(f"the directory {data_dir} cannot be used"):
            lock = DirectoryLock(directory, shared=True)
    except StoreRefused as refusal:
        raise BackupRefused(str(refusal)) from refusal
    try:
        return create_backup(directory, shelf, now_ms=now_ms, is_independent=is_independent, progress=progress)
    finally:
        lock.release()


def create_backup(
    source: StoreDirectory,
    shelf: Path,
    *,
    now_ms: int,
    is_independent: bool = False,
    progress: CopyProgress | None = None,
) -> Manifest:
    """Make a backup of the files in `source` in the directory `shelf`; on disk when this returns.

    The files must not change meanwhile. `is_independent`: link no files, only copy.

    Raises BackupRefused; any error of `progress`. Then there is no backup."""
    progress = progress or CopyProgress()
    if shelf.resolve().is_relative_to(source.path.resolve()):
        raise BackupRefused(f"the backup directory {shelf} lies inside the directory of the store: choose another")
    found = _whole_store_in(source)
    name = backup_name(now_ms)
    with shelf_held(shelf), refused_in_words(f"the backup {shelf / name} cannot be made"):
        if (shelf / name).exists():
            raise BackupRefused(f"there is a backup {shelf / name} of the same moment; try again")
        earlier = {} if is_independent else _files_of_newest(shelf, found)
        partial = shelf / (name + PARTIAL_SUFFIX)
        partial.mkdir()
        try:
            files = tuple(_copied(source.path, partial, earlier, progress, is_independent=is_independent))
            manifest = Manifest(
                layout=LAYOUT,
                name=name,
                created_ms=now_ms,
                store_id=uuid_text(found.identity.store_id),
                incarnation=found.identity.incarnation.number,
                version=found.version,
                format_version=found.format_version,
                shard_count=found.shard_count,
                writer=found.identity.writer,
                files=files,
            )
            write_manifest(partial, manifest)
            for directory in (*(path for path in partial.iterdir() if path.is_dir()), partial):
                sync_directory(directory)
            partial.rename(shelf / name)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
        sync_directory(shelf)
    return manifest


def backup_name(created_ms: int) -> str:
    """Return the name of a backup of this moment: in UTC, to the millisecond, so that names sort by age."""
    return datetime.fromtimestamp(created_ms // 1000, UTC).strftime("%Y%m%dT%H%M%S") + f"{created_ms % 1000:03}Z"


def _whole_store_in(source: StoreDirectory) -> Found:
    """Return the properties of the store, after checking that a server could start on it. Raises BackupRefused."""
    try:
        with refused_in_words(f"the store in {source.path} cannot be read"):
            inspected = inspect(source)
    except StoreRefused as refusal:
        raise BackupRefused(str(refusal)) from refusal
    if inspected.found is None or inspected.loss is not None:
        raise BackupRefused(inspected.loss or f"there is no finished store in {source.path}")
    return inspected.found


def _files_of_newest(shelf: Path, found: Found) -> Mapping[str, tuple[Path, BackedUpFile]]:
    """Return the files of the newest backup of the same incarnation of the store, with their paths."""
    for backup in reversed(backups_in(shelf)):
        manifest = backup.manifest
        if manifest is not None and (manifest.store_id, manifest.incarnation) == (
            uuid_text(found.identity.store_id),
            found.identity.incarnation.number,
        ):
            return {file.path: (backup.path / file.path, file) for file in manifest.files}
    return {}


def _files_in(source: Path) -> list[Path]:
    """Return the files that a server needs."""
    directory = StoreDirectory(source)
    files = [path for path in (directory.durable_mark_path, directory.damaged_files_path) if path.exists()]
    files += (path for path in directory.store_path.iterdir() if not path.name.startswith(_NOT_OF_THE_STORE))
    if directory.segments_path.is_dir():
        files += directory.segments_path.iterdir()
    return sorted(files)


def _copied(
    source: Path,
    target: Path,
    earlier: Mapping[str, tuple[Path, BackedUpFile]],
    progress: CopyProgress,
    *,
    is_independent: bool,
) -> Iterator[BackedUpFile]:
    """Copy or link every file. Yields each with the checksum of the file in the target. Raises OSError."""
    files = _files_in(source)
    progress.total_bytes = sum(path.stat().st_size for path in files)
    for path in files:
        name, status = path.relative_to(source).as_posix(), path.stat()
        there = target / name
        there.parent.mkdir(exist_ok=True)
        kept, known = earlier.get(name, (None, None))
        is_lasting = path.suffix in _NEVER_CHANGED and not is_independent
        if known is not None and (known.size_bytes, known.modified_ns) != (status.st_size, status.st_mtime_ns):
            known = None
        if is_lasting and known is not None and kept is not None and link_if_possible(kept, there):
            yield known
            progress.advance(known.size_bytes)
            continue
        if is_lasting and link_if_possible(path, there):
            checksum = checksum_of(there, progress)
        else:
            checksum = copy_file(path, there, progress)
        yield BackedUpFile(name, status.st_size, checksum, status.st_mtime_ns)
