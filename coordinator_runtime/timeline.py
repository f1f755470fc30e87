"""State that knows what is durable, and can take one operation back.

A shard changes state in `replay` only, and replay happens before the records are on disk. So two readings of the same
state exist: the *live* one, on which the next operation decides, and the *durable* one, which readers see (design 5).
And an operation that is refused half-way must leave nothing behind. Both need the same thing: the value that was there
before. Every change puts it into one journal shared by all state of the runtime; making a group durable drops the
journal's head, taking an operation back pops its tail (spec log-and-runtime 4.2).

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
    """The undo journal of one runtime: what every change replaced, in order."""

    __slots__ = ("_entries", "_first", "is_loading")

    def __init__(self) -> None:
        self._entries: list[tuple[TimelineMap[Any, Any], Any, Any]] = []
        self._first = 0
        """Position of the oldest entry; positions never repeat."""
        self.is_loading = False
        """Changes are read back from the store: durable as they are made, and never taken back."""

    @contextmanager
    def loading(self) -> Iterator[None]:
        """While a shard is replayed from the store. Others may have undurable changes at that moment, and keep them."""
        self.is_loading = True
        try:
            yield
        finally:
            self.is_loading = False

    def position(self) -> int:
        """Where the next change will be noted: a savepoint."""
        return self._first + len(self._entries)

    def roll_back(self, position: int) -> None:
        """Undo every change made since the position was taken."""
        while self.position() > position:
            timeline, key, old = self._entries.pop()
            timeline._undo(key, old)

    def make_durable(self, position: int) -> None:
        """Every change before the position is on disk: forget what it replaced."""
        count = position - self._first
        if count <= 0:
            return
        for timeline, key, _old in self._entries[:count]:
            undurable = timeline._replaced
            replaced = undurable[key]
            del replaced[0]
            if not replaced:
                del undurable[key]
        del self._entries[:count]
        self._first = position


class TimelineMap(Generic[K, V]):
    """A mapping with a live and a durable reading.

    Live iteration is in order of insertion. With `keys_ascend` the caller inserts keys in ascending order and relies on
    iterating in that order: then taking back a removal, which is rare, restores the order.

    Every operation reads and changes several of these, so `get` and `put`, the two ways it takes, call nothing else."""

    __slots__ = ("_journal", "_keys_ascend", "_live", "_replaced", "get")

    def __init__(self, journal: Journal, *, keys_ascend: bool = False) -> None:
        self._journal = journal
        self._keys_ascend = keys_ascend
        self._live: dict[K, V] = {}
        self._replaced: dict[K, list[V | _Absent]] = {}
        """Per key with undurable changes: the values they replaced, oldest first."""
        self.get: Callable[[K], V | None] = self._live.get
        """The live value, or None."""

    def __contains__(self, key: K) -> bool:
        return key in self._live

    def __len__(self) -> int:
        return len(self._live)

    @property
    def is_gone(self) -> bool:
        """Nothing is in it, live or durable, and nothing can be taken back: whoever holds it may drop it."""
        return not self._live and not self._replaced

    def keys(self) -> KeysView[K]:
        """Live. For set operations, which cost nothing per key of ours."""
        return self._live.keys()

    def items(self) -> Iterator[tuple[K, V]]:
        return iter(self._live.items())

    def values(self) -> Iterator[V]:
        return iter(self._live.values())

    def put(self, key: K, value: V) -> None:
        """Set a value. Only `replay` calls this."""
        live = self._live
        old = live.get(key, _ABSENT)
        live[key] = value
        journal = self._journal
        if journal.is_loading:
            return
        undurable = self._replaced
        if key in undurable:
            undurable[key].append(old)
        else:
            undurable[key] = [old]
        journal._entries.append((self, key, old))

    def remove(self, key: K) -> None:
        """Take a key out, if it is there. Only `replay` calls this."""
        old = self._live.pop(key, _ABSENT)
        if old is _ABSENT or self._journal.is_loading:
            return
        self._replaced.setdefault(key, []).append(old)
        self._journal._entries.append((self, key, old))

    def durable(self, key: K) -> V | None:
        """The newest value that is on disk."""
        replaced = self._replaced.get(key)
        if replaced is None:
            return self._live.get(key)
        oldest = replaced[0]
        return None if isinstance(oldest, _Absent) else oldest

    def is_durable(self, key: K) -> bool:
        """True when the live value of the key is the durable one."""
        return key not in self._replaced

    def durable_items(self) -> Iterator[tuple[K, V]]:
        """All keys and values that are on disk."""
        for key, value in self._live.items():
            if key not in self._replaced:
                yield key, value
        for key, replaced in self._replaced.items():
            oldest = replaced[0]
            if not isinstance(oldest, _Absent):
                yield key, oldest

    def _undo(self, key: K, old: V | _Absent) -> None:
        if isinstance(old, _Absent):
            del self._live[key]
        elif self._keys_ascend and key not in self._live:
            items = sorted([*self._live.items(), (key, old)], key=lambda item: item[0])  # type: ignore[arg-type,return-value]  # ascending keys are comparable
            self._live.clear()
            self._live.update(items)
        else:
            self._live[key] = old
        replaced = self._replaced[key]
        replaced.pop()
        if not replaced:
            del self._replaced[key]
