"""Panels about the rounds of `txnctl probe`, a client beside the server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ops.grafana.kinds import Panel, Query

PROBE: Final[Sequence[Panel]] = (
    Panel(
        "Rounds of the probe",
        "One every few seconds. Failed ones: runbook TxnProbeFailing. Empty: no `txnctl probe` runs.",
        "ops",
        [
            Query("sum by (instance, result) (rate(txn_probe_rounds_total[5m]))", "{{result}}"),
            Query("sum by (instance, step) (rate(txn_probe_failures_total[5m]))", "failed at {{step}}"),
        ],
    ),
    Panel(
        "How long its steps take",
        "On average, as the client sees it: with the network, the queue and the disk.",
        "s",
        [
            Query(
                "sum by (instance, step) (rate(txn_probe_step_seconds_sum[5m]))"
                " / sum by (instance, step) (rate(txn_probe_step_seconds_count[5m]))",
                "{{step}}",
            )
        ],
    ),
    Panel(
        "Since the last round that went well",
        "Above a minute: runbook TxnProbeFailing.",
        "s",
        [Query("time() - txn_probe_last_success_timestamp_seconds", "{{instance}}")],
    ),
)
