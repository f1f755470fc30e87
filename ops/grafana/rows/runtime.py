"""Panels about the runtime, the store, sinks and snapshots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ops.grafana.kinds import Latency, Panel, Query, chosen, rate, rates

RUNTIME: Final[Sequence[Panel | Latency]] = (
    Latency(
        "Sync of the write-ahead log",
        "Every answer waits for one. Runbook TxnStoreSyncSlow.",
        "txn_store_sync_seconds",
    ),
    Latency(
        "Commit group, sealed until durable",
        "With the wait for earlier ones: two syncs when the disk is the limit.",
        "txn_runtime_flush_seconds",
    ),
    Latency("Event loop, how late", "Runbook TxnLoopLag.", "txn_runtime_event_loop_lag_seconds"),
    Panel(
        "The same two as lines, 99 of 100 below",
        "What the alerts look at.",
        "s",
        [
            Query(chosen("instance:txn_store_sync_seconds:p99_5m"), "sync"),
            Query(chosen("instance:txn_event_loop_lag_seconds:p99_5m"), "loop lag"),
        ],
    ),
    Panel(
        "Rows that share a sync",
        "Group commit: grows with the load. And groups and bytes that wait for the disk.",
        "short",
        [
            Query(
                f"{rate('txn_runtime_batch_records_sum')} / {rate('txn_runtime_batch_records_count')}",
                "rows in a group",
            ),
            Query(chosen("txn_runtime_commit_queue_groups"), "groups waiting"),
        ],
    ),
    Panel(
        "Bytes",
        "On disk and in memory; not durable yet; still to compact.",
        "bytes",
        [
            Query(chosen("txn_store_size_bytes"), "sorted files"),
            Query(chosen("txn_store_segment_bytes"), "segments"),
            Query(chosen("txn_store_wal_bytes"), "write-ahead log"),
            Query(chosen("txn_store_memtable_bytes"), "write buffers"),
            Query(chosen("txn_store_block_cache_bytes"), "block cache"),
            Query(chosen("txn_store_table_readers_bytes"), "open files"),
            Query(chosen("txn_store_pending_compaction_bytes"), "to compact"),
            Query(chosen("txn_runtime_undurable_bytes"), "not durable yet"),
        ],
    ),
    Panel(
        "Backups",
        "Age of the newest, and how long the last one took. Runbook TxnBackupOld.",
        "s",
        [
            Query(chosen("txn_backup_age_seconds"), "age"),
            Query(chosen("txn_backup_elapsed_seconds"), "took"),
        ],
    ),
    Panel(
        "Room on the disk",
        "Below the least no records are taken. Runbook TxnDiskLow.",
        "bytes",
        [
            Query(chosen("txn_store_disk_free_bytes"), "free"),
            Query(chosen("txn_store_disk_free_min_bytes"), "least"),
        ],
    ),
    Panel(
        "Sinks: decisions",
        "Batches of sinks (Spark micro-batches) per second, by what became of them. Repeated: an answer was lost, "
        "and the decision asked for again. Given up: the writer died, or was replaced. Replaying: tasks of a "
        "batch that is committed, which wrote nothing, as after a driver's restart.",
        "short",
        [
            rates("txn_sink_batches_total", "result"),
            Query(rate("txn_sink_joins_total", labels='answer="committed"'), "replaying"),
        ],
    ),
    Panel(
        "Sinks: undecided members",
        "Tasks that write (open) or have written (sealed), and how long the oldest sealed one has waited. Runbook "
        "TxnSinkUndecided.",
        "short",
        [
            Query(chosen("txn_sink_members"), "{{state}}"),
            Query(chosen("txn_sink_oldest_sealed_age_seconds"), "seconds of the oldest sealed one"),
        ],
    ),
    Panel(
        "Snapshots held",
        "Of at most 1,000, and for how long the oldest has been: nothing behind its beginning is removed. Runbook "
        "TxnSnapshotOld.",
        "short",
        [
            Query(chosen("txn_partition_snapshots_held"), "held"),
            Query(chosen("txn_partition_oldest_snapshot_age_seconds"), "seconds of the oldest"),
        ],
    ),
    Panel("Bytes written", "Per second.", "Bps", [Query(rate("txn_store_write_bytes_total"), "written")]),
    Panel(
        "Writes that waited",
        "For compaction, per second.",
        "ops",
        [Query(rate("txn_store_write_stalls_total"), "waited")],
    ),
    Panel(
        "Shards and their loading",
        "By state; how long the newest load took; loads that failed.",
        "short",
        [
            Query(
                f"sum by (instance, coordinator, state) ({chosen('txn_runtime_shard_state')})",
                "{{coordinator}}, {{state}}",
            ),
            Query(chosen("txn_runtime_load_seconds"), "load of {{coordinator}}, seconds"),
            Query(chosen("txn_runtime_load_failures_total"), "failed loads of {{coordinator}}"),
        ],
    ),
    Panel(
        "Timers",
        "By what for: what the server waits for.",
        "short",
        [Query(f"sum by (instance, kind) ({chosen('txn_runtime_timers')})", "{{kind}}")],
    ),
    Panel(
        "What runs",
        "Version and mode. A change of it is a deployment.",
        "short",
        [
            Query(chosen("txn_build_info"), "{{version}}, {{proto}}, Python {{python}}"),
            Query(chosen("txn_config_info"), "node {{node}}, {{mode}}"),
        ],
    ),
)
