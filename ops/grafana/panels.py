"""Panels of the dashboard: rows of panels, with their interpretation. Their layout is in build.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ops.grafana.compaction import COMPACTION
from ops.grafana.kinds import CHOSEN, NOT_ACTIVE, Latency, Number, Panel, Query, chosen, rate, worst

ROWS: Final[dict[str, Sequence[Panel | Latency | Number]]] = {
    "Health and rates": (
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
            [Query(rate("txn_coordinator_completed_total", "outcome, cause"), "{{outcome}}, {{cause}}")],
            is_stacked=True,
        ),
        Panel(
            "Records appended",
            "What producers write, per second; control records are markers.",
            "ops",
            [Query(rate("txn_partition_appended_records_total", "kind"), "{{kind}}")],
        ),
        Panel(
            "Bytes appended",
            "What producers write, per second.",
            "Bps",
            [Query(rate("txn_partition_appended_bytes_total", "kind"), "{{kind}}")],
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
            [Query(rate("txn_read_records_total", "isolation, result"), "{{isolation}}, {{result}}")],
        ),
        Panel(
            "Calls",
            "By method. Sessions count the calls that they carry.",
            "ops",
            [Query(rate("txn_rpc_requests_total", "method"), "{{method}}")],
        ),
        Panel(
            "Errors in answers",
            "By Kafka's name; many are part of a normal life (CONCURRENT_TRANSACTIONS, REBALANCE_IN_PROGRESS).",
            "ops",
            [Query(rate("txn_rpc_errors_total", "error"), "{{error}}")],
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
    ),
    "What a client sees": (
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
    ),
    "How long the two phases take": (
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
    ),
    "Who holds up readers": (
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
                Query(
                    f"sum by (instance, topic) ({chosen('txn_partition_aborted_index_entries')})", "{{topic}} aborted"
                ),
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
            "Of what takes long, in a process of its own: how they ended, and how many wait. Refused: a writer whose"
            " batches nobody could read. No room: it does not keep up.",
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
            [Query(rate("txn_coordinator_verifications_total", "result"), "{{result}}")],
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
    ),
    "Access": (
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
            "Until that of a listener ends; from 0 seconds on nobody connects. Runbook TxnCertificateEnding.",
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
    ),
    "Fencing, aborts, waits": (
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
            [Query(rate("txn_coordinator_fenced_total", "reason"), "{{reason}}")],
        ),
        Panel(
            "InitProducerId, by what it did",
            "Mostly new: ids are made up at every start, and nothing is ever fenced. Runbook TxnIdGrowth.",
            "ops",
            [
                Query(rate("txn_coordinator_init_total", "result"), "{{result}}"),
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
            [Query(rate("txn_partition_removed_bytes_total", "topic"), "{{topic}}")],
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
                Query(rate("txn_coordinator_concurrent_waits_total", "method, result"), "{{method}}, {{result}}"),
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
    ),
    "Groups": (
        Panel(
            "Groups, by state",
            "Many in a rebalance for long: runbook TxnGroupRebalanceStorm.",
            "short",
            [Query(f"sum by (instance, kind, state) ({chosen('txn_group_groups')})", "{{kind}}, {{state}}")],
            is_stacked=True,
        ),
        Panel(
            "Lag in records",
            "What the chosen groups (metrics_lag_groups) have not read, by where committed or all readers end.",
            "short",
            [
                Query(chosen("txn_group_lag_records"), "{{group}} of {{topic}}, {{isolation}}"),
                Query(chosen("txn_group_lag_omitted"), "pairs without numbers"),
            ],
        ),
        Panel(
            "Lag in time",
            "How old the first record is that they have not read.",
            "s",
            [Query(chosen("txn_group_lag_seconds"), "{{group}} of {{topic}}, {{isolation}}")],
        ),
        Panel(
            "Lag in time, against half an hour ago",
            "Above 0 they fall back. Streams of Spark with a groupId are among them. Runbook TxnStreamBehind.",
            "s",
            [Query(f"delta({chosen('txn_group_lag_seconds')}[30m])", "{{group}} of {{topic}}, {{isolation}}")],
        ),
        Panel(
            "Members that come and go",
            "By why they went: session, rebalance and sync are members that were thrown out.",
            "ops",
            [
                Query(rate("txn_group_member_joins_total", "kind"), "joined {{kind}}"),
                Query(rate("txn_group_member_leaves_total", "reason"), "left, {{reason}}"),
            ],
        ),
        Panel(
            "Rebalances",
            "Begun, completed, failed.",
            "ops",
            [
                Query(rate("txn_group_rebalances_total", "kind"), "begun, {{kind}}"),
                Query(rate("txn_group_rebalances_completed_total", "kind"), "completed, {{kind}}"),
                Query(rate("txn_group_rebalances_failed_total", "kind"), "failed, {{kind}}"),
            ],
        ),
        Latency("How long rebalances take", "Until every member has its part.", "txn_group_rebalance_seconds"),
        Panel(
            "Targets",
            "How long a computation takes on average, by where, and how many members each changed.",
            "short",
            [
                Query(
                    f"{rate('txn_group_assignment_seconds_sum', 'assignor, place')} /"
                    f" {rate('txn_group_assignment_seconds_count', 'assignor, place')}",
                    "{{assignor}} in the {{place}}, seconds",
                ),
                Query(rate("txn_group_assignment_changes_total", "assignor"), "{{assignor}} changes per second"),
            ],
        ),
        Panel(
            "Offsets",
            "Committed, settled by markers, and pending in open transactions: what stable fetches wait for.",
            "short",
            [
                Query(rate("txn_group_offset_commits_total", "type"), "commits per second, {{type}}"),
                Query(rate("txn_group_offsets_settled_total", "outcome"), "settled per second, {{outcome}}"),
                Query(chosen("txn_group_pending_offsets"), "pending"),
                Query(chosen("txn_group_open_transactions"), "transactions that hold some"),
                Query(chosen("txn_group_offsets"), "kept"),
            ],
        ),
        Panel(
            "Age of the oldest pending offset",
            "How long a group has waited for a transaction.",
            "s",
            [Query(chosen("txn_group_oldest_pending_offset_age_seconds"), "{{instance}}")],
        ),
        Panel(
            "Groups and offsets that come and go",
            "Made, deleted, converted; offsets that expired or were deleted; calls that wait.",
            "short",
            [
                Query(rate("txn_group_creations_total", "kind"), "made, {{kind}}"),
                Query(rate("txn_group_deletions_total", "kind, cause"), "gone, {{kind}}, {{cause}}"),
                Query(rate("txn_group_converted_total", "kind"), "converted to {{kind}}"),
                Query(rate("txn_group_offset_expirations_total"), "offsets expired"),
                Query(rate("txn_group_offset_deletions_total"), "offsets deleted"),
                Query(chosen("txn_group_waiting_calls"), "calls waiting, {{reason}}"),
            ],
        ),
        Panel(
            "Records of share groups",
            "Handed out, acknowledged, taken back, not handed out again by reason, and dead letters.",
            "short",
            [
                Query(rate("txn_share_deliveries_total", "delivery"), "delivered per second, {{delivery}}"),
                Query(rate("txn_share_acknowledgements_total"), "acknowledged per second"),
                Query(rate("txn_share_locks_expired_total"), "locks expired per second"),
                Query(rate("txn_share_archived_total", "reason"), "archived per second, {{reason}}"),
                Query(rate("txn_share_settled_total", "outcome"), "settled by transactions per second, {{outcome}}"),
                Query(chosen("txn_share_acquired_records"), "held"),
                Query(chosen("txn_share_pending_records"), "waiting for a transaction"),
                Query(chosen("txn_share_partitions"), "share partitions"),
                Query(rate("txn_share_dead_letters_total", "end"), "letters per second, {{end}}"),
                Query(chosen("txn_share_due_letters"), "letters to be written"),
            ],
        ),
    ),
    "Runtime and store": (
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
            "and the decision asked for again. Given up: whoever wrote died, or was replaced. Replaying: tasks of a "
            "batch that is committed, which wrote nothing, as after a driver's restart.",
            "short",
            [
                Query(rate("txn_sink_batches_total", "result"), "{{result}}"),
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
    ),
}
