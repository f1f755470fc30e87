"""Takes the numbers of a running server, all of one moment, on the loop.

Partitions are the only thing here that there may be many of: beyond a configured number they get no gauges of their
own, and `txn_partitions_omitted` says how many do not.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from dataclasses import dataclass

from coordinator_protocol.version import VERSION
from coordinator_runtime.clock import Clock
from coordinator_runtime.commit_thread import CommitThread
from coordinator_runtime.decision import Coordinator
from coordinator_runtime.rocks import StoreStatistics
from coordinator_runtime.runtime import GroupDurable, Runtime
from coordinator_server.metrics.board import CallNumbers, LogNumbers, TransactionNumbers
from coordinator_server.metrics.collector import Snapshot, Values
from coordinator_server.metrics.instruments import SECONDS, SIZES, Distribution
from partition_log.catalog.directory import TopicDirectory
from partition_log.shard import LogShard
from txn_coordinator.counters import COUNTERS, CountersShard
from txn_coordinator.hanging import HangingTransactions
from txn_coordinator.marker_sender import MarkerSender


@dataclass(frozen=True, slots=True)
class MetricsConfig:
    """What the numbers need to know of the configuration."""

    node_id: int
    two_phase: str
    transaction_max_timeout_ms: int
    partitions_max: int


class RuntimeNumbers:
    """Commit groups and the loop."""

    def __init__(self) -> None:
        self.group_rows = Distribution(SIZES)
        self.flush = Distribution(SECONDS)
        self.loop_lag = Distribution(SECONDS)
        self.written_bytes = 0
        self.load_ms = 0

    def group_durable(self, group: GroupDurable) -> None:
        self.group_rows.observe(group.row_count)
        self.flush.observe(group.elapsed_us / 1_000_000)
        self.written_bytes += group.size_bytes


@dataclass(frozen=True, slots=True)
class ServerNumbers:
    """Everything that is counted as it happens."""

    transactions: TransactionNumbers
    calls: CallNumbers
    log: LogNumbers
    runtime: RuntimeNumbers


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveServer:
    """Everything that is looked at when somebody asks."""

    clock: Clock
    runtime: Runtime
    commits: CommitThread
    sender: MarkerSender
    hanging: HangingTransactions
    directory: TopicDirectory
    store_statistics: Callable[[], StoreStatistics]
    calls_in_flight: Callable[[], int]


class SnapshotTaker:
    """Called by the collector, on the loop."""

    def __init__(self, numbers: ServerNumbers, live: LiveServer, config: MetricsConfig) -> None:
        self._numbers = numbers
        self._live = live
        self._config = config

    def __call__(self) -> Snapshot:
        return {
            **self._identity(),
            **self._transactions(),
            **self._partitions(),
            **self._log(),
            **self._runtime(),
            **self._store(),
            **self._calls(),
        }

    def _identity(self) -> Snapshot:
        config = self._config
        return {
            "txn_build_info": {(VERSION, platform.python_version()): 1.0},
            "txn_config_info": {(str(config.node_id), config.two_phase): 1.0},
            "txn_config_transaction_max_timeout_seconds": _one(config.transaction_max_timeout_ms / 1000),
        }

    def _transactions(self) -> Snapshot:
        numbers, live = self._numbers.transactions, self._live
        now_ms = live.clock.wall_ms()
        counters: CountersShard = live.runtime.shard(COUNTERS)
        return {
            "txn_coordinator_transactions": numbers.by_state.copy(),
            "txn_coordinator_transactional_ids": _one(numbers.known_ids),
            "txn_coordinator_producer_ids_allocated_total": _one(counters.given_producer_ids),
            "txn_coordinator_init_total": numbers.inits.copy(),
            "txn_coordinator_epoch_rotations_total": _one(numbers.rotations),
            "txn_coordinator_completed_total": numbers.completed.copy(),
            "txn_coordinator_open_to_end_seconds": numbers.open_to_end.copy(),
            "txn_coordinator_end_to_complete_seconds": numbers.end_to_complete.copy(),
            "txn_coordinator_partitions_per_txn": numbers.participants.copy(),
            "txn_coordinator_oldest_open_age_seconds": _one(numbers.oldest_open_seconds(now_ms)),
            "txn_coordinator_oldest_prepare_age_seconds": _one(numbers.oldest_prepared_seconds(now_ms)),
            "txn_coordinator_fenced_total": {
                **numbers.fenced.copy(),
                ("epoch",): float(self._numbers.calls.epoch_refusals()),
                ("zombie_produce",): float(self._numbers.calls.zombie_batches()),
            },
            "txn_coordinator_parked_calls": _one(live.runtime.parked_calls),
            "txn_coordinator_concurrent_waits_total": _one(live.runtime.parked_calls_total),
            "txn_coordinator_markers_total": numbers.markers.copy(),
            "txn_coordinator_marker_retries_total": _one(live.sender.failed_markers),
            "txn_coordinator_markers_pending": _one(live.sender.waiting_markers),
            "txn_coordinator_hanging": _one(live.hanging.count),
        }

    def _partitions(self) -> Snapshot:
        directory = self._live.directory
        found = [
            (placed, head)
            for topic in directory.shard.durable_topics()
            for ordinal in topic.partition_ordinals
            if (placed := directory.shard.placed(ordinal)) is not None
            and (head := self._log_shard(placed.shard.number).durable_head(ordinal)) is not None
        ]
        shown = found[: self._config.partitions_max]
        positions: dict[str, dict[tuple[str, ...], float]] = {}
        for placed, head in shown:
            labels = (placed.ref.topic, str(placed.ref.partition))
            for name, value in (
                ("high_watermark", head.log_end_offset),
                ("log_start_offset", head.log_start_offset),
                ("last_stable_offset", head.last_stable_offset),
                ("lso_lag_records", head.log_end_offset - head.last_stable_offset),
                ("open_transactions", head.open_transactions),
            ):
                positions.setdefault(f"txn_partition_{name}", {})[labels] = float(value)
        return {**positions, "txn_partitions_omitted": _one(len(found) - len(shown))}

    def _log_shard(self, number: int) -> LogShard:
        shard: LogShard = self._live.runtime.shards(Coordinator.LOG)[number]
        return shard

    def _log(self) -> Snapshot:
        numbers = self._numbers.log
        return {
            "txn_partition_appended_records_total": numbers.appended_records.copy(),
            "txn_partition_appended_bytes_total": numbers.appended_bytes.copy(),
            "txn_read_records_total": numbers.read_records.copy(),
        }

    def _runtime(self) -> Snapshot:
        numbers, runtime = self._numbers.runtime, self._live.runtime
        shards: dict[tuple[str, ...], float] = {
            (coordinator.name.lower(), "active"): float(len(runtime.shards(coordinator)))
            for coordinator in Coordinator
            if runtime.shards(coordinator)
        }
        return {
            "txn_runtime_shards": shards,
            "txn_runtime_load_seconds": _one(numbers.load_ms / 1000),
            "txn_runtime_undurable_bytes": _one(runtime.undurable_bytes),
            "txn_runtime_commit_queue_groups": _one(self._live.commits.waiting_groups),
            "txn_runtime_group_rows": numbers.group_rows.copy(),
            "txn_runtime_flush_seconds": numbers.flush.copy(),
            "txn_runtime_event_loop_lag_seconds": numbers.loop_lag.copy(),
            "txn_runtime_timers": _one(runtime.armed_timers),
        }

    def _store(self) -> Snapshot:
        statistics = self._live.store_statistics()
        return {
            "txn_store_written_bytes_total": _one(self._numbers.runtime.written_bytes),
            "txn_store_size_bytes": _one(statistics.sst_bytes),
            "txn_store_wal_bytes": _one(statistics.wal_bytes),
            "txn_store_memtable_bytes": _one(statistics.memtable_bytes),
            "txn_store_pending_compaction_bytes": _one(statistics.pending_compaction_bytes),
            "txn_store_write_stalls_total": _one(statistics.write_stalls),
        }

    def _calls(self) -> Snapshot:
        numbers = self._numbers.calls
        return {
            "txn_rpc_requests_total": numbers.requests.copy(),
            "txn_rpc_errors_total": numbers.errors.copy(),
            "txn_rpc_seconds": numbers.seconds.copy(),
            "txn_rpc_in_flight": _one(self._live.calls_in_flight()),
            "txn_rpc_rejected_total": numbers.rejected.copy(),
        }


def _one(value: float) -> Values:
    """A metric without labels."""
    return {(): float(value)}
