"""Trims the history of shards by age: whole rows, from the beginning. The newest row, which holds the number of the
next step, always stays.

A row is as old as its first step. If the wall clock was set back, rows may go a little early or late.

Source: docs/store-format.md, "HISTORY: steps in order".
"""

from __future__ import annotations

from functools import partial
from typing import Final

from coordinator_runtime.decision import ShardKey
from coordinator_runtime.rounds import Steps, awaited
from coordinator_runtime.rows import StagedRows, older_history
from coordinator_runtime.runtime import Runtime
from coordinator_runtime.store import KeyRange, StoreReads, StoreUnreadable
from coordinator_runtime.store_readers import StoreReader

HISTORY_RETENTION_MS: Final = 30 * 86_400_000
HISTORY_INTERVAL_MS: Final = 600_000
"""Pause between two rounds (ms)."""
FOR_EVER: Final = -1
"""Retention of a history that is never trimmed."""


class HistoryTrim:
    """Trims the history of all shards that serve here."""

    def __init__(self, runtime: Runtime, reader: StoreReader, retention_ms: int) -> None:
        self._runtime = runtime
        self._reader = reader
        self._retention_ms = retention_ms

    def round(self) -> Steps:
        """Look at every shard once, one in each step."""
        if self._retention_ms == FOR_EVER:
            return
        for shard in tuple(self._runtime.table.served):
            before_ms = self._runtime.clock.wall_ms() - self._retention_ms
            try:
                old = yield from awaited(self._reader.read(partial(_older, shard, before_ms)))
            except StoreUnreadable:
                # The error is reported to a reader of the history. Rows that cannot be read stay.
                old = None
            if old is not None and shard in self._runtime.table.served:
                self._runtime.write_rows(shard, StagedRows(deleted_ranges=[old]))
            yield None


def _older(shard: ShardKey, before_ms: int, rows: StoreReads) -> KeyRange | None:
    return older_history(rows, shard, before_ms)
