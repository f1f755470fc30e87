"""The store port on SlateDB, for one writer.

A write is one batch and stays in memory; `sync` flushes SlateDB's log, which is one object. Both are the commit
thread's. A second thread does two things in the background. It moves memory into tables now and then, because the next
start reads the rest of the log object by object. And it removes the rows in retired ranges, some at a time.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from msgspec import Struct

from coordinator_runtime.clock import Clock
from coordinator_runtime.own_rows import GROUP_VERSION_KEY, stored_number
from coordinator_runtime.slate import binding
from coordinator_runtime.slate.numbers import statistics_of
from coordinator_runtime.slate.ownership import OwnershipMark
from coordinator_runtime.slate.reads import SlateReads, stored_key
from coordinator_runtime.slate.retired import RetiredRanges
from coordinator_runtime.store import CommitGroup, Family, KeyRange, StoreFailed, StoreReads
from coordinator_runtime.store_statistics import StoreStatistics

CHECKPOINT_FLUSHES: Final = 100
CHECKPOINT_MS: Final = 2_000
"""Objects of the log, or the time since the oldest of them, after which memory is moved into tables. A start reads some
200 such objects per second from a store that answers in five milliseconds."""

SWEPT_ROWS: Final = 1_000
"""Number of rows of retired ranges that are removed at a time."""

RETIRED_PREFIX: Final = b"\xf0"
"""First byte of the rows that name retired ranges: behind the bytes of all families."""

_LENGTH_BYTES: Final = 2


def retired_row(key_range: KeyRange) -> tuple[bytes, bytes]:
    """Return the row of a retired range: its key has family and start, its value the end."""
    family, start, end = key_range
    return RETIRED_PREFIX + stored_key(family, start), end


def retired_in(rows: binding.Handle) -> RetiredRanges:
    """Read the retired ranges of a database. Raises the errors of the binding."""
    retired = RetiredRanges()
    found = binding.result_of(rows.scan_with_options(binding.range_of(RETIRED_PREFIX, b"\xf1"), binding.FORWARDS))
    while batch := binding.result_of(found.next_batch(SWEPT_ROWS)):
        for row in batch:
            retired.add(Family(row.key[1]), row.key[2:], row.value)
    return retired


class StoreOpening(Struct, frozen=True):
    """The opening of a store for writing."""

    is_new: bool
    """True if the database was made a moment ago."""
    look_ms: int
    """Time of the look at the store as a reader, before anything is changed."""
    engine_ms: int
    """Time of SlateDB's own opening."""


