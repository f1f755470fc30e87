"""Takes the numbers of a server, all of one moment, on the loop."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from coordinator_core.assembly import Core
from coordinator_protocol.methods import Method
from coordinator_runtime.clock import Clock
from coordinator_runtime.commit_groups import CommitThread
from coordinator_runtime.decision import Coordinator, ShardKey
from coordinator_runtime.disk_guard import DiskGuard
from coordinator_runtime.ports import Level
from coordinator_runtime.running_version import running_version
from coordinator_runtime.shard_table import ShardState
from coordinator_runtime.stepping import STEP_TIMER
from coordinator_server.metrics.groups import GroupNumbers, group_gauges
from coordinator_server.metrics.history import RATES_TIMER
from coordinator_server.metrics.instruments import MS, Readings, Values, by_label, single
from coordinator_server.metrics.lag import GroupLags
from coordinator_server.metrics.partitions import LogNumbers, survey
from coordinator_server.metrics.server import CallNumbers, RuntimeNumbers
from coordinator_server.metrics.shares import share_gauges
from coordinator_server.metrics.topic_sizes import TopicSizes
from coordinator_server.metrics.transactions import TransactionNumbers
from coordinator_server.security.audit import AuditLog
from coordinator_server.traffic.answer_bytes import AnswerBytes
from coordinator_server.traffic.quotas.budgets import Budgets
from coordinator_server.traffic.quotas.rules import Rate
from group_coordinator.registry import PARTS
from group_coordinator.share_partitions.decisions import SHARE_LOCK
from partition_log.compaction.passes import LogCompaction
from txn_coordinator.counters import COUNTERS, CountersShard

SERVED: Final = (
    Coordinator.COUNTERS,
    Coordinator.CATALOG,
    Coordinator.LOG,
    Coordinator.TRANSACTIONS,
    Coordinator.GROUPS,
    Coordinator.SHARE_PARTITIONS,
)
"""Coordinators with shards on this server."""

TIMER_KINDS: Final = (
    "transaction_timeout",
    "transaction_expiration",
    "producer_expiration",
    "audit",
    "removal",
    "compaction",
    "history_trim",
    "lag",
    "parked",
    "fetch",
    "time_search",
    "markers",
    "load",
    "news",
    "heartbeat_wait",
    "share_departure",
    "share_fetch",
    "share_letters",
    SHARE_LOCK,
    RATES_TIMER,
    STEP_TIMER,
    *dict.fromkeys(kind for part in PARTS for kind in part.timers),
)


@dataclass(frozen=True, slots=True)
class MetricsConfig:
    """Part of the configuration that the metrics show."""

    node_id: int
    mode: str
    transaction_max_timeout_ms: int
    partitions_max: int


@dataclass(frozen=True, slots=True)
class ServerNumbers:
    """Counts of events, by area."""

    transactions: TransactionNumbers
    calls: CallNumbers
    log: LogNumbers
    groups: GroupNumbers
    runtime: RuntimeNumbers

    def counters(self) -> dict[str, float]:
        """Return the numbers that the history of rates is made of."""
        return {**self.transactions.counters(), **self.log.counters(), **self.calls.counters()}

    def met_defect(self, defect: Exception) -> None:
        """Count an operation that failed by a bug of ours."""
        self.runtime.met_defect()
        self.transactions.met_defect(defect)


@dataclass(slots=True, kw_only=True)
class AllReadings:
    """All readings for the collector, which calls it on the loop. Before the state is loaded it reports loading shards
    and the results of calls, and leaves out the state of transactions, partitions and groups."""

    numbers: ServerNumbers
    config: MetricsConfig
    core: Core
    lags: GroupLags
    commits: CommitThread
    calls_in_flight: Callable[[], Mapping[Method, int]]
    answers: AnswerBytes
    of_backups: Callable[[], Readings]
    audit: AuditLog
    topic_sizes: TopicSizes
    quotas: Budgets | None
    """Quotas of principals; None without quotas."""
    protocol: str
    """Name of the wire protocol."""
    is_loaded: bool = False
    """Set once, when the server takes work."""

    def __call__(self) -> Readings:
        now_ms = self.core.runtime.clock.wall_ms()
        numbers = self.numbers
        log = numbers.log.readings()
        return {
            **self._identity(),
            **log,
            **numbers.groups.readings(),
            "txn_coordinator_markers_total": {**log["txn_coordinator_markers_total"], **numbers.groups.markers()},
            **numbers.runtime.readings(),
            **numbers.calls.readings(self.calls_in_flight()),
            **self._runtime(),
            "txn_rpc_answer_bytes": single(self.answers.held_bytes),
            "txn_rpc_answers_refused_total": by_label(self.answers.refused),
            "txn_partition_retention_held_back": single(self.core.log.removal.held_back),
            "txn_partition_unchecked_bytes": single(self.core.checks.waiting_bytes),
            "txn_partition_unchecked_batches": single(self.core.checks.waiting_batches),
            "txn_partition_payload_checks_total": by_label(self.core.checks.ended),
            **compaction_readings(self.core.log.compaction, self.core.runtime.clock),
            **_of_disk(self.core.checks.disk),
            **self.of_backups(),
            **_of_quotas(self.quotas),
            "txn_access_refusals_total": self.audit.refusals(),
            "txn_audit_lines_total": self.audit.counts(),
            "txn_access_acls": single(self.core.access.acl_count),
            "txn_access_enforced": single(int(self.core.config.enforces_acls)),
            **(self._of_loaded(now_ms) if self.is_loaded else {}),
        }

    def _identity(self) -> Readings:
        config = self.config
        return {
            "txn_build_info": {(running_version(), self.protocol, platform.python_version()): 1},
            "txn_config_info": {(str(config.node_id), config.mode): 1},
            "txn_config_transaction_max_timeout_seconds": single(config.transaction_max_timeout_ms / MS),
        }

    def _runtime(self) -> Readings:
        runtime = self.core.runtime
        return {
            "txn_runtime_shard_state": self._shards(),
            "txn_runtime_failed_shards": {
                (key.coordinator.name.lower(), str(key.number)): 1 for key in runtime.table.failures
            },
            "txn_runtime_undurable_bytes": single(runtime.groups.undurable_bytes),
            "txn_runtime_commit_queue_groups": single(self.commits.waiting_groups),
            "txn_runtime_timers": by_label({**dict.fromkeys(TIMER_KINDS, 0), **runtime.timers.by_kind()}),
            "txn_coordinator_parked_calls": single(len(runtime.parking)),
        }

    def _shards(self) -> Values:
        """Return the number of shards in each state. Before the load of all of them begins, one shard of each
        coordinator counts as loading."""
        loading = {ShardKey(each, 0): ShardState.LOADING for each in SERVED}
        known = self.core.runtime.table.states() if self.is_loaded else loading
        has_failed = self.core.runtime.has_failed
        shards = Counter((key.coordinator, ShardState.FAILED if has_failed else known[key]) for key in known)
        return {
            (coordinator.name.lower(), state.value): shards[coordinator, state]
            for coordinator in SERVED
            for state in ShardState
        }

    def _of_loaded(self, now_ms: int) -> Readings:
        core = self.core
        found = survey(core.runtime, core.catalog, self.config.partitions_max)
        return {
            **self._transactions(now_ms),
            **found.readings(now_ms),
            **self.topic_sizes.readings(found.standings, is_last_cut=found.omitted > 0),
            **group_gauges(core.runtime, now_ms),
            **share_gauges(core.runtime),
            **self.lags.readings(now_ms),
            "txn_partition_snapshots_held": single(len(core.log.snapshots.leases)),
            "txn_partition_oldest_snapshot_age_seconds": single(core.log.snapshots.leases.oldest_age_ms() / MS),
            "txn_group_waiting_calls": {("members",): len(core.answers), ("news",): len(core.news)},
        }

    def _transactions(self, now_ms: int) -> Readings:
        core, sender = self.core, self.core.sender
        transactions, calls = self.numbers.transactions, self.numbers.calls
        counters: CountersShard = core.runtime.shard(COUNTERS)
        counted = transactions.readings(now_ms)
        pending_since_ms = transactions.pending_since_ms(sender.unfinished_ids())
        return {
            **counted,
            "txn_coordinator_init_total": {
                **counted["txn_coordinator_init_total"],
                ("refused",): calls.refused_inits(),
            },
            "txn_coordinator_fenced_total": {**counted["txn_coordinator_fenced_total"], **calls.fenced()},
            "txn_coordinator_producer_ids_allocated_total": single(counters.given_producer_ids),
            "txn_coordinator_marker_retries_total": by_label(sender.failed_markers),
            "txn_coordinator_marker_alarms_total": by_label(sender.alarms),
            "txn_coordinator_markers_pending": single(sender.waiting_markers),
            "txn_coordinator_oldest_pending_marker_age_seconds": single(
                0 if pending_since_ms is None else max(0, now_ms - pending_since_ms) / MS
            ),
            "txn_coordinator_verifications_total": by_label(core.transactions.service.verifications),
            "txn_coordinator_hanging": single(core.admin.hanging.count),
        }


def _of_quotas(quotas: Budgets | None) -> Readings:
    refused, throttled = (quotas.refused, quotas.throttled) if quotas else ({}, {})
    return {
        "txn_quota_refusals_total": by_label({quota: refused.get(quota, 0) for quota in (*Rate, *Level)}),
        "txn_quota_throttles_total": by_label({rate: throttled.get(rate, 0) for rate in Rate}),
    }


def compaction_readings(compaction: LogCompaction | None, clock: Clock) -> Readings:
    """Return what passes of compaction say; nothing if there are none."""
    if compaction is None:
        return {}
    ended_ms = compaction.last_ended_ms
    return {
        "txn_compaction_dirty_ratio": single(compaction.dirty_ratio_max),
        "txn_compaction_waiting_seconds": single(compaction.waiting_ms() / MS),
        "txn_compaction_last_pass_seconds": single(max(0, clock.wall_ms() - ended_ms) / MS if ended_ms else 0),
        "txn_compaction_passes_total": by_label(
            {"ended": compaction.ended_passes, "stopped": compaction.stopped_passes}
        ),
        "txn_compaction_unreadable_batches_total": single(compaction.unreadable_batches),
    }


def _of_disk(disk: DiskGuard) -> Readings:
    return {
        "txn_store_disk_free_bytes": {} if disk.free_bytes is None else single(disk.free_bytes),
        "txn_store_disk_free_min_bytes": single(disk.free_bytes_min),
        "txn_store_disk_low": single(int(disk.refusal is not None)),
        "txn_store_disk_refused_total": single(disk.refused_count),
    }
