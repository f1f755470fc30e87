"""Waits for the thread that gives room back."""

from __future__ import annotations

from coordinator_runtime.rocks import RocksStore
from coordinator_runtime.rocks.reclaim import Reclaimer


def finish_reclaiming(store: RocksStore) -> None:
    """Return once the files are gone that no row names. What waits to be compacted goes on waiting."""
    before = store._reclaimer
    before.close(lambda: None)
    store._reclaimer = Reclaimer(before._store)
    store._reclaimer.note((*key, end) for key, end in before._ranges.items())
