"""Opening the directory of a store: whether it may be, decided before RocksDB may write to it, and in which order."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from rocksdict import Rdict

from coordinator_runtime.durable_mark import DurableMark, Marked
from coordinator_runtime.rocks import own_rows
from coordinator_runtime.rocks.damaged_files import DamagedFiles
from coordinator_runtime.rocks.database import StoreOptions, open_for_reading, open_for_writing
from coordinator_runtime.rocks.inspection import Found, Inspection, inspect
from coordinator_runtime.rocks.own_rows import FORMAT_VERSION_KEY, SHARD_COUNT_KEY, stored_number
from coordinator_runtime.rocks.store import ReadOnlyStore, RocksStore
from coordinator_runtime.segments import named_key, segment_path
from coordinator_runtime.store import Family, StoreFailed, StoreRefused
from coordinator_runtime.store_directory import DirectoryLock, StoreDirectory, refused_in_words


def open_store(
    path: Path | str, *, shard_count: int, accept_data_loss: bool = False, options: StoreOptions | None = None
) -> RocksStore:
    """Open the store in the directory, or make one there; this process alone has it until `close`.

    Every check comes before RocksDB may write, and none changes a file.

    `accept_data_loss`: go on with less than had been durable, where what is left is the state of an earlier moment or
    lacks only values in segments, and remember that for good.

    Raises StoreRefused: in use, newer format, another shard count, damaged, not to be read or written, on a full disk,
    or (unless `accept_data_loss`) less in it than had been reported durable."""
    options = options or StoreOptions()
    directory = StoreDirectory(Path(path))
    with refused_in_words(directory.path), ExitStack() as undo:
        directory.create()
        lock = DirectoryLock(directory, shared=False)
        undo.callback(lock.release)
        inspected = inspect(directory)
        _check_start(directory, inspected, shard_count, accept_data_loss=accept_data_loss)
        durable_mark = DurableMark(directory.durable_mark_path)
        undo.callback(durable_mark.close)
        if inspected.found is None or inspected.loss is not None:
            # Before RocksDB makes or changes anything, so that no store ever stands there without a mark.
            durable_mark.write(Marked(0 if inspected.found is None else inspected.found.version))
            directory.sync()
        damaged = DamagedFiles(directory)
        database = open_for_writing(directory, options, damaged)
        undo.callback(_close, database)
        _accept_lost_segments(directory, database, inspected)
        _write_down(database, inspected.found, shard_count)
        store = RocksStore(database, lock, durable_mark, directory, options.segments, damaged)
        # What was recovered is in sorted files now, and a new MANIFEST is the current one.
        store.mark_durable(store.version())
        undo.pop_all()
        return store


def open_read_only(path: Path | str) -> ReadOnlyStore:
    """Open the store of a stopped server without changing it; several tools may at once.

    What the log holds is replayed into memory. What is missing below the durable mark is shown, not refused, where a
    start could accept its loss.

    Raises StoreRefused: in use by a server, no finished store there, newer format, damaged, not to be read."""
    directory = StoreDirectory(Path(path))
    with refused_in_words(directory.path), ExitStack() as undo:
        lock = DirectoryLock(directory, shared=True)
        undo.callback(lock.release)
        inspected = inspect(directory)
        if inspected.found is None:
            raise StoreRefused(inspected.loss or f"there is no finished store in {directory.path}")
        store = ReadOnlyStore(open_for_reading(directory, list(Family)), directory, lock, inspected.loss)
        undo.pop_all()
        return store


def _check_start(directory: StoreDirectory, inspected: Inspection, shard_count: int, *, accept_data_loss: bool) -> None:
    """Raises StoreRefused where a server with these settings must not start on what was found."""
    found = inspected.found
    if found is not None and found.shard_count != shard_count:
        raise StoreRefused(
            f"the store in {directory.path} was made with {found.shard_count} shards and cannot be opened with"
            f" {shard_count}, because the number decides where every key lies: start with {found.shard_count}"
        )
    if inspected.loss is None:
        return
    if found is not None:
        # Not everything that is left can be gone on with, and nobody should be told that it could.
        try:
            open_for_reading(directory, list(Family)).close()
        except StoreRefused as refusal:
            raise StoreRefused(f"{inspected.loss}. {refusal}") from refusal
    if not accept_data_loss:
        raise StoreRefused(
            f"{inspected.loss}. Nothing was changed. Restore a backup, or start with --accept-data-loss to go on with"
            " what is there; the rest is lost for good then"
        )


def _close(database: Rdict) -> None:
    """Raises StoreFailed."""
    try:
        database.close()
    except Exception as error:
        raise StoreFailed(f"RocksDB cannot be closed: {error}") from error


def _accept_lost_segments(directory: StoreDirectory, database: Rdict, inspected: Inspection) -> None:
    """Expect nothing more of these files: what is missing in them is told by every read of it.

    Raises StoreFailed, OSError."""
    if inspected.found is None or not inspected.lost_segments:
        return
    directory.segments_path.mkdir(exist_ok=True)
    for segment in inspected.lost_segments:
        segment_path(directory.segments_path, segment).touch()
    try:
        meta = database.get_column_family(Family.META.name)
        for segment, partition in inspected.found.segments:
            if segment in inspected.lost_segments:
                meta.put(named_key(segment, partition), b"")
        database.flush_wal(True)
    except Exception as error:
        raise StoreFailed(f"RocksDB cannot write: {error}") from error


def _write_down(database: Rdict, found: Found | None, shard_count: int) -> None:
    """Store what the store is, if that is new. Raises StoreFailed."""
    try:
        meta = database.get_column_family(Family.META.name)
        if found is None:
            meta.put(SHARD_COUNT_KEY, stored_number(shard_count))
        if found is None or found.format_version != own_rows.FORMAT_VERSION:
            # The format says that a store is finished, so it comes last.
            meta.put(FORMAT_VERSION_KEY, stored_number(own_rows.FORMAT_VERSION))
            database.flush_wal(True)
    except Exception as error:
        raise StoreFailed(f"RocksDB cannot write: {error}") from error
