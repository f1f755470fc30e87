"""Panels about permissions, quotas, connections and certificates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ops.grafana.kinds import Panel, Query, chosen, rate

ACCESS: Final[Sequence[Panel]] = (
    Panel(
        "Refusals",
        "Of callers that may not do what they ask for, or are unknown; see the log. Runbook TxnRefusalsRising.",
        "ops",
        [
            Query(rate("txn_access_refusals_total", "operation, resource_type"), "{{operation}} {{resource_type}}"),
            Query(rate("txn_rpc_unauthenticated_total", "reason"), "unknown, {{reason}}"),
        ],
    ),
    Panel(
        "Quotas",
        "Refusals of principals that have no more of something, and pauses asked for. Runbook TxnQuotaRefusals.",
        "ops",
        [
            Query(rate("txn_quota_refusals_total", "quota"), "refused, {{quota}}"),
            Query(rate("txn_quota_throttles_total", "quota"), "paused, {{quota}}"),
        ],
    ),
    Panel(
        "ACLs",
        "Rules in force, and whether the server goes by them (1).",
        "short",
        [
            Query(chosen("txn_access_acls"), "rules, {{instance}}"),
            Query(chosen("txn_access_enforced"), "enforced, {{instance}}"),
        ],
    ),
    Panel(
        "Connections",
        "Open ones of both protocols, gRPC's and Kafka's; those refused or cut, by kind, as in the log's harm.",
        "short",
        [
            Query(chosen("txn_rpc_connections"), "open, {{instance}}"),
            Query(chosen("txn_rpc_connections_max"), "at most, {{instance}}"),
            Query(rate("txn_rpc_harm_total", "kind"), "cut per second, {{kind}}"),
        ],
    ),
    Panel(
        "Certificates",
        "Time until the certificate of a listener ends; at 0 seconds no client connects any more."
        " Runbook TxnCertificateEnding.",
        "s",
        [Query(f"{chosen('txn_tls_certificate_expiry_timestamp_seconds')} - time()", "{{listen}}")],
    ),
    Panel(
        "Listeners that need a look",
        "New files of TLS that cannot be used, and listeners beyond the machine that have none.",
        "short",
        [
            Query(chosen("txn_tls_files_refused"), "files refused, {{listen}}"),
            Query(chosen("txn_insecure_listeners"), "insecure, {{instance}}"),
        ],
    ),
)
