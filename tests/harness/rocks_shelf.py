"""RocksDB as a world's store: what was written before the crash is found after it."""

from __future__ import annotations

import shutil
from pathlib import Path

from coordinator_runtime import backups
from coordinator_runtime.incarnation import IncarnationCause
from coordinator_runtime.rocks import RocksStore, StoreOptions, open_store
from tests.harness.manual_clock import ManualClock

SHARD_COUNT = 2


class RocksShelf:
    """A store in a directory, closed and opened again where the memory store would crash."""

    def __init__(self, path: Path, options: StoreOptions | None = None) -> None:
        self._path = path
        self._options = options
        self.store: RocksStore = self._opened()

    def _opened(self) -> RocksStore:
        return open_store(self._path, shard_count=SHARD_COUNT, options=self._options)

    def crash(self) -> RocksStore:
        self.store.close()
        self.store = self._opened()
        return self.store

    def back_up(self, wall_ms: int) -> Path:
        """A real one; there can be one for each millisecond."""
        directory = self._path.with_name("backups")
        checkpoint = self.store.checkpoint()
        try:
            return directory / backups.create_backup(checkpoint, directory, now_ms=wall_ms).name
        finally:
            checkpoint.remove()

    def restore(self, backup: Path, wall_ms: int, cause: IncarnationCause) -> None:
        """The way of `txnctl restore`."""
        assert cause is IncarnationCause.RESTORE, "only a restore begins a line here"
        self.store.close()
        shutil.rmtree(self._path)
        clock = ManualClock(wall_ms=wall_ms)
        backups.restore(backup, self._path, clock=clock, pause=clock.advance)
        self.store = self._opened()

    def close(self) -> None:
        self.store.close()
