"""Every metric this server exports: name, type, labels and meaning, in one table.

`docs/reference/metrics.md` is generated from it, and a test demands that a real run produces each one. Names and labels
follow Prometheus' rules. Transactional ids, producers and members are never labels, because there are too many.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Kind(StrEnum):
    """Prometheus types."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class MetricFamily:
    """One metric. Names are complete, with prefix and unit; counters end in `_total`."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    meaning: str


def _counter(name: str, labels: tuple[str, ...], meaning: str) -> MetricFamily:
    return MetricFamily(name, Kind.COUNTER, labels, meaning)


def _gauge(name: str, labels: tuple[str, ...], meaning: str) -> MetricFamily:
    return MetricFamily(name, Kind.GAUGE, labels, meaning)


def _histogram(name: str, labels: tuple[str, ...], meaning: str) -> MetricFamily:
    return MetricFamily(name, Kind.HISTOGRAM, labels, meaning)


_PARTITION: Final = ("topic", "partition")
_KIND: Final = ("kind",)

FAMILIES: Final = (
    _gauge("txn_build_info", ("version", "proto", "python"), "Always 1; the labels say what runs."),
    _gauge("txn_config_info", ("node", "mode"), "Always 1; the labels say how it is set up (mode: fused, split)."),
    _gauge("txn_config_transaction_max_timeout_seconds", (), "Longest transaction timeout that producers may ask for."),
    _gauge("txn_coordinator_transactions", ("state",), "Transactional ids in each state."),
    _gauge("txn_coordinator_transactional_ids", (), "Transactional ids that are known; watch its growth."),
    _counter(
        "txn_coordinator_verifications_total",
        ("result",),
        "AddPartitionsToTxn with verify_only, which changes nothing: every partition was in the open transaction "
        "(all), some were not (missing), or the call was refused.",
    ),
    _counter("txn_coordinator_producer_ids_allocated_total", (), "Producer ids that were allocated."),
    _counter(
        "txn_coordinator_init_total",
        ("result",),
        "InitProducerId with a transactional id, by what it did: new id, bump of the epoch, reuse (its last answer was "
        "lost), rotate (new producer id), keep (an open transaction, for an outside decision), refused.",
    ),
    _counter("txn_coordinator_epoch_rotations_total", (), "Producer ids replaced because their epochs were used up."),
    _counter(
        "txn_coordinator_completed_total",
        ("outcome", "cause"),
        "Finished transactions. Cause: client, timeout, fence (a newer instance), topic_deleted, admin; of members of "
        "sinks decision, given_up.",
    ),
    _histogram("txn_coordinator_open_to_end_seconds", ("outcome",), "First partition added until the outcome."),
    _histogram(
        "txn_coordinator_end_to_complete_seconds", ("outcome",), "Outcome decided until every marker is durable."
    ),
    _histogram("txn_coordinator_partitions_per_txn", (), "Partitions and groups of transactions that ended."),
    _gauge("txn_coordinator_oldest_open_age_seconds", (), "Age of the oldest open transaction; 0 = none is open."),
    _gauge(
        "txn_coordinator_oldest_prepare_age_seconds", (), "Age of the oldest outcome that is not complete; 0 = none."
    ),
    _gauge(
        "txn_coordinator_oldest_prepared_2pc_age_seconds",
        (),
        "How long the oldest transaction that was prepared for an outside decision has waited for it; 0 = none waits.",
    ),
    _counter(
        "txn_coordinator_expired_ids_total", (), "Transactional ids that were forgotten because they were not used."
    ),
    _counter(
        "txn_coordinator_fenced_total",
        ("reason",),
        "Producers fenced off: their transaction was aborted (newer_init, timeout, topic_deleted), an administrator "
        "did it (admin), or they came too late (epoch: to the coordinator, zombie_produce: to a partition).",
    ),
    _counter(
        "txn_coordinator_concurrent_waits_total",
        ("method", "result"),
        "Calls that waited for a transaction being completed, or for a payload being checked. Result: served, expired, "
        "left (the caller), refused (no room), stopped.",
    ),
    _histogram("txn_coordinator_concurrent_wait_seconds", ("method", "result"), "How long they waited."),
    _gauge("txn_coordinator_parked_calls", (), "Calls that wait so now."),
    _counter(
        "txn_coordinator_invalid_transitions_total", ("from", "to"), "Steps that no table allows: our bug, must stay 0."
    ),
    _counter(
        "txn_coordinator_markers_total",
        ("kind", "target"),
        "Markers written, by outcome (commit, abort) and where to (log: partitions; group: groups with offsets that "
        "waited).",
    ),
    _counter(
        "txn_coordinator_marker_retries_total", ("reason",), "Markers that were refused and sent again, by the refusal."
    ),
    _counter(
        "txn_coordinator_marker_alarms_total",
        ("reason",),
        "Answers to markers that no correct participant gives; must stay 0. TRANSACTION_COORDINATOR_FENCED: another "
        "server has the data of this one.",
    ),
    _gauge("txn_coordinator_markers_pending", (), "Markers that are decided but not durable; only in split mode."),
    _gauge("txn_coordinator_oldest_pending_marker_age_seconds", (), "How long ago the oldest of them was decided."),
    _gauge(
        "txn_coordinator_hanging",
        (),
        "Transactions open in a partition that no coordinator will end, as the last audit found; must stay 0.",
    ),
    _counter(
        "txn_sink_batches_total",
        ("result",),
        "Decisions on batches of sinks: committed, repeated (asked for once more, and found committed), given_up "
        "(members without a decision: their writer died, gave up, or was replaced).",
    ),
    _counter(
        "txn_sink_joins_total",
        ("answer",),
        "Tasks that joined batches of sinks: member (of a batch to write), committed (of a batch that was committed "
        "already and is replayed, so that the task wrote nothing). A join that is repeated counts once.",
    ),
    _gauge(
        "txn_sink_members", ("state",), "Members of sinks that are undecided: open (still writing), sealed (written)."
    ),
    _gauge(
        "txn_sink_oldest_sealed_age_seconds",
        (),
        "How long ago the oldest of the sealed ones was sealed: readers wait for the decision on it; 0 = none is.",
    ),
    _gauge(
        "txn_group_groups",
        ("kind", "state"),
        "Groups of each kind (classic, consumer, share, streams) and state; one with offsets alone is classic, Empty.",
    ),
    _counter("txn_group_creations_total", _KIND, "Groups that got a first member, or first committed offsets."),
    _counter(
        "txn_group_deletions_total",
        ("kind", "cause"),
        "Groups that were removed: deleted by an administrator, or expired, with neither members nor offsets.",
    ),
    _counter(
        "txn_group_converted_total", _KIND, "Groups with members that changed their protocol, by what they became."
    ),
    _counter("txn_group_member_joins_total", _KIND, "New members, and static ones that came back under a new id."),
    _counter(
        "txn_group_member_leaves_total",
        ("kind", "reason"),
        "Members that left or were removed. Reason: leave, session (silent), rebalance (too slow to join again or to "
        "give up partitions), sync (never asked for its assignment), fenced (a newer one has its instance id), size "
        "(no room).",
    ),
    _counter("txn_group_rebalances_total", _KIND, "Rebalances that began; of consumer groups: new group epochs."),
    _counter(
        "txn_group_rebalances_completed_total",
        _KIND,
        "Rebalances after which every member had its part. In consumer groups one may end several that began.",
    ),
    _counter("txn_group_rebalances_failed_total", _KIND, "Rebalances that had to begin again before the assignment."),
    _histogram("txn_group_rebalance_seconds", _KIND, "From the beginning until every member had its part."),
    _histogram(
        "txn_group_assignment_seconds",
        ("assignor", "place"),
        "Computing a target of a consumer group: on the loop, or in the worker process, with the wait for it.",
    ),
    _counter("txn_group_assignment_changes_total", ("assignor",), "Members whose target changed with a computation."),
    _gauge(
        "txn_group_waiting_calls",
        ("reason",),
        "Calls of members that wait: for other members (JoinGroup, SyncGroup), or for news (heartbeats); of each at "
        "most `group_waits_max`.",
    ),
    _gauge("txn_group_offsets", (), "Partitions of groups with an offset, committed or pending."),
    _counter("txn_group_offset_commits_total", ("type",), "Offsets committed: plain, or pending in a transaction."),
    _counter("txn_group_offsets_settled_total", ("outcome",), "Pending offsets that a marker committed or aborted."),
    _counter("txn_group_offset_expirations_total", (), "Offsets forgotten because of their age."),
    _counter("txn_group_offset_deletions_total", (), "Offsets deleted by a caller, or with their topic."),
    _gauge("txn_group_pending_offsets", (), "Offsets that wait for the end of a transaction."),
    _gauge("txn_group_open_transactions", (), "Transactions that hold offsets of a group, once per group."),
    _gauge(
        "txn_group_oldest_pending_offset_age_seconds",
        (),
        "How long the oldest of them has held its offsets; 0 = none does. Stable fetches of those wait as long.",
    ),
    _gauge(
        "txn_group_lag_records",
        ("group", "topic", "isolation"),
        "Records that a watched group has not read, by `metrics_lag_groups`: up to the last stable offset "
        "(read_committed), or to the high watermark (read_uncommitted). Markers do not count, and aborted records not "
        "for read_committed; nor does what lies behind damage. Looked up in the background, every ten seconds.",
    ),
    _gauge(
        "txn_group_lag_seconds",
        ("group", "topic", "isolation"),
        "How long the oldest of them has waited, by its producer's clock; 0 = everything was read.",
    ),
    _gauge(
        "txn_group_lag_omitted",
        (),
        "Pairs of a watched group and a topic beyond `metrics_lag_topics_max`, which have no lag here.",
    ),
    _gauge("txn_share_partitions", (), "Share partitions: one for each partition that a share group reads."),
    _gauge("txn_share_acquired_records", (), "Records that members of share groups hold."),
    _counter(
        "txn_share_deliveries_total",
        ("delivery",),
        "Records that members of share groups acquired: for the first time (first), or after others had them (again).",
    ),
    _counter("txn_share_acknowledgements_total", (), "Records of which members told the outcome."),
    _gauge("txn_share_pending_records", (), "Records that members of share groups acknowledged in open transactions."),
    _counter(
        "txn_share_settled_total",
        ("outcome",),
        "Records acknowledged in transactions that have ended, by outcome (commit, abort). An abort gives them back.",
    ),
    _counter("txn_share_locks_expired_total", (), "Records that were taken back because their lock had expired."),
    _counter(
        "txn_share_archived_total",
        ("reason",),
        "Offsets that a share group is not handed out again: rejected; delivery_limit (delivered too often and never "
        "acknowledged); gap (no record); aborted; log_start (removed from the log).",
    ),
    _gauge("txn_share_due_letters", (), "Records whose letters are to be written to the dead-letter topics of groups."),
    _counter(
        "txn_share_dead_letters_total",
        ("end",),
        "Records that share groups have given up, by the end of their letters: written; bare (without the record, "
        "which does not fit or is gone); no_topic (delivered too often, without a dead-letter topic); own_topic (of "
        "that topic itself); removed (by retention); dropped (with the group or the topic).",
    ),
    _gauge(
        "txn_topic_bytes",
        ("topic",),
        "Bytes of batches that the topic holds, from its log starts on, with those of open and aborted transactions. "
        "Some readings late after retention removed something.",
    ),
    _gauge(
        "txn_topic_records", ("topic",), "Records that the topic holds, with those of open and aborted transactions."
    ),
    _gauge(
        "txn_topics",
        ("cleanup_policy",),
        "Topics by cleanup policy.",
    ),
    _gauge("txn_partition_high_watermark", _PARTITION, "End of the durable log."),
    _gauge("txn_partition_log_start_offset", _PARTITION, "First offset that can be read."),
    _gauge("txn_partition_last_stable_offset", _PARTITION, "End for committed readers."),
    _gauge("txn_partition_lso_lag_records", _PARTITION, "High watermark minus last stable offset."),
    _gauge("txn_partition_open_transactions", _PARTITION, "Transactions with records here and no marker yet."),
    _gauge("txn_partition_oldest_open_age_seconds", _PARTITION, "How long the oldest of them holds back readers."),
    _gauge("txn_partition_aborted_index_entries", _PARTITION, "Aborted transactions that readers must step over."),
    _gauge("txn_partitions_omitted", (), "Partitions beyond the configured number, which have no gauges of their own."),
    _counter("txn_partition_appended_records_total", ("topic", "kind"), "Records appended (data, control)."),
    _counter("txn_partition_appended_bytes_total", ("topic", "kind"), "Bytes appended (data, control)."),
    _gauge(
        "txn_partition_unchecked_bytes",
        (),
        "Payloads that wait until another process has looked whether readers can decode them; at most 64 MiB.",
    ),
    _gauge("txn_partition_unchecked_batches", (), "Batches that wait so; at most 10,000."),
    _counter(
        "txn_partition_payload_checks_total",
        ("result",),
        "Checks of payloads in that process, by what came of them: taken, refused (INVALID_RECORD), lost (the process "
        "died; clients send again), no_room (too many wait; clients come again).",
    ),
    _counter(
        "txn_partition_expired_producers_total", (), "Producers that did not write for long and that partitions forgot."
    ),
    _counter(
        "txn_partition_deleted_offsets_total",
        ("topic", "cause"),
        "Offsets that the log start passed. Cause: request (DeleteRecords), retention.",
    ),
    _counter(
        "txn_partition_removed_bytes_total",
        ("topic",),
        "Bytes of logs that were removed from the store behind the log start, to within 1 MiB for each partition.",
    ),
    _gauge(
        "txn_compaction_dirty_ratio",
        (),
        "Largest share that records which no pass of compaction has been over have in a log of a compacted topic.",
    ),
    _gauge(
        "txn_compaction_waiting_seconds",
        (),
        "How long the log that has waited longest is due for a pass of compaction; 0 = none is due.",
    ),
    _gauge(
        "txn_compaction_last_pass_seconds",
        (),
        "Time since a pass of compaction last ended, in any log of a compacted topic; 0 = none has ended.",
    ),
    _counter(
        "txn_compaction_passes_total",
        ("result",),
        "Passes of compaction: ended, or stopped (a snapshot held records, damage was met, the worker died); a stopped "
        "pass goes on later.",
    ),
    _counter("txn_compaction_removed_bytes_total", ("topic",), "Bytes that compaction removed from logs."),
    _counter("txn_compaction_removed_records_total", ("topic",), "Records that compaction removed from logs."),
    _counter(
        "txn_compaction_unreadable_batches_total",
        (),
        "Batches that passes of compaction met and could not decode. They stay, and so do tombstones behind them.",
    ),
    _gauge("txn_partition_snapshots_held", (), "Snapshots whose records are held back from removal, of at most 1,000."),
    _gauge(
        "txn_partition_oldest_snapshot_age_seconds",
        (),
        "How long the oldest of them has been held, renewals included; 0 = none is.",
    ),
    _gauge(
        "txn_partition_retention_held_back",
        (),
        "Partitions that keep more than retention wants, because a transaction is open or a snapshot holds them.",
    ),
    _counter(
        "txn_partition_damaged_places_total",
        ("topic", "family"),
        "Damaged places that readers met, each counted once: in the family `log` records are lost, in others indexes "
        "are damaged. Must stay 0; the log says where.",
    ),
    _counter(
        "txn_read_records_total",
        ("topic", "isolation", "result"),
        "Records read, and hidden from readers (served, aborted_skipped, control_skipped).",
    ),
    _gauge(
        "txn_runtime_shard_state",
        ("coordinator", "state"),
        "Shards by state: unloaded, loading, active, unloading, failed. Only active ones serve.",
    ),
    _gauge(
        "txn_runtime_failed_shards",
        ("coordinator", "shard"),
        "1 for every shard that could not be read and does not serve; `txnctl shard list --state failed` says why.",
    ),
    _gauge(
        "txn_runtime_load_seconds",
        ("coordinator",),
        "How long the newest load of a shard took, with the wait for those before it; at the start: of all.",
    ),
    _counter("txn_runtime_load_failures_total", ("coordinator",), "Loads of a shard that failed; the log says why."),
    _gauge("txn_runtime_undurable_bytes", (), "Bytes staged or being written."),
    _gauge("txn_runtime_commit_queue_groups", (), "Commit groups that wait for the disk."),
    _histogram("txn_runtime_batch_records", (), "Stored rows per commit group, which share one flush."),
    _histogram("txn_runtime_flush_seconds", (), "Commit group sealed until durable, with the wait for earlier ones."),
    _histogram("txn_runtime_event_loop_lag_seconds", (), "How late the loop runs what is due."),
    _gauge("txn_runtime_timers", ("kind",), "Armed timers, by what for."),
    _counter(
        "txn_runtime_defects_total", (), "Operations that failed by a bug of ours; the log has them. Must stay 0."
    ),
    _histogram("txn_store_sync_seconds", (), "One sync of the write-ahead log."),
    _counter("txn_store_write_bytes_total", (), "Keys and values written."),
    _gauge("txn_store_size_bytes", (), "Sorted files of the store."),
    _gauge("txn_store_wal_bytes", (), "Write-ahead log of the store."),
    _gauge("txn_store_segment_bytes", (), "Files of large batches."),
    _gauge("txn_store_memtable_bytes", (), "Memory for what is in no sorted file yet; at most `write_buffer_bytes`."),
    _gauge(
        "txn_store_block_cache_bytes",
        (),
        "Memory for blocks of sorted files that were read, their indexes among them; at most `block_cache_bytes`.",
    ),
    _gauge("txn_store_table_readers_bytes", (), "Memory for sorted files that are open, beside the cache."),
    _gauge("txn_config_backup_interval_seconds", (), "How often the server makes a backup by itself; 0 = never."),
    _gauge(
        "txn_backup_age_seconds",
        (),
        "Age of the newest backup of this store in `backup_directory`; without one, for how long the server has run. "
        "The loss of the disk loses what is younger. Absent without `backup_directory`, like all that follows.",
    ),
    _gauge("txn_backup_size_bytes", (), "What its files take together; links may share some of that."),
    _gauge("txn_backup_elapsed_seconds", (), "Time that the last backup took, complete or failed."),
    _gauge("txn_backup_copied_bytes", (), "What is done of the backup that is being made; 0 = none is."),
    _counter("txn_backups_total", ("result",), "Backups that this process made, or failed to make."),
    _gauge("txn_store_pending_compaction_bytes", (), "What the store still has to compact."),
    _gauge(
        "txn_store_disk_free_bytes",
        (),
        "Free space of the store's disk, looked at twice a second; no series where `disk_free_min_bytes` is 0.",
    ),
    _gauge(
        "txn_store_disk_free_min_bytes",
        (),
        "Free space below which no records are taken until an eighth more is free; 0 = they always are.",
    ),
    _gauge("txn_store_disk_low", (), "1 while no records are taken because the disk is nearly full."),
    _counter(
        "txn_store_disk_refused_total",
        (),
        "Batches of Produce, and calls of Transact, that were refused because of it.",
    ),
    _counter("txn_store_write_stalls_total", (), "Writes that waited because compaction lags behind."),
    _counter("txn_store_reclaims_total", (), "Compactions that gave back the room of what was deleted."),
    _gauge(
        "txn_store_damaged_files",
        (),
        "Sorted files in which damage was met. What lies beside them is not compacted any more, so that reads become "
        "slower until a backup is restored. Must stay 0.",
    ),
    _counter(
        "txn_object_store_requests_total",
        ("operation", "result"),
        "Requests to object storage; those that its HTTP client repeats count once. An object that is absent, and a "
        "conditional write that another one has won, are errors. Absent for a store on a disk, like the other "
        "`txn_object_store_*`.",
    ),
    _histogram("txn_object_store_request_seconds", ("kind",), "One such request (kind: get, put, delete)."),
    _counter(
        "txn_object_store_cache_reads_total",
        ("cache", "result"),
        "Reads of the caches, by what came of them: blocks in memory, and parts of objects on the local disk.",
    ),
    _counter(
        "txn_object_store_written_bytes_total",
        ("purpose",),
        "Bytes written to object storage: the log, tables of what was in memory, and what compaction wrote again.",
    ),
    _gauge("txn_object_store_cache_bytes", (), "The cache on the local disk; at most `store_cache_bytes_max`."),
    _counter("txn_object_store_log_flushes_total", (), "Objects of the log that were written, one for each sync."),
    _counter("txn_rpc_requests_total", ("service", "method", "code"), "Calls that ended, by gRPC's status."),
    _counter(
        "txn_rpc_errors_total",
        ("method", "error"),
        "Calls answered with an error, by Kafka's name of it; a call that names it for several items counts once.",
    ),
    _histogram("txn_rpc_seconds", ("method",), "Time on the server, waits included."),
    _gauge("txn_rpc_in_flight", ("method",), "Calls without an answer yet."),
    _gauge("txn_rpc_answer_bytes", (), "Bytes of answers that wait until their callers take them."),
    _counter(
        "txn_rpc_answers_refused_total",
        ("scope",),
        "Reads refused because answers wait: on their connection, of their principal, or on the whole server. Clients "
        "come again.",
    ),
    _gauge(
        "txn_rpc_connections",
        (),
        "Connections of callers, of both protocols. With the transport grpc: on Linux, and TCP alone.",
    ),
    _gauge("txn_rpc_connections_max", (), "Connections that there may be."),
    _counter(
        "txn_rpc_harm_total",
        _KIND,
        "Connections and requests that were refused or cut to protect other callers, by kind. Connections: beyond the "
        "maximum (connections), not given by the system (not_taken), failed TLS handshakes (handshakes), from hosts "
        "with many of those (strangers), too many without authentication (unauthenticated), against the rules of HTTP/2"
        " (rules). Requests: too large, decompressed or not (messages), incomplete ones that held too much (requests). "
        "Connections with repeated abuse: calls without valid credentials (unknown_calls), resets (resets), frames "
        "without calls (control_frames), calls without requests (unfinished_calls), too many open calls "
        "(refused_calls). The transport grpc reports none of these. A client of Kafka's protocol on a port for gRPC "
        "counts as kafka_client. On ports for Kafka's protocol there are also: other protocols (not_kafka), versions "
        "that are not served (kafka_versions), requests that are too large (kafka_large), incomplete after a minute "
        "(kafka_stalled), no authentication in time (kafka_silent).",
    ),
    _counter(
        "txn_tls_handshakes_total",
        (),
        "Handshakes of TLS that began, however they ended. Those that failed are in txn_rpc_harm_total; with the "
        "transport grpc, which does not say, many of these with few calls are callers whose certificates do not count.",
    ),
    _gauge(
        "txn_tls_certificate_expiry_timestamp_seconds",
        ("listen",),
        "When the certificate expires that a listener serves, in Unix seconds.",
    ),
    _gauge(
        "txn_tls_files_refused",
        ("listen",),
        "1 while the files of a listener that lie there now cannot be used, and older ones serve; the log says why.",
    ),
    _gauge(
        "txn_insecure_listeners",
        (),
        "Listeners that others can reach without TLS, or without being asked who they are, because `insecure` allows"
        " it; the one for metrics counts where it has no TLS.",
    ),
    _counter(
        "txn_rpc_unauthenticated_total",
        ("reason",),
        "Callers that were refused because they showed no credentials, or none that are valid.",
    ),
    _counter(
        "txn_access_refusals_total",
        ("operation", "resource_type"),
        "Refusals of callers who may not do what they asked for, where the server goes by ACLs. The audit log names "
        "them.",
    ),
    _counter(
        "txn_audit_lines_total",
        ("kind", "written"),
        "Lines of the audit log: acts of administrators, refusals, quotas, fences; and whether they were written, "
        "because in a flood few of those that say the same are.",
    ),
    _counter(
        "txn_quota_refusals_total",
        ("quota",),
        "Calls, sessions and connections that were refused because their principal has no more of something, by "
        "quota. The audit log names the principals.",
    ),
    _counter(
        "txn_quota_throttles_total",
        ("quota",),
        "Answers that asked their caller to pause because its principal took more than its rate, by quota.",
    ),
    _gauge("txn_access_acls", (), "ACLs in force."),
    _gauge("txn_access_enforced", (), "1 if callers may do only what an ACL allows them, 0 if they may do everything."),
    _counter("txn_rpc_rejected_total", ("reason",), "Calls rejected: overload, loading, stopping. Clients retry."),
)
