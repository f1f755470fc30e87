"""Text of docs/reference/metrics.md, from the table of the metrics."""

from __future__ import annotations

from typing import Final

from coordinator_server.events.observer import SLOW_COMMIT_MS, SLOW_REBALANCE_MS
from coordinator_server.metrics.families import FAMILIES, MetricFamily
from coordinator_server.metrics.probe import PROBE_FAMILIES

_SECTIONS: Final = {
    "Identity": ("txn_build_", "txn_config_"),
    "Transactions": ("txn_coordinator_", "txn_sink_"),
    "Groups and offsets": ("txn_group_",),
    "Share partitions": ("txn_share_",),
    "Partitions and reads": ("txn_topic", "txn_partition", "txn_read_"),
    "Compaction": ("txn_compaction_",),
    "Runtime": ("txn_runtime_",),
    "Store": ("txn_store_", "txn_object_store_"),
    "Backups": ("txn_backup",),
    "Calls": ("txn_rpc_",),
    "Access": ("txn_access_", "txn_audit_", "txn_quota_"),
    "Listeners": ("txn_tls_", "txn_insecure_"),
    "Probe": ("txn_probe_",),
}

_HEAD: Final = """\
# Metrics and log lines

Metrics say how much and how long, never who: no label holds a transactional id, a producer or a client, of which
there are too many, nor a group that an operator did not name (`metrics_lag_groups`). The log has these names, one line
per event ([below](#log-lines)).

## How to turn them on

```bash
txnctl serve --data-dir data --set metrics_listen=127.0.0.1:9464
curl -s http://127.0.0.1:9464/metrics
```

`metrics_listen` is not set by default. The endpoint answers in the text format of Prometheus, and on request in
OpenMetrics, from before the state is loaded until the server has drained. It names topics, so protect it like the
data: it answers every caller unless `metrics_tls_client_auth` demands a certificate, and beyond this machine a server
starts it only with TLS or `--insecure`. A scrape is taken in one step, so all its numbers are of the same moment; one
that the server cannot answer within five seconds fails with status 503.

```yaml
scrape_configs:
  - job_name: txn-coordinator
    scrape_interval: 15s
    static_configs:
      - targets: ["127.0.0.1:9464"]
```

Counters and histograms begin at 0 with every start of the process. What happened in a transaction or a group is counted
once it is durable.
"""

_REMARKS: Final = """\
## Where the names could mislead

- Wait and flush times are counted from the moment work is there, so they hold queueing as well as work. There is no
  metric for a queue of requests: a request is worked on as soon as it arrives. `txn_runtime_event_loop_lag_seconds`,
  `txn_runtime_undurable_bytes` and `txn_runtime_commit_queue_groups` show if the server keeps up.
- A commit group holds rows of all coordinators and goes to one store. So `txn_runtime_batch_records`,
  `txn_runtime_flush_seconds` and the metrics of the store have no label for either.
- `txn_store_write_stalls_total` counts, because a gauge would miss every stall between two scrapes.
- Those of the probe come from `txnctl probe --metrics-listen HOST:PORT`, a process of its own: scrape it, too.
- Lag exists for the groups that `metrics_lag_groups` names, and is as old as the last round over them: ten seconds,
  or longer where many partitions are watched.
- Gauges of partitions exist for the first `metrics_partitions_max` ones by topic name and number;
  `txn_partitions_omitted` says how many have none. Series of a deleted topic end with it.
- `txn_coordinator_fenced_total`: an abort that fences a producer and the late calls of that producer are different
  reasons. A newer instance that finds nothing open is not counted here; it is a `bump` of
  `txn_coordinator_init_total`, and a `taken_over` line in the log.
- An error in an answer is no failed call: its request counts as `OK`, and its error in `txn_rpc_errors_total`.
- `txn_rpc_seconds` of JoinGroup, SyncGroup and heartbeats holds the time that they wait on purpose, for other members
  or for news. `txn_group_rebalance_seconds` shows how soon a group is served. That of a consumer group ends when
  its last member has taken up the new epoch, and one that keeps its partitions does so with its next heartbeat only.
- A rebalance that a restart interrupts counts as begun, and not as completed or failed.
- `txn_group_creations_total` minus `txn_group_deletions_total` is not `txn_group_groups`: groups that were there at the
  start are in no counter, nor is the end of one that only had offsets when the last of them is deleted.
"""

_KAFKA_HEAD: Final = """\
## Kafka's names

What dashboards for Kafka's group coordinator show, and where it is found here. A rate is `rate(...)` of a counter, an
average `rate(..._sum) / rate(..._count)`.

| there | here |
| --- | --- |
"""

