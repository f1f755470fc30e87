"""Observer of changes of shards, which updates the metrics and writes the log."""

from __future__ import annotations

from typing import Final

import structlog

from coordinator_runtime.decision import ShardKey
from coordinator_runtime.loader import ShardChange, ShardLoaded, ShardLoadFailed, ShardStopped, ShardUnloaded
from coordinator_runtime.ports import CallContext
from coordinator_runtime.store import StoreUnreadable
from coordinator_runtime.unknown_rows import UnknownRow
from coordinator_server.metrics.readings import ServerNumbers
from txn_coordinator.shard import TransactionShard

US: Final = 1_000
START_LINE_US: Final = 2_000_000
"""Interval between lines on the progress of a start (us). A start that takes less time logs none."""

_log = structlog.get_logger("shards")


class ShardObserver:
    """Passes changes of shards on to the metrics and to the log."""

    def __init__(self, numbers: ServerNumbers) -> None:
        self._numbers = numbers
        self.is_start_over = False
        """True once the server has started. Until then loaded shards have no lines of their own; the code that starts
        the server logs one for all of them."""
        self.shards_to_load = 0
        """Number of shards that the start loads."""
        self._start_shards = self._start_records = 0
        self._next_line_us = START_LINE_US

    def __call__(self, change: ShardChange) -> None:
        match change:
            case ShardLoaded(key, shard, record_count, elapsed_us):
                self._numbers.runtime.shard_loaded(key.coordinator, elapsed_us)
                if isinstance(shard, TransactionShard):
                    self._numbers.transactions.load(shard.table.durable_transactions())
                    _log_unreadable(shard)
                if self.is_start_over:
                    elapsed_ms = elapsed_us // US
                    fields = {**_fields(key, "loading", "active"), "records": record_count, "elapsed_ms": elapsed_ms}
                    _log.info("shard_loaded", **fields)
                else:
                    self._log_start(record_count, elapsed_us)
            case ShardLoadFailed(key, error, reason):
                self._numbers.runtime.shard_load_failed(key.coordinator)
                _log.error(
                    "shard_load_failed",
                    **_fields(key, "loading", "failed"),
                    reason=reason,
                    advice="the others serve; start the version that wrote the row, or a later one"
                    if isinstance(error, UnknownRow)
                    else "the others serve; `txnctl store verify` looks closer, `txnctl shard load` tries again",
                    # Neither damage nor a newer row has a place in our code that would explain it.
                    exc_info=None if isinstance(error, StoreUnreadable | UnknownRow) else error,
                )
            case ShardUnloaded(key, shard):
                if isinstance(shard, TransactionShard):
                    self._numbers.transactions.unload(shard.table.durable_transactions())
                _log.info("shard_unloaded", **_fields(key, "active", "unloaded"))
            case ShardStopped():
                pass  # Its staged work is still counted.

    def _log_start(self, record_count: int, elapsed_us: int) -> None:
        """Log how far a long start is. All of its loads were requested together, so `elapsed_us` is its whole time."""
        self._start_shards += 1
        self._start_records += record_count
        if elapsed_us < self._next_line_us:
            return
        self._next_line_us = elapsed_us + START_LINE_US
        left_us = elapsed_us * max(0, self.shards_to_load - self._start_shards) // self._start_shards
        _log.info(
            "loading",
            shards=self._start_shards,
            shards_to_load=self.shards_to_load,
            records=self._start_records,
            records_per_second=self._start_records * 1_000_000 // elapsed_us,
            left_ms=left_us // US,
        )


def log_control(key: ShardKey, context: CallContext) -> None:
    """Log an administrator's request to load or unload a shard."""
    _log.info(
        "shard_control",
        action=context.method,
        coordinator=key.coordinator.name.lower(),
        shard=key.number,
        client_id=context.client_id,
        host=context.host,
    )


def _log_unreadable(shard: TransactionShard) -> None:
    for found in shard.table.unreadable.values():
        _log.error(
            "unreadable_id",
            shard=shard.key.number,
            transactional_id=found.transactional_id,
            producer_id=found.producer_id,
            state=found.state,
            advice="only a newer server knows this state: start the version that wrote it, or a later one",
        )


def _fields(key: ShardKey, old_state: str, new_state: str) -> dict[str, object]:
    return {
        "coordinator": key.coordinator.name.lower(),
        "shard": key.number,
        "old_state": old_state,
        "new_state": new_state,
    }
