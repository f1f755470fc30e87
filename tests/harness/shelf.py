"""Keeping the store of a world between two lives of the process."""

from __future__ import annotations

from typing import Any, Protocol, cast

from coordinator_runtime.incarnation import IncarnationCause
from coordinator_runtime.store import Store
from tests.harness.memory_store import MemoryStore


class Shelf(Protocol):
    """Keeps the store between two lives of the process."""

    @property
    def store(self) -> Store: ...

    def crash(self) -> Store:
        """The store as the next process finds it: with what was written. The old one is unusable."""
        ...

    def back_up(self, wall_ms: int) -> Any:
        """A backup of what is written now, for `restore` of the same shelf."""
        ...

    def restore(self, backup: Any, wall_ms: int, cause: IncarnationCause) -> None:
        """A backup takes the place of the store, which is lost."""
        ...


class CrashingStore(Store, Protocol):
    """A store that a test copies, and lets crash."""

    @property
    def unsynced_groups(self) -> int:
        """Number of the newest groups that a crash may lose."""
        ...

    def crash(self, *, kept_groups: int = 0) -> CrashingStore:
        """The store as the next process finds it: what was synced, and the first groups of what was not."""
        ...

    def copy(self) -> CrashingStore:
        """A backup of what is written now."""
        ...

    def begin_incarnation(self, cause: IncarnationCause, wall_ms: int) -> None:
        """Begin another line of history, as a restore does."""
        ...


def crashing(store: Store) -> CrashingStore:
    """Take a store for one that a test may let crash, whichever engine it is of."""
    return cast("CrashingStore", store)


class MemoryShelf:
    """A store in memory."""

    def __init__(self) -> None:
        self.store = MemoryStore()

    def crash(self) -> MemoryStore:
        self.store = self.store.crash(kept_groups=self.store.unsynced_groups)
        return self.store

    def back_up(self, wall_ms: int) -> MemoryStore:
        return self.store.copy()

    def restore(self, backup: MemoryStore, wall_ms: int, cause: IncarnationCause) -> None:
        """A copy takes the place of the store, which is lost."""
        self.crash()
        self.store = backup.copy()
        self.store.begin_incarnation(cause, wall_ms)

    def crash_after_failure(self, kept_groups: int) -> None:
        """A sync failed: of what was written since the last good one, the disk has the first groups, or none."""
        self.store = self.store.crash(kept_groups=min(kept_groups, self.store.unsynced_groups))
