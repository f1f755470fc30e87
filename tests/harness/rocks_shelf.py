"""RocksDB as a world's store: what was written before the crash is found after it."""

from __future__ import annotations

from pathlib import Path

from coordinator_runtime.rocks import RocksStore, open_store

SHARD_COUNT = 2


class RocksShelf:
    """A store in a directory, closed and opened again where the memory store would crash."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.store: RocksStore = open_store(path, shard_count=SHARD_COUNT)

    def crash(self) -> RocksStore:
        self.store.close()
        self.store = open_store(self._path, shard_count=SHARD_COUNT)
        return self.store

    def close(self) -> None:
        self.store.close()
