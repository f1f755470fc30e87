"""Panels of health, and of rates of transactions, records and calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ops.grafana.kinds import CHOSEN, NOT_ACTIVE, Number, Panel, Query, chosen, rate, rates

HEALTH: Final[Sequence[Panel | Number]] = (
    Number("Answers", "1 = the last scrape was answered. 0: runbook TxnDown.", f"min(up{{{CHOSEN}}})", -1),
    Number(
        "Shards that do not serve",
        "0 but for a moment after a start. Else: runbook TxnNotServing.",
        f"sum({chosen('txn_runtime_shard_state', NOT_ACTIVE)}) or vector(0)",
        1,
    ),
    Number(
        "Hanging transactions",
        "Must be 0. Else: runbook TxnHanging.",
        f"sum({chosen('txn_coordinator_hanging')})",
        1,
    ),
    Number("Bugs met", "Must be 0. Else: runbook TxnDefect.", f"sum({chosen('txn_runtime_defects_total')})", 1),
    Panel(
        "Transactions that ended",
        "By outcome and cause. Only client is what applications asked for.",
        "ops",
        [rates("txn_coordinator_completed_total", "outcome", "cause")],
        is_stacked=True,
    ),
    Panel(
        "Records appended",
        "What producers write, per second; control records are markers.",
        "ops",
        [rates("txn_partition_appended_records_total", "kind")],
    ),
    Panel(
        "Bytes appended",
        "What producers write, per second.",
        "Bps",
        [rates("txn_partition_appended_bytes_total", "kind")],
    ),
    Panel(
        "Bytes waiting to be checked",
        "Payloads that a worker process decompresses before they are taken; at most 64 MiB.",
        "bytes",
        [Query(chosen("txn_partition_unchecked_bytes"), "waiting")],
    ),
    Panel(
        "Bytes by topic",
        "What each topic holds now.",
        "bytes",
        [Query(f"sum by (instance, topic) ({chosen('txn_topic_bytes')})", "{{topic}}")],
        is_stacked=True,
    ),
    Panel(
        "Records by topic",
        "What each topic holds now.",
        "short",
        [Query(f"sum by (instance, topic) ({chosen('txn_topic_records')})", "{{topic}}")],
        is_stacked=True,
    ),
    Panel(
        "Records read",
        "Served, and hidden from readers: what was aborted, and markers.",
        "ops",
        [rates("txn_read_records_total", "isolation", "result")],
    ),
    Panel(
        "Calls",
        "By method. Sessions count the calls that they carry.",
        "ops",
        [rates("txn_rpc_requests_total", "method")],
    ),
    Panel(
        "Errors in answers",
        "By Kafka's name; many are part of a normal life (CONCURRENT_TRANSACTIONS, REBALANCE_IN_PROGRESS).",
        "ops",
        [rates("txn_rpc_errors_total", "error")],
    ),
    Panel(
        "Calls under way, and turned away",
        "Turned away: overload, loading or stopping. Runbook TxnOverloaded.",
        "short",
        [
            Query(f"sum by (instance) ({chosen('txn_rpc_in_flight')})", "under way"),
            Query(rate("txn_rpc_rejected_total", "reason"), "turned away per second, {{reason}}"),
        ],
    ),
)