_KAFKA: Final = (
    ("group-count, consumer-group-count, active-group-count", "`txn_group_groups` by `kind` and `state`"),
    ("group-creation-rate", "`txn_group_creations_total`"),
    ("group-deletion-rate", "`txn_group_deletions_total`"),
    ("member-join-rate", "`txn_group_member_joins_total`"),
    ("member-leave-rate", "`txn_group_member_leaves_total`"),
    ("rebalance-rate, consumer-group-rebalance-rate", "`txn_group_rebalances_total`"),
    ("group-completed-rebalance-rate", "`txn_group_rebalances_completed_total`"),
    ("rebalance-failure-rate", "`txn_group_rebalances_failed_total`"),
    ("rebalance-duration, rebalance-duration-avg", "`txn_group_rebalance_seconds`"),
    (
        "heartbeat-rate",
        '`txn_rpc_requests_total{method=~"Heartbeat\\|ConsumerGroupHeartbeat"}`, errors in `txn_rpc_errors_total`',
    ),
    ("heartbeat-latency", "`txn_rpc_seconds` of the same methods, with the wait for news"),
    (
        "recordGroupJoin, recordGroupSync",
        '`txn_rpc_requests_total{method=~"JoinGroup\\|SyncGroup"}`, errors in `txn_rpc_errors_total`',
    ),
    ("assignment-compute-time", "`txn_group_assignment_seconds`"),
    ("assignment-change-rate", "`txn_group_assignment_changes_total`"),
    ("offset-commit-rate", "`txn_group_offset_commits_total`"),
    ("offset-expiration-rate", "`txn_group_offset_expirations_total`"),
    ("offset-deletion-rate", "`txn_group_offset_deletions_total`"),
    ("num-offsets", "`txn_group_offsets`"),
    ("num-partitions by state", '`txn_runtime_shard_state{coordinator="groups"}`'),
    ("partition-load-time", '`txn_runtime_load_seconds{coordinator="groups"}`'),
    ("event-queue-size, event-queue-time, event-processing-time", "`txn_runtime_event_loop_lag_seconds`"),
    ("event-purgatory-time, batch-flush-time", "`txn_runtime_flush_seconds`"),
    ("thread-idle-ratio", "the processor time of the process: one thread decides"),
    ("group lag", "`txn_group_lag_records`, `txn_group_lag_seconds`, for groups that `metrics_lag_groups` names"),
    (
        "of consumers: heartbeat-response-time, join-time, sync-time, commit-latency",
        "none, those are of the clients; `txn_rpc_seconds` is the part of the server",
    ),
    ("share: deliveries, acknowledgements, locks, archived records", "`txn_share_*`"),
    ("streams-group-*", 'the metrics of groups above, with `kind="streams"`'),
)
"""Names of Kafka's metrics, and their counterparts here. Source: spec groups 8.1."""

