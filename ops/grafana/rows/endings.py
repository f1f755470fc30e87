"""Panels about fencing, aborts, retention and waits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ops.grafana.kinds import Latency, Panel, Query, chosen, rate, rates
from ops.grafana.rows.compaction import COMPACTION

ENDINGS: Final[Sequence[Panel | Latency]] = (
    Panel(
        "Aborted of all",
        "Above a fifth: runbook TxnAbortRatioHigh.",
        "percentunit",
        [Query(chosen("instance:txn_aborts:ratio_rate5m"), "{{instance}}")],
    ),
    Panel(
        "Fenced producers",
        "A newer instance, a timeout, an administrator, or one that came too late. Runbook TxnFencingSpike.",
        "ops",
        [rates("txn_coordinator_fenced_total", "reason")],
    ),
    Panel(
        "InitProducerId, by what it did",
        "Mostly new: ids are made up at every start, and nothing is ever fenced. Runbook TxnIdGrowth.",
        "ops",
        [
            rates("txn_coordinator_init_total", "result"),
            Query(rate("txn_coordinator_epoch_rotations_total"), "rotations"),
            Query(rate("txn_coordinator_producer_ids_allocated_total"), "producer ids given away"),
        ],
    ),
    Panel(
        "Transactional ids",
        "By state; all of them cost memory until they expire.",
        "short",
        [
            Query(f"sum by (instance, state) ({chosen('txn_coordinator_transactions')})", "{{state}}"),
            Query(chosen("txn_coordinator_transactional_ids"), "known"),
            Query(rate("txn_coordinator_expired_ids_total"), "expired per second"),
            Query(rate("txn_partition_expired_producers_total"), "producers forgotten per second"),
        ],
    ),
    Panel(
        "Bytes removed",
        "Removed behind log starts per second, by topic.",
        "Bps",
        [rates("txn_partition_removed_bytes_total", "topic")],
    ),
    *COMPACTION,
    Panel(
        "Partitions that retention cannot shorten",
        "They keep more than retention wants, because a transaction is open.",
        "short",
        [Query(chosen("txn_partition_retention_held_back"), "partitions")],
    ),
    Panel(
        "Calls that waited for what came before",
        "A transaction being completed, or a payload being checked. By how the wait ended, and how many wait now.",
        "short",
        [
            rates("txn_coordinator_concurrent_waits_total", "method", "result"),
            Query(chosen("txn_coordinator_parked_calls"), "waiting now"),
        ],
    ),
    Latency("How long they waited", "Should be the time of a commit.", "txn_coordinator_concurrent_wait_seconds"),
    Panel(
        "Impossible steps",
        "Must stay 0. Runbook TxnDefect.",
        "short",
        [Query(rate("txn_coordinator_invalid_transitions_total", "from, to"), "{{from}} to {{to}}")],
    ),
)
