"""A store in memory that loses unsynced writes on a crash, and fails on request.

The same behaviour suite runs on it and on RocksDB (`tests/store/test_store_behaviour.py`). It differs in one thing:
META holds no rows of the store's own.

Simulation takes millions of steps on it, so everything costs what changed and not what is stored: sorted key lists with
`bisect`, an undo journal for what is not synced, scans that read in place. A write changes copies of what a scan reads.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from enum import Enum, auto
from typing import Final

from coordinator_protocol.batch import cut_row
from coordinator_runtime.incarnation import FIRST, Incarnation, IncarnationCause, next_incarnation
from coordinator_runtime.slate.retired import RetiredRanges
from coordinator_runtime.store import CommitGroup, Family, KeyRange, StoreDamaged, StoreFailed, StoreUnreadable
from tests.harness.patience import DEADLINE_SECONDS

_KEY_BYTES_MAX = 4096

_Undo = list[tuple[Family, bytes, bytes | None]]
"""Values before the change of each key of one commit group, in the order of the changes."""


LARGE_BYTES_MIN: Final = 32 * 1024
"""Size from which a row of LOG is cut where headers are enough, as if it lay in a segment."""


class Damage(Enum):
    """Damage of a stored row, as far as its reader can tell."""

    VALUE = auto()
    """The key can be read and the value cannot, as of a value in a damaged segment."""
    BLOCK = auto()
    """It lies in a block that fails its checksum; read without that, one bit of the value is wrong."""
    HEALTHY_IN_BLOCK = auto()
    """It lies in such a block, and is whole."""
    LOST = auto()
    """Its block cannot be made out at all."""
    UNREADABLE = auto()
    """Nothing is wrong with it: the process cannot read it now."""


class _SortedFamily:
    """Keys in order beside their values."""

    __slots__ = ("damage", "is_scanned", "keys", "name", "values")

    def __init__(self, family: Family) -> None:
        self.name = family
        self.keys: list[bytes] = []
        self.values: dict[bytes, bytes] = {}
        self.damage: dict[bytes, Damage] = {}
        self.is_scanned = False
        """Scans may still read these keys and values: the next change is made to copies."""

    def is_large(self, key: bytes, value: bytes) -> bool:
        """Return whether a value would lie in a segment. One that is damaged as only those in segments are does."""
        is_long = len(value) >= LARGE_BYTES_MIN and key not in self.damage
        return self.name is Family.LOG and (is_long or self.damage.get(key) is Damage.VALUE)

    def read(self, key: bytes, value: bytes, *, is_verified: bool = True) -> bytes:
        """Return what a reader gets for a stored value. Raises StoreDamaged, StoreUnreadable."""
        if not self.damage:
            return value
        match self.damage.get(key):
            case None:
                return value
            case Damage.UNREADABLE:
                raise StoreUnreadable(f"{self.name.name} cannot be read now: Too many open files")
            case Damage.VALUE:
                raise StoreDamaged(self.name, "a segment does not hold what was written", key)
            case Damage.BLOCK if not is_verified:
                middle = len(value) // 2
                return value[:middle] + bytes([value[middle] ^ 1]) + value[middle + 1 :]
            case Damage.HEALTHY_IN_BLOCK if not is_verified:
                return value
            case _:
                raise StoreDamaged(self.name, "block checksum mismatch")

    def last_key(self, prefix: bytes) -> bytes | None:
        """The greatest key that starts with the prefix."""
        # No key is longer than the padding, so this is beyond every key that starts with the prefix.
        position = bisect_left(self.keys, prefix + b"\xff" * _KEY_BYTES_MAX) - 1
        return self.keys[position] if position >= 0 and self.keys[position].startswith(prefix) else None

    def put(self, key: bytes, value: bytes | None) -> bytes | None:
        """Set the value, or delete the key for None; returns what was there."""
        if self.is_scanned:
            self.keys, self.values, self.is_scanned = self.keys.copy(), self.values.copy(), False
        if self.damage:
            self.damage.pop(key, None)
        if value is None:
            before = self.values.pop(key, None)
            if before is not None:
                del self.keys[bisect_left(self.keys, key)]
            return before
        before = self.values.get(key)
        if before is None:
            if not self.keys or key > self.keys[-1]:
                self.keys.append(key)
            else:
                insort(self.keys, key)
        self.values[key] = value
        return before


class _Scan(Iterator[tuple[bytes, bytes]]):
    """Rows as of its making: the keys and values that the family has then are not changed any more."""

    __slots__ = (
        "_end",
        "_family",
        "_is_backwards",
        "_is_cut",
        "_is_verified",
        "_keys",
        "_position",
        "_store",
        "_values",
    )

    def __init__(
        self,
        family: _SortedFamily,
        start: bytes,
        end: bytes,
        store: MemoryStore,
        *,
        is_backwards: bool = False,
        is_verified: bool = True,
        is_cut: bool = False,
    ) -> None:
        self._is_cut = is_cut
        self._is_backwards = is_backwards
        self._is_verified = is_verified
        self._store = store
        self._family, self._keys, self._values = family, family.keys, family.values
        self._position, self._end = bisect_left(family.keys, start), bisect_left(family.keys, end)
        family.is_scanned = True

    def __next__(self) -> tuple[bytes, bytes]:
        position = self._position
        if position >= self._end or self._store.has_crashed:
            raise StopIteration
        if self._is_backwards:
            position = self._end = self._end - 1
        else:
            self._position = position + 1
        key = self._keys[position]
        value = self._values[key]
        if self._is_cut and self._family.is_large(key, value):
            return key, cut_row(value)
        return key, self._family.read(key, value, is_verified=self._is_verified)


class HeldSync:
    """One sync of a MemoryStore, held back until the test lets it go. For tests with a commit thread."""

    def __init__(self) -> None:
        self._arrived = threading.Event()
        self._released = threading.Event()

    def wait_until_arrived(self) -> None:
        """Return once the commit thread stands in the sync."""
        self._arrived.wait()

    def release(self) -> None:
        self._released.set()

    def stand_here(self) -> None:
        """The store's side: wait for the release."""
        self._arrived.set()
        assert self._released.wait(DEADLINE_SECONDS), "a held sync was never released"