_LOG_LINES: Final = (
    ("fenced", "info", "A newer instance initialised the id; the open transaction of the other one is aborted."),
    ("taken_over", "info", "A newer instance initialised the id, and nothing was aborted."),
    ("transaction_timed_out", "info", "The transaction was open for longer than its timeout and is aborted."),
    ("transaction_aborted_with_topic", "info", "A topic with records of the transaction was deleted."),
    ("transaction_aborted_by_admin", "info", "An administrator aborted the open transaction."),
    ("fenced_by_admin", "info", "An administrator fenced the owner of the id; nothing was open."),
    ("hanging_transaction", "error", "An audit found a transaction in a partition that no coordinator will end."),
    ("hanging_transaction_aborted", "warning", "An administrator ended it."),
    (
        "sink_given_up",
        "warning",
        "No decision on `members` of a batch of a `sink`: their writer died, gave up, or was replaced.",
    ),
    ("sink_decided", "debug", "A batch of a sink was committed, or found committed (`result`)."),
    ("sink_joined", "debug", "A task joined a batch of a sink: `answer`, as in `txn_sink_joins_total`."),
    (
        "coordinator_fenced",
        "error",
        "A partition knows a later coordinator of a `shard`: it is not served here any more.",
    ),
    ("marker_from_outside", "info", "A marker that no coordinator of this server sent was written (WriteTxnMarkers)."),
    ("slow_commit", "warning", f"From the outcome until COMPLETE was durable it took {SLOW_COMMIT_MS} ms or longer."),
    ("topic_created", "info", "With `topic`, `topic_id`, `partitions`."),
    ("topic_deleted", "info", "The same."),
    ("topic_altered", "info", "Its settings were changed: `old_settings`, `settings`."),
    ("log_compacted", "info", "A pass of compaction has been over a partition, up to `compacted_to`."),
    ("topic_extended", "info", "It has more partitions: `old_partitions`, `partitions`."),
    (
        "records_deleted",
        "info",
        "The log start of a partition passed so many `offsets`; `cause`: request (DeleteRecords), retention.",
    ),
    (
        "damage_found",
        "error",
        "A reader met stored bytes that are not what was written, from `offset` to `next_offset`; once for each place.",
    ),
    ("stepped", "debug", "Every change of state."),
    ("expired", "debug", "An unused id was forgotten."),
    ("group_created", "info", "A group that was not there; with `group_id` and `kind`, as the following."),
    ("member_joined", "info", "A new member, or a static one that came back under a new id: `member_id`."),
    ("member_left", "info", "It said so, or an administrator did."),
    ("member_fenced", "info", "A newer member has its instance id. Again and again: two processes share the id."),
    (
        "member_removed",
        "warning",
        "It was silent, too slow, or found no room (`reason`: session, rebalance, sync, size); with advice.",
    ),
    ("rebalance_started", "info", "The group needs a new assignment, and the `cause`."),
    ("rebalance_failed", "info", "It must begin again before the assignment was there."),
    (
        "rebalance_completed",
        "info",
        f"Every member has its part: `generation`, `members`, `elapsed_ms`. From {SLOW_REBALANCE_MS} ms on a warning.",
    ),
    ("group_converted", "info", "A group with members changed its protocol: `old_kind`, `new_kind`."),
    ("group_deleted", "info", "An administrator deleted the group."),
    ("group_expired", "info", "The group had neither members nor offsets, and was forgotten."),
    ("offsets_expired", "info", "So many `offsets` of a group were forgotten because of their age."),
    ("offsets_deleted", "info", "A caller deleted so many `offsets`, or a topic that they belonged to."),
    ("lock_expired", "info", "A member of a share group did not acknowledge so many `records` in time."),
    ("records_rejected", "info", "A member of a share group rejected the records from `offset` to `next_offset`."),
    (
        "records_given_up",
        "warning",
        "Records of a share group were delivered as often as it allows, and never acknowledged; with advice.",
    ),
    ("letters_written", "info", "Records that a share group gave up are in its dead-letter topic, with the `reason`."),
    (
        "letters_written_bare",
        "warning",
        "The same, without the records' content: it did not fit, or could not be read. Headers of each letter say why.",
    ),
    ("letters_delayed", "warning", "So many `letters` wait to be written into the `dead_letter_topic`: `why`."),
    ("letters_lost", "warning", "Records that a share group gave up have no letter; with advice."),
    (
        "letters_dropped",
        "warning",
        "So many `letters` were not written: their group or partition was deleted or reset.",
    ),
    ("assignment_computed", "debug", "A consumer group has a target: `assignor`, `changed_members`."),
    ("assignment_failed", "error", "An `assignor` failed on a consumer group, which keeps the target that it has."),
    (
        "damaged_files",
        "warning",
        "The start found sorted files in which damage had been met: they are read, and not compacted.",
    ),
    ("serving_metrics", "info", "Scrapes are answered from now on, at `listen`."),
    (
        "serving_kafka",
        "info",
        "A listener for Kafka's protocol takes calls: `listen`, `advertised` (address that clients get), `protection`.",
    ),
    (
        "loading",
        "info",
        "A long start has loaded `shards` of `shards_to_load`, at `records_per_second`; `left_ms` is an estimate.",
    ),
    ("loaded", "info", "All shards are loaded, but for `failed_shards`: the server takes work."),
    ("serving", "info", "A listener takes calls: `listen`, `transport`, `protection`."),
    ("load_failed", "error", "What all shards share cannot be read; nothing was served."),
    ("shard_load_failed", "error", "A `shard` of a `coordinator` cannot be read and does not serve; the others do."),
    (
        "unreadable_id",
        "error",
        "Only a newer server knows the `state` of a `transactional_id`, which alone is not served.",
    ),
    ("shard_loaded", "info", "A shard was loaded after the start, with `records` and `elapsed_ms`."),
    ("shard_unloaded", "info", "A shard is not served any more."),
    ("shard_control", "info", "An administrator asked for a load or unload (`action`)."),
    ("backup_begins", "info", "A backup is being made; `scheduled`: by `backup_interval_ms`. With its `name`."),
    ("backup_made", "info", "It is complete: `version`, `size_bytes`, `elapsed_ms`."),
    ("backup_failed", "error", "None was made, and nothing is left of it: `reason`."),
    ("backups_unreadable", "warning", "At its start the server could not look into `backup_directory`: `reason`."),
    ("disk_low", "error", "No records are taken: less than `disk_free_min_bytes` is free."),
    ("disk_has_room", "info", "Records are taken again."),
    ("disk_unseen", "error", "The free space could not be looked at: `reason`."),
    ("lease_awaited", "info", "The server waits for the lease of its store, of `ttl_ms`."),
    ("lease_trouble", "warning", "Requests about the lease fail: the `problem`, and the `standing` of this server."),
    ("lease_held", "info", "It holds the lease and opens the store; `term` counts the holders."),
    (
        "bucket_opened",
        "info",
        "The store in object storage is open: `look_ms` of a look that changes nothing, `engine_ms` of SlateDB.",
    ),
    (
        "lease_kept",
        "warning",
        "An ending server could not hand its lease over: the last `problem` with the object store.",
    ),
    ("drain", "info", "A `signal` came: nothing new is taken, and what was begun is finished."),
    ("stopped", "info", "The server has ended in order."),
    ("fail_stop", "error", "The store failed: the process ends, and the next start recovers."),
    ("defect", "error", "A bug of ours failed one operation, with its traceback."),
    (
        "native_transport_unusable",
        "warning",
        "The compiled transport is installed and cannot be loaded, so grpc.aio serves: `reason`.",
    ),
    ("failed", "error", "The thread of the compiled transport failed, and the process ends: `failure`."),
    ("service_manager_not_told", "warning", "A notification for systemd could not be sent."),
    (
        "harm",
        "warning",
        "Callers are refused or cut so that others are served: `kind`, as in `txn_rpc_harm_total`; with advice.",
    ),
    (
        "unauthenticated",
        "warning",
        "In the audit log: an unauthenticated caller was refused: `reason`, `host`. One a second for each reason.",
    ),
    ("scrape_failed", "warning", "A request for metrics got status 503."),
    ("scrape_refused", "info", "A connection to the metrics made no TLS handshake: `host`, `reason`."),
    (
        "insecure_listener",
        "warning",
        "Others can reach the address `listen` without TLS, or without being asked who they are (`problem`).",
    ),
    ("credentials_changed", "info", "New files of TLS are used for connections made from now on."),
    ("credentials_refused", "warning", "The files of TLS changed and cannot be used: why, and the old ones serve."),
    ("tokens_changed", "info", "The tokens file has changed, and what it says counts from now on."),
    ("tokens_refused", "warning", "The tokens file cannot be used: why, and that the old tokens count."),
    ("key_set_changed", "info", "The key set of JWTs has changed, and its `keys` count from now on."),
    ("key_set_refused", "warning", "The key set cannot be used: why, and that the old keys count."),
    ("keys_passed_over", "warning", "Keys of the key set do not count here: `keys`, each with the reason."),
    ("quotas_changed", "info", "The quotas file has changed, and what it says holds from now on."),
    ("quotas_refused", "warning", "The quotas file cannot be used: why, and that the old one holds."),
    ("certificate_expired", "error", "The certificate that a listener serves has expired, and callers refuse it."),
)

