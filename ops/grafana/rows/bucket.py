"""Panels about a store in a bucket."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ops.grafana.kinds import Panel, Query, chosen, rate

BUCKET: Final[Sequence[Panel]] = (
    Panel(
        "Requests to the bucket, 99 of 100 below",
        "By kind. Every answer waits for a put. Runbook TxnObjectStoreSlow.",
        "s",
        [Query(chosen("instance:txn_object_store_request_seconds:p99_5m"), "{{kind}}")],
    ),
    Panel(
        "Requests to the bucket",
        "Per second, by operation and result.",
        "ops",
        [Query(rate("txn_object_store_requests_total", "operation, result"), "{{operation}}, {{result}}")],
    ),
    Panel(
        "Flushes of the log",
        "Objects per second: one for each sync.",
        "ops",
        [Query(rate("txn_object_store_log_flushes_total"), "flushes")],
    ),
    Panel(
        "Bytes written to the bucket",
        "Per second: the log, tables of what was in memory, and what compaction wrote again.",
        "Bps",
        [Query(rate("txn_object_store_written_bytes_total", "purpose"), "{{purpose}}")],
    ),
    Panel(
        "Reads of the caches",
        "Per second: blocks in memory, and parts of objects on the local disk.",
        "ops",
        [Query(rate("txn_object_store_cache_reads_total", "cache, result"), "{{cache}}, {{result}}")],
    ),
    Panel(
        "Cache on the local disk",
        "At most `store_cache_bytes_max`.",
        "bytes",
        [Query(chosen("txn_object_store_cache_bytes"), "cache")],
    ),
)
