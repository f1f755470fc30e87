"""Inspect a store directory before RocksDB may write to it: detect lost or contradictory files, decide whether to open.

The inspection only reads: our own look at the files that RocksDB would trust blindly, and a read-only view of one
family. RocksDB's recovery for writing drops a damaged log permanently, and an operator whose store is refused must
still find the data to rescue.

There are two kinds of trouble. A *loss* leaves the state of an earlier moment, or all but single values, and an
operator may accept it to go on from there. Anything else leaves files that contradict each other, and is always
refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rocksdict import Rdict

from coordinator_runtime import own_rows
from coordinator_runtime.clock import SystemClock
from coordinator_runtime.identity import new_uuid
from coordinator_runtime.incarnation import (
    Incarnation,
    IncarnationCause,
    incarnation_of,
    next_incarnation,
    stored_incarnation,
)
from coordinator_runtime.own_rows import (
    DEMAND_PREFIX,
    FORMAT_VERSION_KEY,
    GROUP_VERSION_KEY,
    INCARNATION_KEY,
    SHARD_COUNT_KEY,
    STORE_ID_KEY,
    WRITER_KEY,
    StoreIdentity,
    identity_in,
    number_of,
    stored_number,
)
from coordinator_runtime.rocks.database import StoreOptions, families_of, open_for_reading, open_for_writing, refusal_of
from coordinator_runtime.rocks.durable_mark import DurableMark, FileGrowth, Marked, read_mark
from coordinator_runtime.rocks.files import (
    RESTORE,
    DamagedFiles,
    current_manifest,
    growth_of,
    holds_data,
    manifest_name,
)
from coordinator_runtime.rocks.segment_rows import (
    LENGTH_PREFIX,
    NAMED_PREFIX,
    length_key,
    named_of,
    number_in,
    segment_of,
)
from coordinator_runtime.rocks.segments import segment_path, segments_in
from coordinator_runtime.rocks.store import ReadOnlyStore, RocksStore
from coordinator_runtime.rocks.store_directory import DirectoryLock, StoreDirectory, refused_in_words
from coordinator_runtime.running_version import running_version
from coordinator_runtime.store import Family, StoreFailed, StoreRefused
from coordinator_runtime.unknown_rows import UnknownRow

_UNUSED_FAMILY: Final = "default"
"""Name of a family that RocksDB creates and we do not use."""

_LOST_WHOLE: Final = Marked(1)
"""Mark of a store that is being made in place of a lost one, whatever version that had reached."""


@dataclass(frozen=True, slots=True)
class Found:
    """Properties of a store, read before it is opened."""

    format_version: int
    shard_count: int
    version: int
    identity: StoreIdentity
    demands: Sequence[bytes]
    """Names in META that a program must know to open the store."""
    segments: Mapping[int, int]
    """Segment files that hold values, each with its required length; 0 if not known."""


@dataclass(frozen=True, slots=True)
class Inspection:
    """Result of inspecting a directory."""

    found: Found | None
    """Store that was found; None if there is none, or its making was cut short before anything was in it."""
    loss: str | None
    """Description of durable data that is missing; None if none is."""
    lost_segments: Sequence[int]
    """Segment files that are missing or cut off."""


def inspect(directory: StoreDirectory) -> Inspection:
    """Read the directory without changing it.

    Raises StoreRefused: newer format, or missing or damaged files without which the others make no sense; OSError."""
    marked, doubt = _mark_of(directory)
    manifest = current_manifest(directory.store_path)
    if manifest is None:
        _check_that_nothing_was_begun(directory, marked, doubt)
        found = None
    else:
        _check_manifest(directory, growth_of(manifest), marked.manifest)
        found = _read_meta(directory)
        if found is None and _was_finished(marked, doubt):
            raise StoreRefused(f"{manifest} names no store, but one had been made here. {RESTORE}")
    lost_segments = {} if found is None else _lost_segments(directory, found, marked.segment)
    lost = [doubt or _lost_groups(directory, found, marked), *lost_segments.values()]
    return Inspection(found, "; ".join(filter(None, lost)) or None, list(lost_segments))


def _mark_of(directory: StoreDirectory) -> tuple[Marked, str | None]:
    """Return the durable mark, and None or the reason why it cannot be read although there should be one."""
    path = directory.durable_mark_path
    is_unwritten = not path.exists() or path.stat().st_size == 0
    if is_unwritten and not holds_data(directory.store_path) and not segments_in(directory.segments_path):
        # RocksDB's files are made after the mark. Without them, no store was ever finished here.
        return Marked(0), None
    try:
        return read_mark(path), None
    except StoreRefused as refusal:
        return Marked(0), str(refusal)


def _was_finished(marked: Marked, doubt: str | None) -> bool:
    """Return True if a store was ever open here, as far as the mark tells. If it cannot be read, one is assumed."""
    is_unmade = marked in (Marked(0), _LOST_WHOLE)
    return doubt is not None or not is_unmade


def _check_that_nothing_was_begun(directory: StoreDirectory, marked: Marked, doubt: str | None) -> None:
    """Refuse files without CURRENT if a store was finished here.

    RocksDB writes CURRENT last when it makes its files. Without it, it would make new files over the existing ones."""
    if not _was_finished(marked, doubt) or not holds_data(directory.store_path):
        return
    last = (
        f"; the last one that is known named {manifest_name(marked.manifest.number)}" if marked.manifest.number else ""
    )
    raise StoreRefused(f"{directory.store_path / 'CURRENT'} is missing{last}. {RESTORE}")


def _check_manifest(directory: StoreDirectory, there: FileGrowth, marked: FileGrowth) -> None:
    path = directory.store_path / manifest_name(there.number)
    if there.length == 0:
        what = "is empty" if path.exists() else "is missing, and CURRENT names it"
        raise StoreRefused(f"{path} {what}. {RESTORE}")
    if there.number < marked.number:
        raise StoreRefused(
            f"{directory.store_path / 'CURRENT'} is an older copy: it names {path.name}, but"
            f" {manifest_name(marked.number)} had been durable. {RESTORE}"
        )
    if there.number == marked.number and there.length < marked.length:
        raise StoreRefused(
            f"{path} is cut off or an older copy: it has {there.length} bytes, but {marked.length} had been durable."
            f" {RESTORE}"
        )


def _read_meta(directory: StoreDirectory) -> Found | None:
    families = families_of(directory)
    if Family.META.name not in families:
        return None
    database = open_for_reading(directory, [Family.META])
    try:
        meta = database.get_column_family(Family.META.name)
        # Checked first, because all other rows may differ in another format.
        _check_format(directory, number_of(meta.get(FORMAT_VERSION_KEY)))
        found = _found_in(meta)
    except StoreRefused:
        raise
    except UnknownRow as unknown:
        raise StoreRefused(f"the store in {directory.path} cannot be opened: {unknown}") from unknown
    except Exception as error:
        raise refusal_of(directory, error) from error
    finally:
        database.close()
    _check_demands(directory, found, families)
    return found if found.format_version else None


def _check_format(directory: StoreDirectory, format_version: int) -> None:
    """Check the format. Raises StoreRefused for any but the known one; 0 is a store that was never finished."""
    if format_version > own_rows.FORMAT_VERSION:
        raise StoreRefused(
            f"the store in {directory.path} has format {format_version}, this program knows formats up to"
            f" {own_rows.FORMAT_VERSION}: use the version that wrote it, or a later one"
        )
    if 0 < format_version < own_rows.FORMAT_VERSION:
        raise StoreRefused(
            f"the store in {directory.path} has format {format_version}, which no release ever wrote and this"
            " program cannot read: begin with an empty directory"
        )


def _check_demands(directory: StoreDirectory, found: Found, families: Sequence[str]) -> None:
    """Check that this program knows all that is stored. Raises StoreRefused if only a newer program does."""
    identity = found.identity
    demands = own_rows.unknown_demands(identity.features, found.demands)
    strangers = sorted({*families} - {_UNUSED_FAMILY} - {family.name for family in Family})
    demands += (f"the family {name}" for name in strangers)
    if demands:
        raise StoreRefused(
            f"the store in {directory.path} has {', '.join(demands)}, which this program (version"
            f" {running_version()}) does not know: start the version that wrote it ({identity.writer or 'not noted'}),"
            " or a later one"
        )


def _found_in(meta: Rdict) -> Found:
    def number(key: bytes) -> int:
        return number_of(meta.get(key))

    return Found(
        number(FORMAT_VERSION_KEY),
        number(SHARD_COUNT_KEY),
        number(GROUP_VERSION_KEY),
        identity_in(meta.get),
        [name for name, _ in _rows_from(meta, DEMAND_PREFIX)],
        _segments_in(meta),
    )


def _segments_in(meta: Rdict) -> dict[int, int]:
    lengths = {segment_of(name): number_in(value) for name, value in _rows_from(meta, LENGTH_PREFIX)}
    named = {named_of(name)[0] for name, _ in _rows_from(meta, NAMED_PREFIX)}
    return {segment: lengths.get(segment, 0) for segment in named}


def _rows_from(meta: Rdict, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
    rows = meta.iter()
    rows.seek(prefix)
    while rows.valid() and rows.key().startswith(prefix):
        yield rows.key(), rows.value()
        rows.next()
    rows.status()


def _lost_groups(directory: StoreDirectory, found: Found | None, marked: Marked) -> str | None:
    recovered = 0 if found is None else found.version
    if recovered >= marked.version:
        return None
    missing = marked.version - recovered
    return (
        f"the store in {directory.path} recovered up to group version {recovered}, but version {marked.version} had"
        f" been durable: {missing} group{'s' if missing > 1 else ''} of acknowledged writes are missing. The end of its"
        " log is damaged or cut off, or these files are an older copy"
    )


def _lost_segments(directory: StoreDirectory, found: Found, newest: FileGrowth) -> dict[int, str]:
    """Return descriptions of lost segment files, as far as names and lengths show them."""
    lost = {}
    for segment, finished_length in sorted(found.segments.items()):
        path = segment_path(directory.segments_path, segment)
        durable = max(finished_length, newest.length if segment == newest.number else 0)
        if not path.exists():
            lost[segment] = f"{path} is missing, in which batches of acknowledged writes lie"
        elif (length := path.stat().st_size) < durable:
            lost[segment] = f"{path} has {length} bytes of {durable} that had been durable: batches are missing"
    return lost


def open_store(
    path: Path | str,
    *,
    shard_count: int,
    accept_data_loss: bool = False,
    begins: IncarnationCause | None = None,
    options: StoreOptions | None = None,
    wall_ms: Callable[[], int] = SystemClock().wall_ms,
) -> RocksStore:
    """Open the store in the directory, or make one there. This process has it exclusively until `close`.

    Every check comes before RocksDB may write, and none changes a file.

    `accept_data_loss`: go on with less than was durable, if the rest is the state of an earlier moment or lacks only
    values in segments. The loss is recorded permanently: the store begins another incarnation. `begins`: begin another
    incarnation in any case, for this reason.

    Raises StoreRefused: in use, newer format, another shard count, damaged, not to be read or written, on a full disk.
    Also if durable data is missing, unless `accept_data_loss`."""
    options = options or StoreOptions()
    directory = StoreDirectory(Path(path))
    with refused_in_words(directory.path), ExitStack() as undo:
        directory.create()
        lock = DirectoryLock(directory, shared=False)
        undo.callback(lock.release)
        if begins is not IncarnationCause.RESTORE:
            _check_restored(directory)
        directory.checkpoint.remove()
        inspected = inspect(directory)
        _check_start(directory, inspected, shard_count, accept_data_loss=accept_data_loss)
        durable_mark = DurableMark(directory.durable_mark_path)
        undo.callback(durable_mark.close)
        if inspected.found is None:
            # Before RocksDB makes anything, so that there is never a store without a mark. If a store was lost, the
            # mark still says so.
            durable_mark.write(Marked(0) if inspected.loss is None else _LOST_WHOLE)
            directory.sync()
        damaged = DamagedFiles(directory)
        database = open_for_writing(directory, options, damaged)
        undo.callback(_close, database)
        if inspected.loss is not None:
            begins = IncarnationCause.DATA_LOSS
        if begins is not None:
            begin_incarnation(database, begins, wall_ms())
        _accept_lost_segments(directory, database, inspected)
        _write_down(database, inspected.found, shard_count)
        store = RocksStore(database, lock, durable_mark, directory, options.segments, damaged)
        # Recovered data is in sorted files now, and a new MANIFEST is current. Until here the mark showed the loss, so
        # after a start that is cut short the loss must be accepted again.
        store.mark_durable(store.version())
        undo.pop_all()
        return store


def open_read_only(path: Path | str) -> ReadOnlyStore:
    """Open the store of a stopped server without changing it. Several tools may do so at once.

    The log is replayed into memory. Data missing below the durable mark is shown, not refused, if a start could accept
    its loss.

    Raises StoreRefused: in use by a server, no finished store there, newer format, damaged, not to be read."""
    directory = StoreDirectory(Path(path))
    with refused_in_words(directory.path), ExitStack() as undo:
        lock = DirectoryLock(directory, shared=True)
        undo.callback(lock.release)
        _check_restored(directory)
        inspected = inspect(directory)
        if inspected.found is None:
            raise StoreRefused(inspected.loss or f"there is no finished store in {directory.path}")
        store = ReadOnlyStore(open_for_reading(directory, list(Family)), directory, lock, inspected.loss)
        undo.pop_all()
        return store


def _check_restored(directory: StoreDirectory) -> None:
    """Check that no backup is being restored into the directory, or was restored only in part. Raises StoreRefused."""
    if directory.restoring_path.exists():
        raise StoreRefused(
            f"a restore into {directory.path} is under way or was cut short: once none is, run `txnctl restore` again,"
            " which removes what is there"
        )


def _check_start(directory: StoreDirectory, inspected: Inspection, shard_count: int, *, accept_data_loss: bool) -> None:
    """Check that a server with these settings may start on the inspected store. Raises StoreRefused if not."""
    found = inspected.found
    if found is not None and found.shard_count != shard_count:
        raise StoreRefused(
            f"the store in {directory.path} was made with {found.shard_count} shards and cannot be opened with"
            f" {shard_count}, because the number decides where every key lies: start with {found.shard_count}"
        )
    if inspected.loss is None:
        return
    if found is not None:
        # Some losses cannot be accepted, and the operator must not be advised to accept those.
        try:
            open_for_reading(directory, list(Family)).close()
        except StoreRefused as refusal:
            raise StoreRefused(f"{inspected.loss}. {refusal}") from refusal
    if not accept_data_loss:
        raise StoreRefused(
            f"{inspected.loss}. Nothing was changed. Restore a backup, or start with --accept-data-loss to go on with"
            " what is there; the rest is lost for good then"
        )


def begin_incarnation(database: Rdict, cause: IncarnationCause, wall_ms: int) -> Incarnation:
    """Begin another incarnation of the store, before anything else of it is written; durable when this returns.

    The store that is opened next, and every shard that it loads, uses it. Raises StoreFailed."""
    meta = database.get_column_family(Family.META.name)
    try:
        incarnation = next_incarnation(incarnation_of(meta.get(INCARNATION_KEY)), cause, wall_ms)
        meta.put(INCARNATION_KEY, stored_incarnation(incarnation))
        database.flush_wal(True)
    except Exception as error:
        raise StoreFailed(f"RocksDB cannot write: {error}") from error
    return incarnation


def _close(database: Rdict) -> None:
    """Close RocksDB. Raises StoreFailed."""
    try:
        database.close()
    except Exception as error:
        raise StoreFailed(f"RocksDB cannot be closed: {error}") from error


def _accept_lost_segments(directory: StoreDirectory, database: Rdict, inspected: Inspection) -> None:
    """Expect nothing more of the lost segments: every read of a missing value reports it.

    Raises StoreFailed, OSError."""
    if inspected.found is None or not inspected.lost_segments:
        return
    directory.segments_path.mkdir(exist_ok=True)
    for segment in inspected.lost_segments:
        segment_path(directory.segments_path, segment).touch()
    try:
        meta = database.get_column_family(Family.META.name)
        for segment in inspected.lost_segments:
            meta.delete(length_key(segment))
        database.flush_wal(True)
    except Exception as error:
        raise StoreFailed(f"RocksDB cannot write: {error}") from error


def _write_down(database: Rdict, found: Found | None, shard_count: int) -> None:
    """Write the rows about the store itself that are new. Raises StoreFailed."""
    stored = "" if found is None else found.identity.writer
    writer = own_rows.newer_writer(stored, running_version())
    try:
        meta = database.get_column_family(Family.META.name)
        if writer != stored:
            meta.put(WRITER_KEY, writer.encode())
        if found is None:
            meta.put(SHARD_COUNT_KEY, stored_number(shard_count))
            meta.put(STORE_ID_KEY, new_uuid())
            # The format marks a store as finished, so it comes last.
            meta.put(FORMAT_VERSION_KEY, stored_number(own_rows.FORMAT_VERSION))
        if found is None or writer != stored:
            database.flush_wal(True)
    except Exception as error:
        raise StoreFailed(f"RocksDB cannot write: {error}") from error
