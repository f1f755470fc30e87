"""The backup of an open RocksDB store: a checkpoint from links to its files, and a copy of that."""

from __future__ import annotations

from coordinator_runtime.backups.creation import create_backup
from coordinator_runtime.backups.manifest import Manifest
from coordinator_runtime.backups.order import BackupOrder
from coordinator_runtime.rocks.durable_mark import read_mark
from coordinator_runtime.rocks.store import RocksStore


def make_rocks_backup(store: RocksStore, order: BackupOrder) -> Manifest:
    """Make a backup of an open store, as `MakeBackup`."""
    checkpoint = store.checkpoint()
    try:
        order.on_version(read_mark(checkpoint.durable_mark_path).version)
        return create_backup(
            checkpoint,
            order.shelf,
            now_ms=order.now_ms,
            is_independent=order.is_independent,
            progress=order.progress,
        )
    finally:
        checkpoint.remove()
