"""Whether the directory of a store may be opened, and what it holds; decided before RocksDB may write to it."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rocksdict import Rdict

from coordinator_runtime.durable_mark import DurableMark, read_mark
from coordinator_runtime.rocks.damaged_files import DamagedFiles
from coordinator_runtime.rocks.database import StoreOptions, open_for_reading, open_for_writing
from coordinator_runtime.rocks.own_rows import (
    FORMAT_VERSION_KEY,
    GROUP_VERSION_KEY,
    SHARD_COUNT_KEY,
    number_of,
    stored_number,
)
from coordinator_runtime.rocks.store import ReadOnlyStore, RocksStore
from coordinator_runtime.store import Family, StoreFailed, StoreRefused, StoreUnreadable
from coordinator_runtime.store_directory import DirectoryLock, StoreDirectory, refused_in_words, with_advice

FORMAT_VERSION: Final = 2
"""Grows with every change that an older program would misread. 2: large values lie in segments."""


def open_store(
    path: Path | str, *, shard_count: int, accept_data_loss: bool = False, options: StoreOptions | None = None
) -> RocksStore:
    """Open the store in the directory, or make one there; this process alone has it until `close`.

    Every check runs on a read-only view before RocksDB may write: its recovery drops a damaged log for good, and who
    is refused must still find what there was to rescue.

    Raises StoreRefused: in use, newer format, another shard count, damaged, not to be read or written, on a full disk,
    or (unless `accept_data_loss`) less in it than had been reported durable."""
    options = options or StoreOptions()
    directory = StoreDirectory(Path(path))
    with refused_in_words(directory.path), ExitStack() as undo:
        directory.create()
        lock = DirectoryLock(directory, shared=False)
        undo.callback(lock.release)
        found = _inspect(directory)
        if found is not None and found.shard_count != shard_count:
            raise StoreRefused(
                f"the store in {directory.path} was made with {found.shard_count} shards and cannot be opened with"
                f" {shard_count}, because the number decides where every key lies: start with {found.shard_count}"
            )
        recovered = 0 if found is None else found.version
        loss = _loss(directory, recovered)
        if loss is not None and not accept_data_loss:
            raise StoreRefused(
                f"{loss}. Nothing was changed. Restore a backup, or start with --accept-data-loss to go on with what"
                " is there"
            )
        durable_mark = DurableMark(directory.durable_mark_path)
        undo.callback(durable_mark.close)
        if found is None or loss is not None:
            # Before RocksDB makes or changes anything, so that no store ever stands there without a mark.
            durable_mark.write(recovered)
            directory.sync()
        damaged = DamagedFiles(directory)
        database = open_for_writing(directory, options, damaged)
        _write_down(directory, database, found, shard_count)
        try:
            store = RocksStore(database, lock, durable_mark, directory, options.segments, damaged)
        except StoreUnreadable as damage:
            raise StoreRefused(f"the store in {directory.path} cannot be read: {damage}") from damage
        undo.pop_all()
        return store


def open_read_only(path: Path | str) -> ReadOnlyStore:
    """Open the store of a stopped server without changing it; several tools may at once.

    What the log holds is replayed into memory. Data missing below the durable mark is shown, not refused.

    Raises StoreRefused: in use by a server, no finished store there, newer format, damaged, not to be read."""
    directory = StoreDirectory(Path(path))
    with refused_in_words(directory.path), ExitStack() as undo:
        lock = DirectoryLock(directory, shared=True)
        undo.callback(lock.release)
        if _inspect(directory) is None:
            raise StoreRefused(f"there is no finished store in {directory.path}")
        try:
            store = ReadOnlyStore(open_for_reading(directory, list(Family)), directory, lock)
        except StoreUnreadable as damage:
            raise StoreRefused(f"the store in {directory.path} cannot be read: {damage}") from damage
        undo.pop_all()
        return store


@dataclass(frozen=True, slots=True)
class _Found:
    """What a store says about itself before it is opened."""

    format_version: int
    shard_count: int
    version: int


def _inspect(directory: StoreDirectory) -> _Found | None:
    """Read who made the store; None if there is none, or if its making was cut short before anything was in it.

    Raises StoreRefused: newer format, damaged."""
    if not directory.holds_store():
        return None
    try:
        families = Rdict.list_cf(str(directory.store_path))
    except Exception as error:
        raise StoreRefused(f"the store in {directory.path} cannot be read: {with_advice(error)}") from error
    if Family.META.name not in families:
        return None
    database = open_for_reading(directory, [Family.META])
    try:
        meta = database.get_column_family(Family.META.name)
        numbers = [meta.get(key) for key in (FORMAT_VERSION_KEY, SHARD_COUNT_KEY, GROUP_VERSION_KEY)]
        del meta
    except Exception as error:
        raise StoreRefused(f"the store in {directory.path} cannot be read: {with_advice(error)}") from error
    finally:
        database.close()
    format_version, shard_count, version = (number_of(stored) for stored in numbers)
    if format_version > FORMAT_VERSION:
        raise StoreRefused(
            f"the store in {directory.path} has format {format_version}, this program knows formats up to"
            f" {FORMAT_VERSION}: use the version that wrote it, or a later one"
        )
    return _Found(format_version, shard_count, version) if format_version else None


def _loss(directory: StoreDirectory, recovered: int) -> str | None:
    """What had been durable and is not there, in words, or None."""
    mark_path = directory.durable_mark_path
    if not directory.holds_store() and (not mark_path.exists() or mark_path.stat().st_size == 0):
        # Empty, it was never written: the making of the store was cut short, perhaps by a full disk.
        return None
    try:
        durable = read_mark(mark_path)
    except StoreRefused as error:
        return str(error)
    if recovered >= durable:
        return None
    return (
        f"the store in {directory.path} recovered up to group version {recovered}, but version {durable} had been"
        f" durable: {durable - recovered} groups of acknowledged writes are missing. The end of its log is damaged or"
        " cut off, or these files are an older copy"
    )


def _write_down(directory: StoreDirectory, database: Rdict, found: _Found | None, shard_count: int) -> None:
    """Store what the store is, if that is new."""
    try:
        meta = database.get_column_family(Family.META.name)
        if found is None:
            meta.put(SHARD_COUNT_KEY, stored_number(shard_count))
        if found is None or found.format_version != FORMAT_VERSION:
            # The format says that a store is finished, so it comes last.
            meta.put(FORMAT_VERSION_KEY, stored_number(FORMAT_VERSION))
            database.flush_wal(True)
    except Exception as error:
        raise StoreFailed(f"the store in {directory.path} could not be written: {error}") from error