class SlateStore(SlateReads):
    """The store port on SlateDB. Made by `open_slate_store`."""

    def __init__(
        self,
        database: binding.Handle,
        retired: RetiredRanges,
        mark: OwnershipMark,
        clock: Clock,
        recorder: binding.Handle,
        opening: StoreOpening,
    ) -> None:
        """`recorder`: the one that the database was opened with."""
        super().__init__(database, retired)
        self._database = database
        self._recorder = recorder
        self._mark = mark
        self._clock = clock
        self._version = super().version()
        self.opening = opening
        self._is_open = True
        self._wake = threading.Condition()
        # Opening reads the end of the log into memory. Without a checkpoint, the next server would read it again if
        # this one ends early, and take longer each time.
        self._flushes = 0 if opening.is_new else CHECKPOINT_FLUSHES
        """Objects of the log that were written since memory was moved into tables."""
        self._oldest_flush_ms = 0
        self._unswept: list[KeyRange] = retired.all()
        # A daemon, because a process must end though the object store hangs.
        self._keeper = threading.Thread(target=self._keep, name="slate", daemon=True)  # noqa: TID251  no state of shards
        self._keeper.start()

    def version(self) -> int:
        """Return the version of the newest written group, 0 for a new store."""
        self._check_usable()
        return self._version

    def write(self, groups: Sequence[CommitGroup]) -> None:
        """Apply the groups in their order, as one batch in memory. Raises StoreFailed, StoreFenced."""
        self._check_usable()
        if not groups:
            return
        for expected, group in enumerate(groups, self._version + 1):
            assert group.version == expected, f"group {group.version} was handed over where {expected} is next"
        batch = binding.WriteBatch()
        try:
            ranges = [each for group in groups for each in _into(batch, group) if each[1] < each[2]]
            batch.put(stored_key(Family.META, GROUP_VERSION_KEY), stored_number(groups[-1].version))
            binding.result_of(self._database.write_with_options(batch, binding.WRITE))
        except Exception as error:
            raise self._failed(error) from error
        self._version = groups[-1].version
        for each in ranges:
            self._retired.add(*each)
        if ranges:
            with self._wake:
                self._unswept += ranges
                self._wake.notify()

    def sync(self) -> None:
        """Return once everything written before the call is in the object store. Raises StoreFailed, StoreFenced."""
        self._check_usable()
        try:
            binding.result_of(self._database.flush_with_options(binding.WAL))
        except Exception as error:
            raise self._failed(error) from error
        with self._wake:
            self._flushes += 1
            if self._flushes == 1:
                self._oldest_flush_ms = self._clock.monotonic_ms()
                self._wake.notify()
            elif self._flushes == CHECKPOINT_FLUSHES:
                self._wake.notify()

    def mark_durable(self, version: int) -> None:
        """Note a durable version for the record of the owner. Returns at once."""
        self._mark.note(version)

    def statistics(self) -> StoreStatistics:
        """Return sizes and numbers for the metrics, on any thread."""
        return statistics_of(self._recorder.snapshot())

    def put_meta(self, key: bytes, value: bytes | None) -> None:
        """Put or delete one row of META outside of all commit groups; stored when this returns. Raises StoreFailed."""
        batch = binding.WriteBatch()
        stored = stored_key(Family.META, key)
        try:
            if value is None:
                batch.delete(stored)
            else:
                batch.put(stored, value)
            binding.result_of(self._database.write_with_options(batch, binding.WRITE))
            binding.result_of(self._database.flush_with_options(binding.WAL))
        except Exception as error:
            raise self._failed(error) from error

    @contextmanager
    def view(self) -> Iterator[StoreReads]:
        """Open a view of the store as of this moment, on any thread."""
        self._check_usable()
        try:
            snapshot = binding.result_of(self._database.snapshot())
        except Exception as error:
            raise self._failed(error) from error
        yield SlateReads(snapshot, self._retired, self.identity)

    def close(self) -> None:
        """Sync, move memory into tables, and close. Idempotent. Raises StoreFailed."""
        if not self._is_open:
            return
        with self._wake:
            self._is_open = False
            self._wake.notify()
        self._keeper.join()
        if self._failure is not None:
            return
        try:
            binding.result_of(self._database.flush_with_options(binding.WAL))
            binding.result_of(self._database.flush_with_options(binding.MEMTABLE))
            binding.result_of(self._database.shutdown())
        except Exception as error:
            raise self._failed(error) from error
        self._mark.note(self._version)
        self._mark.close()
        self._failure = StoreFailed("the store is closed")

    def _keep(self) -> None:
        """Move memory into tables and remove retired rows, until the store is closed or has failed."""
        try:
            while (work := self._next()) is not None:
                is_checkpoint_due, retired = work
                if is_checkpoint_due:
                    binding.result_of(self._database.flush_with_options(binding.MEMTABLE))
                for each in retired:
                    self._sweep(each)
        except Exception as error:  # noqa: BLE001  the next write, sync or read tells it
            self._failed(error)

    def _next(self) -> tuple[bool, list[KeyRange]] | None:
        """Wait for work and return it; None once closed."""
        with self._wake:
            while self._is_open:
                until_ms = self._oldest_flush_ms + CHECKPOINT_MS - self._clock.monotonic_ms()
                is_due = self._flushes >= CHECKPOINT_FLUSHES or (self._flushes > 0 and until_ms <= 0)
                if is_due or self._unswept:
                    if is_due:
                        self._flushes = 0
                    retired, self._unswept = self._unswept, []
                    return is_due, retired
                self._wake.wait(until_ms / 1000 if self._flushes else None)
            return None

    def _sweep(self, key_range: KeyRange) -> None:
        """Remove the rows in a retired range."""
        family, start, end = key_range
        keys = binding.range_of(stored_key(family, start), stored_key(family, end))
        rows = binding.result_of(self._database.scan_with_options(keys, binding.FORWARDS))
        while self._is_open and (found := binding.result_of(rows.next_batch(SWEPT_ROWS))):
            batch = binding.WriteBatch()
            for row in found:
                batch.delete(row.key)
            binding.result_of(self._database.write_with_options(batch, binding.WRITE))


def _into(batch: binding.Handle, group: CommitGroup) -> Sequence[KeyRange]:
    """Put the rows of a group into the batch. Returns the ranges that it retires."""
    for family, key, value in group.mutations:
        if value is None:
            batch.delete(stored_key(family, key))
        else:
            batch.put(stored_key(family, key), value)
    for each in group.deleted_ranges:
        batch.put(*retired_row(each))
    return group.deleted_ranges