_LOG_HEAD: Final = """\
## Log lines

Lines go to stderr, as JSON, or in words if stderr is a terminal (`log_format`). Lines about transactions
carry `transactional_id`, `producer_id`, `old_epoch`, `producer_epoch`, `old_state`, `new_state`, `cause`, and the
`client_id` and `host` of their cause (both empty: the server itself). Lines about groups carry those two as
well. They are written once the event is durable. The lines of the audit log, `act` and `refused`
for instance, are described [elsewhere](../security.md#what-is-on-record).

| event | level | meaning |
| --- | --- | --- |
"""


def metrics_page() -> str:
    """Return the content of docs/reference/metrics.md."""
    sections = "\n".join(_section(title, prefixes) for title, prefixes in _SECTIONS.items())
    events = "".join(f"| `{event}` | {level} | {meaning} |\n" for event, level, meaning in _LOG_LINES)
    names = "".join(f"| {there} | {here} |\n" for there, here in _KAFKA)
    return f"{_HEAD}\n## All metrics\n\n{sections}\n{_REMARKS}\n{_KAFKA_HEAD}{names}\n{_LOG_HEAD}{events}"


def _section(title: str, prefixes: tuple[str, ...]) -> str:
    rows = "".join(_row(family) for family in (*FAMILIES, *PROBE_FAMILIES) if family.name.startswith(prefixes))
    return f"### {title}\n\n| name | type | labels | meaning |\n| --- | --- | --- | --- |\n{rows}"


def _row(family: MetricFamily) -> str:
    labels = ", ".join(f"`{label}`" for label in family.labels)
    return f"| `{family.name}` | {family.kind} | {labels} | {family.meaning} |\n"
