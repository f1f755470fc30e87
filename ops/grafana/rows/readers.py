"""Panels about open transactions and markers, which hold up readers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ops.grafana.kinds import Panel, Query, chosen, rate, rates, worst

READERS: Final[Sequence[Panel]] = (
    Panel(
        "Age of the oldest",
        "Open transaction, outcome not complete, prepared for an outside decision. A saw-tooth is healthy.",
        "s",
        [
            Query(worst("txn_coordinator_oldest_open_age_seconds"), "open"),
            Query(worst("txn_coordinator_oldest_prepare_age_seconds"), "outcome not complete"),
            Query(worst("txn_coordinator_oldest_prepared_2pc_age_seconds"), "prepared outside"),
            Query(worst("txn_coordinator_oldest_pending_marker_age_seconds"), "marker not durable"),
            Query(worst("txn_config_transaction_max_timeout_seconds"), "longest timeout allowed"),
        ],
    ),
    Panel(
        "Records behind the last stable offset, by topic",
        "What committed readers cannot read yet, in the worst partition. Growing: runbook TxnLsoStuck.",
        "short",
        [Query(chosen("topic:txn_partition_lso_lag_records:max"), "{{topic}}")],
    ),
    Panel(
        "Age of the oldest open transaction, by topic",
        "`txnctl explain TOPIC-PARTITION` says whose it is.",
        "s",
        [Query(chosen("topic:txn_partition_oldest_open_age_seconds:max"), "{{topic}}")],
    ),
    Panel(
        "Open transactions, by topic",
        "And partitions that have no numbers of their own (metrics_partitions_max).",
        "short",
        [
            Query(f"sum by (instance, topic) ({chosen('txn_partition_open_transactions')})", "{{topic}}"),
            Query(chosen("txn_partitions_omitted"), "partitions without numbers"),
        ],
    ),
    Panel(
        "How much lies in partitions, by topic",
        "Records between log start and high watermark, and aborted transactions that readers step over.",
        "short",
        [
            Query(
                f"sum by (instance, topic) ({chosen('txn_partition_high_watermark')} -"
                f" {chosen('txn_partition_log_start_offset')})",
                "{{topic}} offsets",
            ),
            Query(f"sum by (instance, topic) ({chosen('txn_partition_aborted_index_entries')})", "{{topic}} aborted"),
        ],
    ),
    Panel(
        "Damaged places",
        "Must stay 0. Runbook TxnDamaged.",
        "short",
        [Query(chosen("txn_partition_damaged_places_total"), "{{topic}}, {{family}}")],
    ),
    Panel(
        "Checks of payloads",
        "Long checks, made in a process of their own: results, and number waiting. Refused: the batches of a writer"
        " are unreadable. No room: the process does not keep up.",
        "short",
        [
            Query(rate("txn_partition_payload_checks_total", "result"), "{{result}} per second"),
            Query(chosen("txn_partition_unchecked_batches"), "batches waiting"),
        ],
    ),
    Panel(
        "Verifications",
        "AddPartitionsToTxn that only asks, by what it was told.",
        "ops",
        [rates("txn_coordinator_verifications_total", "result")],
    ),
    Panel(
        "Markers",
        "Written, refused and sent again, waiting. Waiting ones exist in split mode only.",
        "short",
        [
            Query(rate("txn_coordinator_markers_total", "kind, target"), "{{kind}} to {{target}} per second"),
            Query(rate("txn_coordinator_marker_retries_total", "reason"), "again per second, {{reason}}"),
            Query(rate("txn_coordinator_marker_alarms_total", "reason"), "alarms per second, {{reason}}"),
            Query(chosen("txn_coordinator_markers_pending"), "waiting"),
        ],
    ),
)
