"""Panels about the duration of transactions and of calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ops.grafana.kinds import Latency, Panel, Query, chosen, rate

PHASES: Final[Sequence[Panel | Latency]] = (
    Latency(
        "Open: first partition until the outcome",
        "The time of the application's own work.",
        "txn_coordinator_open_to_end_seconds",
    ),
    Latency(
        "Completing: outcome until every marker is durable",
        "The server's part. Grows with the disk (below) and the number of partitions.",
        "txn_coordinator_end_to_complete_seconds",
    ),
    Panel(
        "Commit, 99 of 100 below",
        "The same as a line, for a threshold.",
        "s",
        [Query(chosen("instance:txn_commit_seconds:p99_5m"), "{{instance}}")],
    ),
    Panel(
        "Partitions and groups of a transaction",
        "Its size, on average: more of them take longer to complete.",
        "short",
        [
            Query(
                f"{rate('txn_coordinator_partitions_per_txn_sum')}"
                f" / {rate('txn_coordinator_partitions_per_txn_count')}",
                "{{instance}}",
            )
        ],
    ),
    Latency("Calls on the server", "Waits on purpose are in it: long polls, heartbeats.", "txn_rpc_seconds"),
)
