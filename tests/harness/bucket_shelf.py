"""A bucket as a world's store. A crash is the worst one: the old server lives on, and the new one fences it."""

from __future__ import annotations

from itertools import count

from coordinator_runtime.incarnation import IncarnationCause
from coordinator_runtime.slate.location import parse_location
from coordinator_runtime.slate.opening import open_slate_store
from coordinator_runtime.slate.store import SlateStore

SHARD_COUNT = 2
_numbers = count()


class BucketShelf:
    """A store in memory, behind SlateDB, that is opened again while its former server still has it."""

    def __init__(self) -> None:
        self._location = parse_location(f"memory:shelf-{next(_numbers)}")
        self.store: SlateStore = self._opened()

    def _opened(self) -> SlateStore:
        return open_slate_store(self._location, shard_count=SHARD_COUNT)

    def crash(self) -> SlateStore:
        # All written groups are found, as on the other shelves.
        self.store.sync()
        self.store = self._opened()
        return self.store

    def back_up(self, wall_ms: int) -> None:
        """No scenario of a bucket backs up."""
        raise NotImplementedError("a bucket is backed up by its versions")

    def restore(self, backup: None, wall_ms: int, cause: IncarnationCause) -> None:
        """No scenario of a bucket restores."""
        raise NotImplementedError("a bucket is backed up by its versions")

    def close(self) -> None:
        self.store.close()
