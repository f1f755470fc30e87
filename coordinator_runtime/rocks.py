"""The embedded store on RocksDB: the only module that knows rocksdict.

Families are column families; every group of a `write` goes into one WriteBatch over all of them, so a crash keeps all
of a group or nothing. Groups are written unsynced, which takes microseconds but holds the interpreter, and made durable
with `flush_wal(True)`, which waits for the disk and does not (spec log-and-runtime D2, 5.4).

rocksdict 0.3.29 has traps (spec log-and-runtime 5.3); `tests/store/test_rocksdict_defects.py` fails once one changes:

- The upper bound of an iterator is not copied: the bound and its ReadOptions must outlive the iterator.
- The lower bound sets the upper one. We seek instead.
- Iterators of a Snapshot do not see the snapshot. A plain iterator has one of its own, taken when it is made.
- `items()` ends silently at a damaged block. Only `iter()` with `status()` at the end tells the truth.
- A WriteBatch is used up by a failed write as well, so that a retry builds it again.
- The lock of the directory is not released while any iterator, family or handle is alive.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Hashable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from weakref import WeakSet

from rocksdict import (
    AccessType,
    BlockBasedOptions,
    Cache,
    DBCompressionType,
    DBRecoveryMode,
    Options,
    Rdict,
    RdictIter,
    ReadOptions,
    WriteBatch,
    WriteOptions,
)

from coordinator_runtime.durable_mark import DurableMark, read_mark
from coordinator_runtime.segments import (
    NAMED_PREFIX,
    SegmentDamaged,
    SegmentOptions,
    SegmentReader,
    SegmentWriter,
    named_of,
)
from coordinator_runtime.store import CommitGroup, Family, StoreFailed, StoreRefused
from coordinator_runtime.store_directory import DirectoryLock, StoreDirectory, bytes_of_files

FORMAT_VERSION: Final = 2
"""Grows with every change that an older program would misread. 2: large values lie in segments."""

_MEBIBYTE: Final = 1024 * 1024

# What the store itself keeps in META, as unsigned big-endian integers.
_FORMAT_VERSION_KEY: Final = b"format_version"
_SHARD_COUNT_KEY: Final = b"shard_count"
_GROUP_VERSION_KEY: Final = b"group_version"
_NUMBER_BYTES: Final = 8

_STALL_PAUSE_SECONDS: Final = 0.005
"""How long a write waits before it asks a stalled RocksDB again: short beside a memtable flush, long beside a write."""


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """What an operator may want to size. The defaults fit a small machine."""

    write_buffer_bytes: int = 64 * _MEBIBYTE
    """Memory for what is in the log but not yet in sorted files, all families together. Too small: many small files and
    stalls. Too large: memory, and a longer recovery after a crash."""
    block_cache_bytes: int = 32 * _MEBIBYTE
    """Memory for blocks that were read, all families together. Too small: fetches behind the page cache decompress
    again and again."""
    wal_bytes_max: int = 256 * _MEBIBYTE
    """Size of the write-ahead log at which the family that holds its oldest part is flushed. Bounds disk and recovery
    time."""
    segments: SegmentOptions = field(default_factory=SegmentOptions)


@dataclass(frozen=True, slots=True)
class StoreStatistics:
    """Sizes for the metrics page, read without locking anything out."""

    wal_bytes: int
    segment_bytes: int
    sst_bytes: int
    memtable_bytes: int
    pending_compaction_bytes: int
    write_stalls: int
    """Times a write had to wait because flushes or compactions lag behind, since the store was opened."""


class _Families:
    """Reads of one open RocksDB, and the order in which to let go of it."""

    def __init__(self, database: Rdict, directory: StoreDirectory) -> None:
        self._database = database
        self._segments = SegmentReader(directory.segments_path)
        self._path = database.path()
        self._families = [database.get_column_family(family.name) for family in Family]
        self._open_scans: WeakSet[Generator[tuple[bytes, bytes], None, None]] = WeakSet()
        self._failure: BaseException | None = None
        self._is_open = True

    def get(self, family: Family, key: bytes) -> bytes | None:
        """Raises StoreFailed: a damaged block, or any failure before."""
        self._check_usable()
        try:
            value: bytes | None = self._families[family].get(key)
            if value is not None and family is Family.LOG:
                value = self._segments.value_of(value)
        except Exception as error:
            raise self._failed(error) from error
        return value

    def scan(self, family: Family, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Raises StoreFailed here or at any step: a damaged block, or any failure before."""
        self._check_usable()
        bounds = ReadOptions()
        bounds.set_iterate_upper_bound(end)
        try:
            iterator = self._families[family].iter(bounds)
            iterator.seek(start)
        except Exception as error:
            raise self._failed(error) from error
        rows = self._rows(iterator, bounds, end)
        if family is Family.LOG:
            rows = self._whole(rows)
        self._open_scans.add(rows)
        return rows

    def scan_backwards(self, family: Family, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Raises StoreFailed here or at any step: a damaged block, or any failure before."""
        self._check_usable()
        try:
            iterator = self._families[family].iter()
            iterator.seek_for_prev(end)
            if iterator.valid() and iterator.key() == end:
                iterator.prev()
        except Exception as error:
            raise self._failed(error) from error
        rows = self._rows_backwards(iterator, start)
        if family is Family.LOG:
            rows = self._whole(rows)
        self._open_scans.add(rows)
        return rows

    def _rows(self, iterator: RdictIter, bounds: ReadOptions, end: bytes) -> Generator[tuple[bytes, bytes], None, None]:
        """The rows of an iterator that stands on the first one. `bounds` and `end` are arguments so that they live as
        long as the iterator, which reads them through bare pointers."""
        try:
            while iterator.valid():
                yield iterator.key(), iterator.value()
                iterator.next()
            iterator.status()
        except Exception as error:
            raise self._failed(error) from error

    def _rows_backwards(self, iterator: RdictIter, start: bytes) -> Generator[tuple[bytes, bytes], None, None]:
        """The rows of an iterator that stands on the last one, down to the start: a lower bound would not work."""
        try:
            while iterator.valid() and (key := iterator.key()) >= start:
                yield key, iterator.value()
                iterator.prev()
            iterator.status()
        except Exception as error:
            raise self._failed(error) from error

    def _whole(self, rows: Generator[tuple[bytes, bytes], None, None]) -> Generator[tuple[bytes, bytes], None, None]:
        """The rows with the values that lie in segments."""
        with closing(rows):
            try:
                for key, row in rows:
                    yield key, self._segments.value_of(row)
            except (OSError, SegmentDamaged) as error:
                raise self._failed(error) from error

    def last(self, family: Family, prefix: bytes) -> tuple[bytes, bytes] | None:
        """Raises StoreFailed: a damaged block, or any failure before."""
        self._check_usable()
        try:
            iterator = self._families[family].iter()
            after = _after_prefix(prefix)
            if after is None:
                iterator.seek_to_last()
            else:
                iterator.seek_for_prev(after)
                if iterator.valid() and iterator.key() == after:
                    iterator.prev()
            iterator.status()
            if not iterator.valid():
                return None
            key: bytes = iterator.key()
            if not key.startswith(prefix):
                return None
            return key, self._segments.value_of(iterator.value()) if family is Family.LOG else iterator.value()
        except Exception as error:
            raise self._failed(error) from error

    def _number(self, key: bytes) -> int | None:
        stored = self.get(Family.META, key)
        return None if stored is None else int.from_bytes(stored, "big")

    def _check_usable(self) -> None:
        if self._failure is not None:
            raise self._failed(self._failure) from self._failure
        assert self._is_open, "the store is closed"

    def _failed(self, cause: BaseException) -> StoreFailed:
        """Remember the first failure, for every call that follows, and word it."""
        if self._failure is None:
            self._failure = cause
        return StoreFailed(f"RocksDB in {self._path} failed: {self._failure}")

    def _release(self) -> None:
        """Close RocksDB. Its lock is held until the last iterator and family is gone, so those go first.

        Raises StoreFailed if there was no failure before."""
        self._is_open = False
        for rows in list(self._open_scans):
            rows.close()
        self._families.clear()
        self._segments.close()
        try:
            self._database.close()
        except Exception as error:
            # Closed all the same. After a failure it repeats that failure, which was reported.
            if self._failure is None:
                raise self._failed(error) from error


class ReadOnlyStore(_Families):
    """The store of a stopped server, for tools that look and change nothing. Made by `open_read_only`."""

    def __init__(self, database: Rdict, directory: StoreDirectory, lock: DirectoryLock) -> None:
        super().__init__(database, directory)
        self._lock = lock
        self.directory: Final = directory.path
        self.shard_count: Final = self._number(_SHARD_COUNT_KEY) or 0

    def version(self) -> int:
        """The version of the newest group that was recovered."""
        return self._number(_GROUP_VERSION_KEY) or 0

    def durable_version(self) -> int:
        """What had been reported durable; more than `version` means that acknowledged writes are missing.

        Raises StoreRefused if the durable mark is missing or damaged."""
        return read_mark(StoreDirectory(self.directory).durable_mark_path)

    def close(self) -> None:
        """Let others open the directory. Idempotent."""
        if self._is_open:
            try:
                self._release()
            finally:
                self._lock.release()


class RocksStore(_Families):
    """The store port on RocksDB. Made by `open_store`."""

    def __init__(
        self,
        database: Rdict,
        lock: DirectoryLock,
        durable_mark: DurableMark,
        directory: StoreDirectory,
        options: SegmentOptions,
    ) -> None:
        super().__init__(database, directory)
        named = self.scan(Family.META, NAMED_PREFIX, _after_prefix(NAMED_PREFIX) or b"")
        self._large = SegmentWriter(directory.segments_path, [named_of(key) for key, _ in named], options)
        self._handles = [database.get_column_family_handle(family.name) for family in Family]
        self._lock = lock
        self._version = self._number(_GROUP_VERSION_KEY) or 0
        self._write_stalls = 0
        self._closing = threading.Event()
        # A stalled write would hold the interpreter, so that the whole process stands still. Let it fail and ask again.
        self._no_slowdown = WriteOptions()
        self._no_slowdown.no_slowdown = True
        self.directory: Final = directory.path
        self.durable_mark: Final = durable_mark
        """Written by the commit thread after a sync, never by `sync` itself: replies do not wait for it."""

    def write(self, groups: Sequence[CommitGroup]) -> None:
        """Apply the groups in their order as one batch, unsynced; waits while RocksDB is stalled.

        Raises StoreFailed."""
        self._check_usable()
        if not groups:
            return
        for expected, group in enumerate(groups, self._version + 1):
            assert group.version == expected, f"group {group.version} was handed over where {expected} is next"
        try:
            placed = self._large.place(groups)
            while not self._written(self._batch(placed)):
                self._write_stalls += 1
                if self._closing.wait(_STALL_PAUSE_SECONDS):
                    raise TimeoutError("closed while RocksDB was stalled")
        except Exception as error:
            raise self._failed(error) from error
        self._version = groups[-1].version

    def _batch(self, groups: Sequence[CommitGroup]) -> WriteBatch:
        batch = WriteBatch(raw_mode=True)
        put, delete, handles = batch.put, batch.delete, self._handles
        for group in groups:
            for family, key, value in group.mutations:
                if value is None:
                    delete(key, handles[family])
                else:
                    put(key, value, handles[family])
            for family, start, end in group.deleted_ranges:
                # RocksDB refuses a range that ends before it starts; for us it is empty, as it is in a scan.
                if start < end:
                    batch.delete_range(start, end, handles[family])
        put(_GROUP_VERSION_KEY, _stored_number(groups[-1].version), handles[Family.META])
        return batch

    def _written(self, batch: WriteBatch) -> bool:
        """False if RocksDB is stalled and has not taken the batch, which is used up all the same."""
        try:
            self._database.write(batch, self._no_slowdown)
        except Exception as error:
            if "Write stall" in str(error):
                return False
            raise
        return True

    def sync(self) -> None:
        """Return once everything written before the call is on disk; other threads run meanwhile.

        Raises StoreFailed."""
        self._check_usable()
        try:
            self._database.flush_wal(True)
            for segment in self._large.take_unused():
                self._segments.delete(segment)
        except Exception as error:
            raise self._failed(error) from error

    def version(self) -> int:
        """The version of the newest group that was written, 0 for a new store. Raises StoreFailed after a failure."""
        self._check_usable()
        return self._version

    def atomic_domain(self, shard: int) -> Hashable:
        """One for all shards: they share this directory."""
        return self.directory

    def statistics(self) -> StoreStatistics:
        """Sizes as RocksDB knows them now. Raises StoreFailed after a failure."""
        self._check_usable()

        def total(name: str) -> int:
            return sum(family.property_int_value(f"rocksdb.{name}") or 0 for family in self._families)

        return StoreStatistics(
            wal_bytes=bytes_of_files(StoreDirectory(self.directory).store_path, ".log"),
            segment_bytes=bytes_of_files(StoreDirectory(self.directory).segments_path, ".segment"),
            sst_bytes=total("live-sst-files-size"),
            memtable_bytes=total("cur-size-all-mem-tables"),
            pending_compaction_bytes=total("estimate-pending-compaction-bytes"),
            write_stalls=self._write_stalls,
        )

    def close(self) -> None:
        """Sync, bring the durable mark up to date and let others open the directory. Idempotent.

        Call it after the commit thread has ended. Raises StoreFailed if the sync fails, with everything released; a
        store that failed before is only released."""
        if not self._is_open:
            return
        self._closing.set()
        with ExitStack() as last:
            last.callback(self._lock.release)
            last.callback(self.durable_mark.close)
            last.callback(self._release)
            last.callback(self._large.close)
            last.callback(self._handles.clear)
            if self._failure is None:
                self.sync()
                try:
                    self.durable_mark.write(self._version)
                except OSError as error:
                    raise self._failed(error) from error


def open_store(
    path: Path | str, *, shard_count: int, accept_data_loss: bool = False, options: StoreOptions | None = None
) -> RocksStore:
    """Open the store in the directory, or make one there; this process alone has it until `close`.

    Every check runs on a read-only view before RocksDB may write: its recovery drops a damaged log for good, and who
    is refused must still find what there was to rescue.

    Raises StoreRefused: in use, newer format, another shard count, damaged, or (unless `accept_data_loss`) less in it
    than had been reported durable."""
    options = options or StoreOptions()
    directory = StoreDirectory(Path(path))
    directory.create()
    with ExitStack() as undo:
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
        database = _open_for_writing(directory, options, found, shard_count)
        store = RocksStore(database, lock, durable_mark, directory, options.segments)
        undo.pop_all()
        return store


def open_read_only(path: Path | str) -> ReadOnlyStore:
    """Open the store of a stopped server without changing it; several tools may at once.

    What the log holds is replayed into memory. Data missing below the durable mark is shown, not refused.

    Raises StoreRefused: in use by a server, no finished store there, newer format, damaged."""
    directory = StoreDirectory(Path(path))
    with ExitStack() as undo:
        lock = DirectoryLock(directory, shared=True)
        undo.callback(lock.release)
        if _inspect(directory) is None:
            raise StoreRefused(f"there is no finished store in {directory.path}")
        store = ReadOnlyStore(_open_for_reading(directory, list(Family)), directory, lock)
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
    if not directory.holds_store() or Family.META.name not in Rdict.list_cf(str(directory.store_path)):
        return None
    database = _open_for_reading(directory, [Family.META])
    try:
        meta = database.get_column_family(Family.META.name)
        numbers = [meta.get(key) for key in (_FORMAT_VERSION_KEY, _SHARD_COUNT_KEY, _GROUP_VERSION_KEY)]
        del meta
    except Exception as error:
        raise StoreRefused(f"the store in {directory.path} cannot be read: {error}") from error
    finally:
        database.close()
    format_version, shard_count, version = (int.from_bytes(stored or b"", "big") for stored in numbers)
    if format_version > FORMAT_VERSION:
        raise StoreRefused(
            f"the store in {directory.path} has format {format_version}, this program knows formats up to"
            f" {FORMAT_VERSION}: use the version that wrote it, or a later one"
        )
    return _Found(format_version, shard_count, version) if format_version else None


def _loss(directory: StoreDirectory, recovered: int) -> str | None:
    """What had been durable and is not there, in words, or None."""
    mark_path = directory.durable_mark_path
    if not directory.holds_store() and not mark_path.exists():
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


def _open_for_reading(directory: StoreDirectory, families: Sequence[Family]) -> Rdict:
    options = Options(raw_mode=True)
    options.create_if_missing(False)
    options.set_wal_recovery_mode(DBRecoveryMode.point_in_time())
    # The log of a server that ran is no reason to refuse: it is replayed into memory.
    access = AccessType.read_only(error_if_log_file_exist=False)
    return _open_rocksdb(directory, options, {family.name: Options(raw_mode=True) for family in families}, access)


def _open_for_writing(
    directory: StoreDirectory, options: StoreOptions, found: _Found | None, shard_count: int
) -> Rdict:
    """Open RocksDB, and write down what the store is if that is new."""
    cache = Cache(options.block_cache_bytes)
    families = {family.name: _family_options(family, options, cache) for family in Family}
    database = _open_rocksdb(directory, _database_options(options), families, AccessType.read_write())
    try:
        meta = database.get_column_family(Family.META.name)
        if found is None:
            meta.put(_SHARD_COUNT_KEY, _stored_number(shard_count))
        if found is None or found.format_version != FORMAT_VERSION:
            # The format says that a store is finished, so it comes last.
            meta.put(_FORMAT_VERSION_KEY, _stored_number(FORMAT_VERSION))
            database.flush_wal(True)
    except Exception as error:
        raise StoreFailed(f"the store in {directory.path} could not be written: {error}") from error
    return database


def _open_rocksdb(
    directory: StoreDirectory, options: Options, families: dict[str, Options], access: AccessType
) -> Rdict:
    try:
        return Rdict(str(directory.store_path), options, column_families=families, access_type=access)
    except Exception as error:
        raise StoreRefused(f"RocksDB cannot open the store in {directory.path}: {error}") from error


def _database_options(options: StoreOptions) -> Options:
    """What holds for all families. Source: spec log-and-runtime 5.1, 5.6."""
    database = Options(raw_mode=True)
    database.create_if_missing(True)
    database.create_missing_column_families(True)
    # A prefix, never holes; what it drops silently the durable mark notices. Recycled log files would hide the end.
    database.set_wal_recovery_mode(DBRecoveryMode.point_in_time())
    database.set_recycle_log_file_num(0)
    database.set_db_write_buffer_size(options.write_buffer_bytes)
    database.set_max_total_wal_size(options.wal_bytes_max)
    database.set_bytes_per_sync(_MEBIBYTE)
    database.set_wal_bytes_per_sync(_MEBIBYTE)
    database.set_max_background_jobs(2)
    database.set_max_open_files(-1)
    database.set_keep_log_file_num(5)
    database.set_stats_persist_period_sec(0)
    return database


def _family_options(family: Family, options: StoreOptions, cache: Cache) -> Options:
    """What differs between the families. Source: spec log-and-runtime 5.1."""
    blocks = BlockBasedOptions()
    blocks.set_block_cache(cache)
    if family in (Family.PRODUCERS, Family.COORDINATOR_STATE):
        blocks.set_bloom_filter(10, False)
    own = Options(raw_mode=True)
    own.set_block_based_table_factory(blocks)
    # Producers compress their batches themselves.
    own.set_compression_type(DBCompressionType.none() if family is Family.LOG else DBCompressionType.lz4())
    own.set_write_buffer_size(options.write_buffer_bytes // (2 if family is Family.LOG else 8))
    own.set_max_write_buffer_number(3)
    # RocksDB slows writers down by making each one sleep, which `no_slowdown` turns into a failure that uses up the
    # writer's allowance: it would be asked in vain. So there is only go and stop.
    own.set_level_zero_slowdown_writes_trigger(36)
    own.set_level_zero_stop_writes_trigger(36)
    own.set_soft_pending_compaction_bytes_limit(0)
    return own


def _after_prefix(prefix: bytes) -> bytes | None:
    """The smallest key greater than all that start with the prefix; None if there is none (empty, or all 0xFF)."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None


def _stored_number(value: int) -> bytes:
    return value.to_bytes(_NUMBER_BYTES, "big")
