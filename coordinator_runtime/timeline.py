"""State with a live and a durable reading, from which one operation can be taken back.

A shard changes state in `replay` only, and replay happens before the records are on disk. So two readings of the same
state exist: the *live* one, on which the next operation decides, and the *durable* one, which readers see (design 5).
And a refused operation must leave nothing behind. Both need the value that was there before. Every change puts it into
one journal, shared by all state of the runtime. Making a group durable drops the journal's head; taking an operation
back pops its tail (spec log-and-runtime 4.2).

Values must be immutable, because old ones are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, KeysView
from contextlib import contextmanager
from typing import Any, Final, Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class _Absent:
    """Type of the marker for "no value was there"."""

    __slots__ = ()


_ABSENT: Final = _Absent()


class Journal:
    """The undo journal of one runtime: the values that changes replaced, in order.

    A durable reading needs the oldest value of each key in it. `index_replaced` looks these up before such a reading,
    and not with every change: most changes are on disk before anyone reads them."""

    __slots__ = ("_entries", "_first", "_indexed", "is_loading")

    def __init__(self) -> None:
        self._entries: list[tuple[TimelineMap[Any, Any], Any, Any]] = []
        """Entries: the map, the key and its old value."""
        self._first = 0
        """Position of the oldest entry; positions never repeat."""
        self._indexed = 0
        """Number of entries, the oldest ones, that are also in `_replaced` of their maps."""
        self.is_loading = False
        """True while changes are read back from the store: they are durable as they are made, and never taken back."""

    @contextmanager
    def loading(self) -> Iterator[None]:
        """Mark the time in which a shard is replayed from the store. Undurable changes of other shards are kept."""
        self.is_loading = True
        try:
            yield
        finally:
            self.is_loading = False

    def position(self) -> int:
        """Return the position of the next change, as a savepoint."""
        return self._first + len(self._entries)

    def roll_back(self, position: int) -> None:
        """Undo every change made since the position was taken."""
        entries, kept = self._entries, position - self._first
        while len(entries) > kept:
            timeline, key, old = entries.pop()
            timeline._undo(key, old, is_indexed=len(entries) < self._indexed)
        self._indexed = min(self._indexed, len(entries))

    def make_durable(self, position: int) -> None:
        """Forget the values replaced by changes before the position, which are on disk."""
        count = position - self._first
        if count <= 0:
            return
        for timeline, key, _old in self._entries[: min(count, self._indexed)]:
            timeline._forget_oldest(key)
        del self._entries[:count]
        self._first = position
        self._indexed = max(0, self._indexed - count)

    def index_replaced(self) -> None:
        """Add the entries that are not indexed yet to `_replaced` of their maps, so that these tell what is durable."""
        entries = self._entries
        if self._indexed < len(entries):
            for timeline, key, old in entries[self._indexed :]:
                timeline._replaced.setdefault(key, []).append(old)
            self._indexed = len(entries)


class TimelineMap(Generic[K, V]):
    """A mapping with a live and a durable reading.

    Live iteration is in order of insertion, except that a key whose removal was taken back comes last. With
    `keys_ascend` the caller inserts keys in ascending order and relies on iterating in that order. Taking back a
    removal, which is rare, then restores the order by a sort.

    Every operation reads and changes several of these maps. So `get` and `put`, which it uses, call nothing else."""

    __slots__ = ("_journal", "_keys_ascend", "_live", "_replaced", "get")

    def __init__(self, journal: Journal, *, keys_ascend: bool = False) -> None:
        self._journal = journal
        self._keys_ascend = keys_ascend
        self._live: dict[K, V] = {}
        self._replaced: dict[K, list[V | _Absent]] = {}
        """Values that undurable changes replaced, by key, oldest first. Complete after `Journal.index_replaced`."""
        self.get: Callable[[K], V | None] = self._live.get
        """Return the live value, or None."""

    def __contains__(self, key: K) -> bool:
        return key in self._live

    def __len__(self) -> int:
        return len(self._live)

    @property
    def is_gone(self) -> bool:
        """True if it is empty, live and durable, and nothing can be taken back: its holder may drop it."""
        if self._live:
            return False
        self._journal.index_replaced()
        return not self._replaced

    def keys(self) -> KeysView[K]:
        """Return the live keys, as a view: set operations on it run without Python code per key."""
        return self._live.keys()

    def items(self) -> Iterator[tuple[K, V]]:
        return iter(self._live.items())

    def values(self) -> Iterator[V]:
        return iter(self._live.values())

    def put(self, key: K, value: V) -> None:
        """Set a value. Only `replay` calls this."""
        live, journal = self._live, self._journal
        if not journal.is_loading:
            journal._entries.append((self, key, live.get(key, _ABSENT)))
        live[key] = value

    def remove(self, key: K) -> None:
        """Remove a key, if it is there. Only `replay` calls this."""
        old = self._live.pop(key, _ABSENT)
        if old is not _ABSENT and not self._journal.is_loading:
            self._journal._entries.append((self, key, old))

    def durable(self, key: K) -> V | None:
        """Return the newest value that is on disk."""
        journal = self._journal
        if journal._indexed < len(journal._entries):
            journal.index_replaced()
        if key not in self._replaced:
            return self._live.get(key)
        oldest = self._replaced[key][0]
        return None if isinstance(oldest, _Absent) else oldest

    def durable_items(self) -> Iterator[tuple[K, V]]:
        """Yield all keys and values that are on disk."""
        self._journal.index_replaced()
        for key, value in self._live.items():
            if key not in self._replaced:
                yield key, value
        for key, replaced in self._replaced.items():
            oldest = replaced[0]
            if not isinstance(oldest, _Absent):
                yield key, oldest

    def durable_copy(self) -> dict[K, V]:
        """Return a copy of all keys and values that are on disk now. Costs next to nothing per key."""
        self._journal.index_replaced()
        found = self._live.copy()
        for key, replaced in self._replaced.items():
            oldest = replaced[0]
            if isinstance(oldest, _Absent):
                found.pop(key, None)
            else:
                found[key] = oldest
        return found

    def _undo(self, key: K, old: V | _Absent, *, is_indexed: bool) -> None:
        if isinstance(old, _Absent):
            del self._live[key]
        elif self._keys_ascend and key not in self._live:
            items = sorted([*self._live.items(), (key, old)], key=lambda item: item[0])  # type: ignore[arg-type,return-value]  # ascending keys are comparable
            self._live.clear()
            self._live.update(items)
        else:
            self._live[key] = old
        if is_indexed:
            replaced = self._replaced[key]
            replaced.pop()
            if not replaced:
                del self._replaced[key]

    def _forget_oldest(self, key: K) -> None:
        replaced = self._replaced[key]
        del replaced[0]
        if not replaced:
            del self._replaced[key]
