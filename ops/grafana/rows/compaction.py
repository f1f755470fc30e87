"""Panels about compaction, in the row of `endings`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ops.grafana.kinds import Panel, Query, chosen, rate, rates

COMPACTION: Final[Sequence[Panel]] = (
    Panel(
        "Bytes compacted away",
        "Removed by compaction per second, by topic.",
        "Bps",
        [rates("txn_compaction_removed_bytes_total", "topic")],
    ),
    Panel(
        "Compaction that is due",
        "How long the log that has waited longest is due for a pass. Runbook TxnCompactionLate.",
        "s",
        [
            Query(chosen("txn_compaction_waiting_seconds"), "waiting"),
            Query(chosen("txn_compaction_last_pass_seconds"), "since the last pass"),
        ],
    ),
    Panel(
        "Passes of compaction",
        "Ended and stopped, records removed, and batches that could not be decoded, per second.",
        "short",
        [
            rates("txn_compaction_passes_total", "result"),
            Query(rate("txn_compaction_removed_records_total"), "records removed"),
            Query(rate("txn_compaction_unreadable_batches_total"), "unreadable batches"),
        ],
    ),
    Panel(
        "Dirty part of compacted logs",
        "Largest share of records that no pass has been over yet.",
        "percentunit",
        [Query(chosen("txn_compaction_dirty_ratio"), "largest")],
    ),
)