class MemoryStore:
    """The store port in memory. Starts no thread, draws no random number; two threads may use it, as the port says."""

    def __init__(self, incarnation: Incarnation = FIRST) -> None:
        self.incarnation = incarnation
        self._families = [_SortedFamily(family) for family in Family]
        self._unsynced: list[_Undo] = []
        self._version = 0
        self._failure: Exception | None = None
        self._next_write_error: OSError | None = None
        self._next_sync_error: OSError | None = None
        self._held_sync: HeldSync | None = None
        self._retired: list[tuple[int, KeyRange]] = []
        """Every deleted range, with the version of its group."""
        self._closed_ranges = RetiredRanges()
        """The same ranges, in which no later group may put a row."""
        self.has_crashed = False
        # A reader on the loop thread must not see half a batch of the commit thread.
        self._lock = threading.Lock()

    def write(self, groups: Sequence[CommitGroup]) -> None:
        self._check_usable()
        for expected, group in enumerate(groups, self._version + 1):
            assert group.version == expected, f"group {group.version} was handed over where {expected} is next"
        with self._lock:
            for group in groups:
                self._unsynced.append(self._apply(group))
                self._version = group.version
        if self._next_write_error is not None:
            # Applied nevertheless: the system may have written it although it said it had not, so a crash may keep it.
            raise self._failed(self._next_write_error) from self._next_write_error

    def sync(self) -> None:
        self._check_usable()
        held, self._held_sync = self._held_sync, None
        if held is not None:
            held.stand_here()
            self._check_usable()
        if self._next_sync_error is not None:
            raise self._failed(self._next_sync_error) from self._next_sync_error
        self._unsynced.clear()

    def version(self) -> int:
        self._check_usable()
        return self._version

    def get(self, family: Family, key: bytes) -> bytes | None:
        self._check_usable()
        with self._lock:
            stored = self._families[family]
            value = stored.values.get(key)
            return None if value is None else stored.read(key, value)

    def scan(self, family: Family, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        self._check_usable()
        with self._lock:
            return _Scan(self._families[family], start, end, self)

    def scan_headers(self, family: Family, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        self._check_usable()
        with self._lock:
            return _Scan(self._families[family], start, end, self, is_cut=True)

    def scan_unverified(self, family: Family, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        self._check_usable()
        with self._lock:
            return _Scan(self._families[family], start, end, self, is_verified=False)

    def scan_backwards(self, family: Family, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        self._check_usable()
        with self._lock:
            return _Scan(self._families[family], start, end, self, is_backwards=True)

    def last(self, family: Family, prefix: bytes) -> tuple[bytes, bytes] | None:
        self._check_usable()
        with self._lock:
            stored = self._families[family]
            key = stored.last_key(prefix)
            return None if key is None else (key, stored.read(key, stored.values[key]))

    def last_key(self, family: Family, prefix: bytes) -> bytes | None:
        self._check_usable()
        with self._lock:
            stored = self._families[family]
            key = stored.last_key(prefix)
            # A value in a segment is not looked at. Anything else lies in the block of its key.
            if key is not None and stored.damage.get(key) not in (None, Damage.VALUE):
                stored.read(key, stored.values[key])
            return key

    def close(self) -> None:
        if self._failure is None:
            self.sync()
            self._failure = RuntimeError("the store is closed")

    @property
    def unsynced_groups(self) -> int:
        """Number of the newest groups that a crash may lose."""
        return len(self._unsynced)

    def crash(self, *, kept_groups: int = 0) -> MemoryStore:
        """Return the store that a restart finds: everything synced, and the first `kept_groups` of the rest, because
        the system may have written them. This store is unusable from now on; one that was closed loses nothing."""
        assert 0 <= kept_groups <= len(self._unsynced), f"only {len(self._unsynced)} groups are not synced"
        found = MemoryStore(self.incarnation)
        with self._lock:
            lost = self._unsynced[kept_groups:]
            for undo in reversed(lost):
                for family, key, before in reversed(undo):
                    self._families[family].put(key, before)
            found._families, self._families = self._families, found._families
            found._version = self._version - len(lost)
            found._retire(self._retired)
            self._unsynced.clear()
            self.has_crashed = True
        self._failure = self._failure or RuntimeError("the process that had this store has crashed")
        return found

    def copy(self) -> MemoryStore:
        """A backup: all that is written now."""
        made = MemoryStore(self.incarnation)
        with self._lock:
            for family, kept in zip(self._families, made._families, strict=True):
                kept.keys, kept.values = family.keys.copy(), family.values.copy()
            made._version = self._version
            made._retire(self._retired)
        return made

    def _retire(self, retired: Sequence[tuple[int, KeyRange]]) -> None:
        """Take over those ranges that were retired up to the version of this store."""
        for version, key_range in retired:
            if version <= self._version:
                self._retired.append((version, key_range))
                self._closed_ranges.add(*key_range)

    def begin_incarnation(self, cause: IncarnationCause, wall_ms: int) -> None:
        """Another line of history begins, as where a store was opened with less than had been durable."""
        self.incarnation = next_incarnation(self.incarnation, cause, wall_ms)

    def damage(self, family: Family, key: bytes, damage: Damage) -> None:
        """From now on reads of this row find it so, until it is written again."""
        stored = self._families[family]
        assert key in stored.values, "only what is stored can be damaged"
        stored.damage[key] = damage

    def hold_sync(self) -> HeldSync:
        """Hold the next sync back."""
        self._held_sync = HeldSync()
        return self._held_sync

    def fail_next_sync(self, error: OSError) -> None:
        """Let the next sync fail, and then everything."""
        self._next_sync_error = error

    def fail_next_write(self, error: OSError) -> None:
        """Let the next write fail, and then everything."""
        self._next_write_error = error

    def _apply(self, group: CommitGroup) -> _Undo:
        families, end_of = self._families, self._closed_ranges.end_of
        for family, key, value in group.mutations:
            assert value is None or end_of(family, key) is None, f"{key!r} of {family.name} lies in a retired range"
        undo: _Undo = [(family, key, families[family].put(key, value)) for family, key, value in group.mutations]
        for family, start, end in group.deleted_ranges:
            keys = families[family].keys
            for key in keys[bisect_left(keys, start) : bisect_left(keys, end)]:
                undo.append((family, key, families[family].put(key, None)))
            self._retired.append((group.version, (family, start, end)))
            self._closed_ranges.add(family, start, end)
        return undo

    def _check_usable(self) -> None:
        if self._failure is not None:
            raise self._failed(self._failure) from self._failure

    def _failed(self, cause: Exception) -> StoreFailed:
        if self._failure is None:
            self._failure = cause
        return StoreFailed(f"the memory store failed: {self._failure}")
