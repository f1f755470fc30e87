"""Reads of an open RocksDB, with references to segments resolved.

A failed read concerns only its caller: RocksDB is not in an error state after it, and goes on. Only a failed write or
sync makes every later call fail.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from typing import Final
from weakref import WeakSet

from rocksdict import Rdict, RdictIter, ReadOptions

from coordinator_runtime.own_rows import number_of
from coordinator_runtime.rocks.segments import SegmentDamaged, SegmentReader, cut_value
from coordinator_runtime.rocks.store_directory import StoreDirectory
from coordinator_runtime.store import Family, StoreDamaged, StoreFailed, StoreUnreadable

_OF_THE_PROCESS: Final = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOMEM))
"""Errors of the process that say nothing about the stored bytes."""
_OUT_OF_HANDLES: Final = "Too many open files"


class RocksReads:
    """Reads of one open RocksDB, and the order of releasing it."""

    def __init__(self, database: Rdict, directory: StoreDirectory) -> None:
        self._database = database
        self._segments = SegmentReader(directory.segments_path)
        self._path = database.path()
        self._families = [database.get_column_family(family.name) for family in Family]
        self._open_scans: WeakSet[Generator[tuple[bytes, bytes], None, None]] = WeakSet()
        self._failure: BaseException | None = None
        self._is_open = True
        self._is_interrupted = False
        """True if RocksDB was asked to end its background work, which it reports as an error when it is closed."""

    def get(self, family: Family, key: bytes) -> bytes | None:
        """Return the value; None if there is none."""
        self._check_usable()
        try:
            value: bytes | None = self._families[family].get(key)
            if value is not None and family is Family.LOG:
                value = self._segments.value_of(value)
        except Exception as error:
            raise self._unread(family, error, key) from error
        return value

    def scan(
        self,
        family: Family,
        start: bytes,
        end: bytes,
        bounds: ReadOptions | None = None,
        value_of: Callable[[bytes], bytes] | None = None,
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield the rows in [start, end), ascending.

        `bounds`: read options, which are given the end of the rows. `value_of`: function of a row of the log, in place
        of resolving its reference."""
        self._check_usable()
        if bounds is None:
            bounds = ReadOptions()
        bounds.set_iterate_upper_bound(end)
        try:
            iterator = self._families[family].iter(bounds)
            iterator.seek(start)
        except Exception as error:
            raise self._unread(family, error) from error
        rows = self._rows(family, iterator, bounds, end)
        if family is Family.LOG:
            rows = self._values(rows, value_of or self._segments.value_of)
        self._open_scans.add(rows)
        return rows

    def scan_headers(self, family: Family, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the rows in [start, end), ascending, without the data in segments."""
        return self.scan(family, start, end, value_of=cut_value)

    def scan_unverified(self, family: Family, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the rows in [start, end), ascending, even if RocksDB's checksums fail.

        They do not go into the cache, where a verified read would find them."""
        options = ReadOptions()
        options.set_verify_checksums(False)
        options.fill_cache(False)  # type: ignore[call-arg]  # its stub forgot the argument
        return self.scan(family, start, end, options)

    def scan_backwards(self, family: Family, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the rows in [start, end), descending."""
        self._check_usable()
        try:
            iterator = self._families[family].iter()
            iterator.seek_for_prev(end)
            if iterator.valid() and iterator.key() == end:
                iterator.prev()
        except Exception as error:
            raise self._unread(family, error) from error
        rows = self._rows_backwards(family, iterator, start)
        if family is Family.LOG:
            rows = self._values(rows, self._segments.value_of)
        self._open_scans.add(rows)
        return rows

    def _rows(
        self, family: Family, iterator: RdictIter, bounds: ReadOptions, end: bytes
    ) -> Generator[tuple[bytes, bytes], None, None]:
        """Yield the rows of an iterator that is at the first one.

        `bounds` and `end` are arguments so that they live as long as the iterator, which reads them through bare
        pointers."""
        try:
            while iterator.valid():
                yield iterator.key(), iterator.value()
                iterator.next()
            iterator.status()
        except Exception as error:
            raise self._unread(family, error) from error

    def _rows_backwards(
        self, family: Family, iterator: RdictIter, start: bytes
    ) -> Generator[tuple[bytes, bytes], None, None]:
        """Yield the rows of an iterator that is at the last one, down to the start: a lower bound would not work."""
        try:
            while iterator.valid() and (key := iterator.key()) >= start:
                yield key, iterator.value()
                iterator.prev()
            iterator.status()
        except Exception as error:
            raise self._unread(family, error) from error

    def _values(
        self, rows: Generator[tuple[bytes, bytes], None, None], value_of: Callable[[bytes], bytes]
    ) -> Generator[tuple[bytes, bytes], None, None]:
        """Yield the rows of the log with `value_of` applied to each."""
        with closing(rows):
            for key, row in rows:
                try:
                    value = value_of(row)
                except (OSError, SegmentDamaged) as error:
                    raise self._unread(Family.LOG, error, key) from error
                yield key, value

    def last(self, family: Family, prefix: bytes) -> tuple[bytes, bytes] | None:
        """Return the greatest key that starts with the prefix, and its value."""
        self._check_usable()
        try:
            iterator = self._families[family].iter()
            key = _seek_last(iterator, prefix)
            if key is None:
                return None
            return key, self._segments.value_of(iterator.value()) if family is Family.LOG else iterator.value()
        except Exception as error:
            raise self._unread(family, error) from error

    def last_key(self, family: Family, prefix: bytes) -> bytes | None:
        """Return the greatest key that starts with the prefix."""
        self._check_usable()
        try:
            return _seek_last(self._families[family].iter(), prefix)
        except Exception as error:
            raise self._unread(family, error) from error

    def _number(self, key: bytes) -> int:
        return number_of(self.get(Family.META, key))

    def _check_usable(self) -> None:
        if self._failure is not None:
            raise self._failed(self._failure) from self._failure
        assert self._is_open, "the store is closed"

    def _unread(self, family: Family, cause: BaseException, key: bytes | None = None) -> StoreUnreadable:
        """Return the error for a failed read. RocksDB's errors differ only in their text."""
        words = str(cause)
        is_whole = isinstance(cause, OSError) and cause.errno in _OF_THE_PROCESS
        if is_whole or _OUT_OF_HANDLES in words:
            return StoreUnreadable(f"{family.name} cannot be read now: {words}")
        self._met_damage(family, words)
        return StoreDamaged(family, words, key)

    def _met_damage(self, family: Family, words: str) -> None:
        """Called after a read found damage; a store that can do something about it overrides this."""

    def _failed(self, cause: BaseException) -> StoreFailed:
        """Return the error of a failed write or sync. The first one is kept for every later call."""
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
            # Closed anyway. After a failure RocksDB repeats that failure, which was reported.
            if self._failure is None and not self._is_interrupted:
                raise self._failed(error) from error


def _seek_last(iterator: RdictIter, prefix: bytes) -> bytes | None:
    """Move the iterator to the greatest key that starts with the prefix, and return the key."""
    after = after_prefix(prefix)
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
    return key if key.startswith(prefix) else None


def after_prefix(prefix: bytes) -> bytes | None:
    """Return the smallest key greater than all that start with the prefix; None if there is none (empty, or all
    0xFF)."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None
