"""The store port on RocksDB, and the store of a stopped server for tools that only read."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Final

from rocksdict import CompactOptions, Rdict, WriteBatch, WriteOptions

from coordinator_runtime.own_rows import (
    FORMAT_VERSION_KEY,
    GROUP_VERSION_KEY,
    SHARD_COUNT_KEY,
    identity_in,
    stored_number,
)
from coordinator_runtime.rocks.checkpoint import finish_checkpoint, link_files
from coordinator_runtime.rocks.durable_mark import DurableMark, FileGrowth, Marked
from coordinator_runtime.rocks.files import DamagedFiles, synced_growth
from coordinator_runtime.rocks.reads import RocksReads, after_prefix
from coordinator_runtime.rocks.reclaim import Reclaimer
from coordinator_runtime.rocks.references import is_whole_partition, release_unreferenced
from coordinator_runtime.rocks.segment_rows import NAMED_PREFIX, named_of, number_in
from coordinator_runtime.rocks.segments import SegmentOptions, SegmentReader, SegmentWriter
from coordinator_runtime.rocks.store_directory import DirectoryLock, StoreDirectory, bytes_of_files, with_advice
from coordinator_runtime.store import CommitGroup, Family, KeyRange, Mutation, StoreFailed, StoreUnreadable
from coordinator_runtime.store_statistics import StoreStatistics

_PARTITION_BYTES: Final = 4
"""Size of the ordinal at the beginning of keys of the log."""

_STALL_PAUSE_SECONDS: Final = 0.005
"""Pause before a write to a stalled RocksDB is tried again: short beside a memtable flush, long beside a write."""


class _ReclaimedFamilies:
    """Implements `reclaim.ReclaimedStore` for the files of one open store."""

    def __init__(
        self,
        families: Sequence[Rdict],
        segments: SegmentReader,
        damaged: DamagedFiles,
        large: SegmentWriter,
        on_released: Callable[[], None],
    ) -> None:
        """`on_released` is called after each search for segments that may be released."""
        self._on_released = on_released
        self._families = families
        self._segments = segments
        self._damaged = damaged
        self._large = large
        self.closing = threading.Event()
        # RocksDB's own compactions go on beside it.
        self._options = CompactOptions()
        self._options.set_exclusive_manual_compaction(False)

    def compact(self, family: Family, start: bytes, end: bytes) -> None:
        if self._damaged.spares(family):
            return
        try:
            self._families[family].compact_range(start, end, self._options)
        except Exception as error:
            # After damage RocksDB takes no more writes: the next start leaves the file alone.
            self._damaged.note(str(error), family)
            raise
        # A part of a partition says nothing of the rows beside it.
        if family is Family.LOG and is_whole_partition(start, end):
            release_unreferenced(self._families[family], self._large, start, self.closing)
            self._on_released()

    def delete_segment(self, segment: int) -> None:
        self._segments.delete(segment)

    def sst_bytes(self) -> int:
        return sum(family.property_int_value("rocksdb.live-sst-files-size") or 0 for family in self._families)


class ReadOnlyStore(RocksReads):
    """The store of a stopped server, for tools that only read. Made by `open_read_only`."""

    def __init__(self, database: Rdict, directory: StoreDirectory, lock: DirectoryLock, loss: str | None) -> None:
        super().__init__(database, directory)
        self._lock = lock
        self.loss: Final = loss
        """Description of durable data that is missing; None if none is."""
        self.directory: Final = directory.path
        self.shard_count: Final = self._number(SHARD_COUNT_KEY)
        self.format_version: Final = self._number(FORMAT_VERSION_KEY)
        self.identity: Final = identity_in(partial(self.get, Family.META))
        self.incarnation: Final = self.identity.incarnation

    def version(self) -> int:
        """Return the version of the newest recovered group."""
        return self._number(GROUP_VERSION_KEY)

    def close(self) -> None:
        """Release the directory. Idempotent."""
        if self._is_open:
            try:
                self._release()
            finally:
                self._lock.release()


class RocksStore(RocksReads):
    """The store port on RocksDB. Made by `open_store`."""

    def __init__(
        self,
        database: Rdict,
        lock: DirectoryLock,
        durable_mark: DurableMark,
        directory: StoreDirectory,
        options: SegmentOptions,
        damaged: DamagedFiles,
    ) -> None:
        self.damaged_files: Final = damaged
        super().__init__(database, directory)
        rows = self.scan(Family.META, NAMED_PREFIX, after_prefix(NAMED_PREFIX) or b"")
        named = ((*named_of(key), number_in(value)) for key, value in rows)
        self._large = SegmentWriter(directory.segments_path, named, options, durable_mark.last.segment)
        self._handles = [database.get_column_family_handle(family.name) for family in Family]
        self._lock = lock
        self._version = self._number(GROUP_VERSION_KEY)
        self.identity: Final = identity_in(partial(self.get, Family.META))
        self.incarnation: Final = self.identity.incarnation
        self._write_stalls = 0
        self._reclaimed = _ReclaimedFamilies(self._families, self._segments, damaged, self._large, self._write_released)
        self._reclaimer = Reclaimer(self._reclaimed)
        self._deleted: list[KeyRange] = []
        """Ranges whose deletion is written and not on disk yet."""
        self._thinned: set[bytes] = set()
        """Keys of partitions of which rows of the log were deleted since the last sync."""
        self._writing = threading.RLock()
        """Held for each write and sync, and for a checkpoint, during which files must not change. The commit thread
        writes, and the reclaim thread what it has released."""
        self._closing = threading.Event()
        # A stalled write would hold the interpreter and stop the whole process. So let it fail, and try again.
        self._no_slowdown = WriteOptions()
        self._no_slowdown.no_slowdown = True
        self.directory: Final = directory.path
        self.durable_mark: Final = durable_mark
        """The durable mark, written by `mark_durable`."""
        self._manifest = FileGrowth()

    def write(self, groups: Sequence[CommitGroup]) -> None:
        """Apply the groups in their order as one batch, unsynced; waits while RocksDB is stalled.

        Raises StoreFailed."""
        self._check_usable()
        if not groups:
            return
        for expected, group in enumerate(groups, self._version + 1):
            assert group.version == expected, f"group {group.version} was handed over where {expected} is next"
        with self._writing:
            try:
                placed = self._large.place(groups)
                while not self._written(self._batch(placed)):
                    self._write_stalls += 1
                    if self._closing.wait(_STALL_PAUSE_SECONDS):
                        raise TimeoutError("closed while RocksDB was stalled")
            except Exception as error:
                raise self._failed(error) from error
            self._version = groups[-1].version
            for group in groups:
                self._deleted += group.deleted_ranges

    def _write_released(self) -> None:
        """Write what a search has released, because a server without work has no next write. On the reclaim thread."""
        with self._writing:
            # A close takes the same lock once it has begun, and writes nothing any more.
            if self._closing.is_set() or self._failure is not None:
                return
            dropped = self._large.take_released()
            while dropped and not self._written(self._deletion(dropped)):
                if self._closing.wait(_STALL_PAUSE_SECONDS):
                    return
            if dropped:
                self.sync()

    def _deletion(self, mutations: Sequence[Mutation]) -> WriteBatch:
        batch = WriteBatch(raw_mode=True)
        for family, key, _none in mutations:
            batch.delete(key, self._handles[family])
        return batch

    def _met_damage(self, family: Family, words: str) -> None:
        if self.damaged_files.note(words, family):
            # Otherwise RocksDB takes no more writes as soon as a compaction meets the same block.
            self._families[family].set_options({"disable_auto_compactions": "true"})

    def _failed(self, cause: BaseException) -> StoreFailed:
        # A compaction may have met damage before any reader did. RocksDB does not report the family.
        self.damaged_files.note(str(cause), None)
        return super()._failed(cause)

    def _batch(self, groups: Sequence[CommitGroup]) -> WriteBatch:
        batch = WriteBatch(raw_mode=True)
        put, delete, handles = batch.put, batch.delete, self._handles
        for group in groups:
            for family, key, value in group.mutations:
                if value is None:
                    delete(key, handles[family])
                    if family is Family.LOG:
                        self._thinned.add(key[:_PARTITION_BYTES])
                else:
                    put(key, value, handles[family])
            for family, start, end in group.deleted_ranges:
                # RocksDB refuses a range that ends before it starts; for us it is empty, as it is in a scan.
                if start < end:
                    batch.delete_range(start, end, handles[family])
                    if family is Family.LOG and any(start[_PARTITION_BYTES:]):
                        self._thinned.add(start[:_PARTITION_BYTES])
        put(GROUP_VERSION_KEY, stored_number(groups[-1].version), handles[Family.META])
        return batch

    def _written(self, batch: WriteBatch) -> bool:
        """Return False if RocksDB is stalled and has not taken the batch. The batch is used up even then."""
        try:
            self._database.write(batch, self._no_slowdown)
        except Exception as error:
            if "Write stall" in str(error):
                return False
            raise
        return True

    def sync(self) -> None:
        """Return once everything written before the call is on disk. Other threads run meanwhile.

        Raises StoreFailed."""
        self._check_usable()
        with self._writing:
            try:
                self._database.flush_wal(True)
            except Exception as error:
                raise self._failed(error) from error
            # Segments without a reference are searched for after the compaction of these ranges.
            thinned = [(Family.LOG, first, end) for first in self._thinned if (end := after_prefix(first)) is not None]
            self._thinned.clear()
            unused, deleted = self._large.take_unused(), [*self._deleted, *thinned]
            if unused or deleted:
                self._deleted = []
                self._reclaimer.note(deleted, unused)

    def checkpoint(self) -> StoreDirectory:
        """Make a second directory of the store, durable up to one version, from links to its files. The caller removes
        it.

        For any thread but the loop's. Writes wait meanwhile, but not for long: most data in memory is flushed to files
        before.

        Raises StoreFailed; StoreUnreadable if it cannot be made: then nothing is left of it, and the store goes on."""
        self._check_usable()
        directory = StoreDirectory(self.directory)
        checkpoint = directory.checkpoint
        try:
            checkpoint.remove()
            checkpoint.path.mkdir()
            self._flush_memory()
            with self._writing:
                self.sync()
                self._flush_memory()
                # Otherwise the linked file would grow with the store: the next value goes into another segment.
                self._large.close()
                link_files(self._database, directory)
                version, newest_segment = self._version, self._large.newest
            finish_checkpoint(checkpoint, version, newest_segment)
        except StoreFailed:
            raise
        except Exception as error:
            checkpoint.remove()
            raise StoreUnreadable(f"no copy of the store can be made: {with_advice(error)}") from error
        return checkpoint

    def _flush_memory(self) -> None:
        # Otherwise the checkpoint would flush, and hold the interpreter meanwhile.
        for family in self._families:
            family.flush()

    def mark_durable(self, version: int) -> None:
        """Record beside the store that it is durable up to `version`, and the files that hold it.

        Call it after the `sync` that it reports, on the same thread. `sync` itself does not do it, because replies need
        not wait for this. Raises OSError."""
        self._manifest = synced_growth(StoreDirectory(self.directory).store_path, self._manifest)
        self.durable_mark.write(Marked(version, self._manifest, self._large.newest))

    def version(self) -> int:
        """Return the version of the newest written group, 0 for a new store. Raises StoreFailed after a failure."""
        self._check_usable()
        return self._version

    def statistics(self) -> StoreStatistics:
        """Return the sizes that RocksDB reports now. Raises StoreFailed after a failure."""
        self._check_usable()

        def total(name: str) -> int:
            return sum(family.property_int_value(f"rocksdb.{name}") or 0 for family in self._families)

        return StoreStatistics(
            wal_bytes=bytes_of_files(StoreDirectory(self.directory).store_path, ".log"),
            segment_bytes=bytes_of_files(StoreDirectory(self.directory).segments_path, ".segment"),
            sst_bytes=total("live-sst-files-size"),
            memtable_bytes=total("cur-size-all-mem-tables"),
            # All families share one cache, and each reports all of it.
            block_cache_bytes=self._families[0].property_int_value("rocksdb.block-cache-usage") or 0,
            table_readers_bytes=total("estimate-table-readers-mem"),
            pending_compaction_bytes=total("estimate-pending-compaction-bytes"),
            write_stalls=self._write_stalls,
            reclaims=self._reclaimer.count,
            damaged_files=len(self.damaged_files.names),
        )

    def free_bytes(self) -> int:
        """Return the bytes that an ordinary user can still write to the disk of the directory. Raises OSError."""
        return shutil.disk_usage(self.directory).free

    def _interrupt(self) -> None:
        """End a compaction on which a close waits. RocksDB then closes with the data in memory only in its log."""
        self._is_interrupted = True
        self._database.cancel_all_background(False)

    def close(self) -> None:
        """Sync, close, bring the durable mark up to date and release the directory. Idempotent.

        Call it after the commit thread has ended. Raises StoreFailed if one of the first three fails, with everything
        released. A store that failed before is only released."""
        if not self._is_open:
            return
        self._closing.set()
        with ExitStack() as last:
            last.callback(self._lock.release)
            last.callback(self.durable_mark.close)
            with ExitStack() as first:
                first.callback(self._release)
                first.callback(self._reclaimer.close, self._interrupt)
                first.callback(self._reclaimed.closing.set)
                first.callback(self._large.close)
                first.callback(self._handles.clear)
                if self._failure is None:
                    self.sync()
            if self._failure is None:
                # RocksDB has moved its log into sorted files as it closed, so the MANIFEST has grown.
                try:
                    self.mark_durable(self._version)
                except OSError as error:
                    raise self._failed(error) from error
