"""Moving a store from one engine to another: every row is copied, read back and compared.

The copy begins another incarnation, as a restored backup does. So its numbers are above all those of the original, even
if that is started again by mistake. The copy cannot be opened until it is complete. Until then a directory has the file
RESTORING, and a store in a bucket a row that no program knows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from coordinator_runtime.clock import Clock
from coordinator_runtime.incarnation import (
    Incarnation,
    IncarnationCause,
    next_beginning_ms,
    next_incarnation,
    stored_incarnation,
)
from coordinator_runtime.own_rows import (
    FORMAT_VERSION_KEY,
    GROUP_VERSION_KEY,
    INCARNATION_KEY,
    SHARD_COUNT_KEY,
    UNFINISHED_KEY,
)
from coordinator_runtime.rocks import open_read_only, open_store
from coordinator_runtime.rocks.segment_rows import LENGTH_PREFIX, NAMED_PREFIX
from coordinator_runtime.rocks.store_directory import StoreDirectory, refused_in_words
from coordinator_runtime.slate.location import StoreLocation
from coordinator_runtime.store import CommitGroup, Family, Mutation, Store, StoreReads, StoreRefused

if TYPE_CHECKING:
    from coordinator_runtime.slate.store import SlateStore

GROUP_BYTES: Final = 1 << 20
_KEYS_END: Final = b"\xff" * 64
_OF_THE_ENGINE: Final = frozenset(
    {FORMAT_VERSION_KEY, SHARD_COUNT_KEY, GROUP_VERSION_KEY, INCARNATION_KEY, UNFINISHED_KEY}
)

_Rows: TypeAlias = Iterator[tuple[Family, bytes, bytes]]
Watch: TypeAlias = Callable[[str, _Rows, int | None], _Rows]
"""Iterator over rows that shows the progress of the work on them. Its arguments are the verb of the work, the rows, and
their number if it is known."""


def unwatched(_verb: str, rows: _Rows, _total: int | None) -> _Rows:
    """Return the rows, without a look at their progress."""
    return rows


def migrate_to_bucket(
    source: Path, target: StoreLocation, *, clock: Clock, pause: Callable[[int], None], watch: Watch = unwatched
) -> tuple[int, Incarnation]:
    """Copy the store of a stopped server into a bucket, where no store may be. Returns the number of rows, and the
    incarnation that the copy begins. Raises StoreRefused."""
    from coordinator_runtime.slate.opening import is_store_at, open_slate_stopped

    with closing(open_read_only(source)) as original:
        if original.loss is not None:
            raise StoreRefused(f"the store in {source} is not whole: {original.loss}")
        if is_store_at(target):
            raise StoreRefused(f"there is a store at {target.address}, or a part of one: name another prefix")
        store_id = original.identity.store_id
        with closing(_opened(target, original.shard_count, store_id, clock)) as copy:
            copy.put_meta(UNFINISHED_KEY, b"")
            count, incarnation = _copied(original, copy, clock, watch)
        stopped = open_slate_stopped(target)
        with closing(stopped):
            _compare(watch("compared", _rows_of(original), count), stopped, target.address)
        with closing(_opened(target, original.shard_count, store_id, clock)) as copy:
            copy.put_meta(UNFINISHED_KEY, None)
    pause(max(0, next_beginning_ms(incarnation) - clock.wall_ms()))
    return count, incarnation


def migrate_to_directory(
    source: StoreLocation, target: Path, *, clock: Clock, pause: Callable[[int], None], watch: Watch = unwatched
) -> tuple[int, Incarnation]:
    """Copy the store in a bucket into an empty directory. Its server is fenced first, so that it acknowledges nothing
    more. Returns as `migrate_to_bucket`. Raises StoreRefused."""
    from coordinator_runtime.slate.opening import open_slate_stopped

    directory = StoreDirectory(target)
    with refused_in_words(target):
        if target.exists() and any(target.iterdir()):
            raise StoreRefused(f"{target} is not empty: name an empty directory, or a new one")
    with closing(open_slate_stopped(source)) as looked_at:
        shard_count = looked_at.shard_count
    with closing(_opened(source, shard_count, None, clock)) as original:
        with refused_in_words(target):
            directory.create()
            directory.restoring_path.touch()
            directory.sync()
        copy = open_store(target, shard_count=shard_count, begins=IncarnationCause.RESTORE, wall_ms=clock.wall_ms)
        with closing(copy):
            count, incarnation = _copied(original, copy, clock, watch)
            _compare(watch("compared", _rows_of(original), count), copy, str(target))
    with refused_in_words(target):
        directory.restoring_path.unlink()
        directory.sync()
    pause(max(0, next_beginning_ms(incarnation) - clock.wall_ms()))
    return count, incarnation


def _opened(location: StoreLocation, shard_count: int, copy_of: bytes | None, clock: Clock) -> SlateStore:
    from coordinator_runtime.slate.opening import open_slate_store

    return open_slate_store(location, shard_count=shard_count, clock=clock, copy_of=copy_of)


def _copied(original: StoreReads, copy: Store, clock: Clock, watch: Watch) -> tuple[int, Incarnation]:
    """Copy all rows, and begin another incarnation in the copy."""
    incarnation = next_incarnation(original.incarnation, IncarnationCause.RESTORE, clock.wall_ms())
    count, size, rows = 0, 0, list[Mutation]()
    for family, key, value in watch("copied", _rows_of(original), None):
        rows.append((family, key, value))
        count += 1
        size += len(key) + len(value)
        if size >= GROUP_BYTES:
            copy.write([CommitGroup(copy.version() + 1, rows)])
            copy.sync()
            size, rows = 0, []
    rows.append((Family.META, INCARNATION_KEY, stored_incarnation(incarnation)))
    copy.write([CommitGroup(copy.version() + 1, rows)])
    copy.sync()
    return count, incarnation


def _rows_of(store: StoreReads) -> _Rows:
    """Yield all rows but those that an engine keeps for itself."""
    for family in Family:
        for key, value in store.scan(family, b"", _KEYS_END):
            if family is Family.META and (key in _OF_THE_ENGINE or key.startswith((NAMED_PREFIX, LENGTH_PREFIX))):
                continue
            yield family, key, value


def _compare(original: _Rows, copy: StoreReads, place: str) -> None:
    """Compare all rows. Raises StoreRefused."""
    for there, here in zip_longest(original, _rows_of(copy)):
        if there != here:
            family, key, _value = there or here or (Family.META, b"", b"")
            raise StoreRefused(
                f"the copy at {place} differs at {key!r} of {family.name}: it cannot be opened; remove it"
            )
