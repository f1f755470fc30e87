"""Reads of a SlateDB store: through the open database, a snapshot of it, or a reader of a stopped one."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Final, Protocol

from coordinator_runtime.incarnation import Incarnation
from coordinator_runtime.own_rows import GROUP_VERSION_KEY, StoreIdentity, identity_in, number_of
from coordinator_runtime.slate import binding
from coordinator_runtime.slate.retired import RetiredRanges
from coordinator_runtime.store import Family, StoreDamaged, StoreFailed, StoreFenced, StoreUnreadable

_FIRST_ROWS: Final = 1
_ROWS_MAX: Final = 256
_GROWTH: Final = 4
"""A scan asks for one row, then for four times as many each time: most scans want the first row only."""


class SlateRows(Protocol):
    """The reading calls that the database, its snapshots and its readers have in common."""

    async def get_with_options(self, key: bytes, options: binding.Handle) -> bytes | None: ...

    async def scan_with_options(self, range: binding.Handle, options: binding.Handle) -> binding.Handle: ...


def stored_key(family: Family, key: bytes) -> bytes:
    """Return the key of a row in the database."""
    return bytes((family,)) + key


def after_prefix(prefix: bytes) -> bytes:
    """Return the smallest key greater than all that start with the prefix, which begins with the byte of a family."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1])


class SlateReads:
    """The reading half of the store port."""

    def __init__(self, rows: SlateRows, retired: RetiredRanges, identity: StoreIdentity | None = None) -> None:
        """`identity`: that of the store, if it is known already."""
        self._rows = rows
        self._retired = retired
        self._failure: StoreFailed | None = None
        self.identity: Final[StoreIdentity] = identity or identity_in(lambda key: self.get(Family.META, key))

    @property
    def incarnation(self) -> Incarnation:
        """The incarnation of the store."""
        return self.identity.incarnation

    def version(self) -> int:
        """Return the version of the newest group that is there."""
        return number_of(self.get(Family.META, GROUP_VERSION_KEY))

    def get(self, family: Family, key: bytes) -> bytes | None:
        """Return the value of a key; None if there is no row."""
        self._check_usable()
        if self._retired.end_of(family, key) is not None:
            return None
        try:
            return binding.result_of(self._rows.get_with_options(stored_key(family, key), binding.READ))
        except Exception as error:
            raise self._unread(family, error, key) from error

    def scan(self, family: Family, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the rows in [start, end) in ascending order, as of the moment of the call."""
        return self._scan(family, start, end, is_backwards=False)

    def scan_headers(self, family: Family, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the rows of `scan`, none of them cut: values lie beside their keys."""
        return self._scan(family, start, end, is_backwards=False)

    def scan_unverified(self, family: Family, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the rows of `scan`: a block that fails its checksum cannot be read here."""
        return self._scan(family, start, end, is_backwards=False)

    def scan_backwards(self, family: Family, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the rows in [start, end) in descending order, as of the moment of the call."""
        return self._scan(family, start, end, is_backwards=True)

    def last(self, family: Family, prefix: bytes) -> tuple[bytes, bytes] | None:
        """Return the greatest key that starts with the prefix, and its value; or None."""
        end = after_prefix(stored_key(family, prefix))
        # The range may end at the first key of the next family, which has no name in this one.
        whole = end[1:] if end[0] == family else b"\xff" * 64
        return next(self._scan(family, prefix, whole, is_backwards=True), None)

    def last_key(self, family: Family, prefix: bytes) -> bytes | None:
        """Return the greatest key that starts with the prefix, or None."""
        found = self.last(family, prefix)
        return None if found is None else found[0]

    def close(self) -> None:
        """Release what the reads hold: nothing, for a view."""

    def _scan(
        self, family: Family, start: bytes, end: bytes, *, is_backwards: bool
    ) -> Generator[tuple[bytes, bytes], None, None]:
        self._check_usable()
        start, end = self._retired.narrowed(family, start, end)
        if start >= end:
            return _nothing()
        hidden = self._retired.inside(family, start, end)
        try:
            iterator = self._opened(family, start, end, is_backwards=is_backwards)
        except Exception as error:
            raise self._unread(family, error) from error
        return self._yielded(family, iterator, hidden, is_backwards=is_backwards)

    def _opened(self, family: Family, start: bytes, end: bytes, *, is_backwards: bool) -> binding.Handle:
        options = binding.BACKWARDS if is_backwards else binding.FORWARDS
        keys = binding.range_of(stored_key(family, start), stored_key(family, end))
        return binding.result_of(self._rows.scan_with_options(keys, options))

    def _yielded(
        self, family: Family, iterator: binding.Handle, hidden: RetiredRanges, *, is_backwards: bool
    ) -> Generator[tuple[bytes, bytes], None, None]:
        count = _FIRST_ROWS
        while True:
            try:
                rows = binding.result_of(iterator.next_batch(count))
            except Exception as error:
                raise self._unread(family, error) from error
            if not rows:
                return
            behind: bytes | None = None
            for row in rows:
                key: bytes = row.key[1:]
                behind = hidden.end_of(family, key)
                if behind is None:
                    yield key, row.value
            if behind is not None and not is_backwards:
                # Jump over the rest of the retired range: it may have a million rows that are not removed yet.
                self._sought(family, iterator, behind)
            count = min(_ROWS_MAX, count * _GROWTH)

    def _sought(self, family: Family, iterator: binding.Handle, key: bytes) -> None:
        try:
            binding.result_of(iterator.seek(stored_key(family, key)))
        except Exception as error:
            raise self._unread(family, error) from error

    def _check_usable(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _unread(self, family: Family, cause: Exception, key: bytes | None = None) -> Exception:
        """Return the error for a failed read."""
        match cause:
            case binding.Closed() | binding.TooSlow():
                return self._failed(cause)
            case binding.Data(message=message):
                return StoreDamaged(family, message, key)
        return StoreUnreadable(f"{family.name} cannot be read now: {cause}")

    def _failed(self, cause: BaseException) -> StoreFailed:
        """Return the error of a failed write or sync. The first one is kept for every later call."""
        if self._failure is None:
            self._failure = failure_of(cause)
        return self._failure


def failure_of(cause: BaseException) -> StoreFailed:
    """Return the failure of the store for an error of the binding."""
    if isinstance(cause, StoreFailed):
        return cause
    if isinstance(cause, binding.Closed) and cause.reason is binding.FENCED:
        return StoreFenced("another server has opened the store, and has everything that was acknowledged")
    return StoreFailed(f"the object store failed: {cause}")


def _nothing() -> Generator[tuple[bytes, bytes], None, None]:
    yield from ()
