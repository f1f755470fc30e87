"""The text of docs/metrics.md, from the table of the metrics."""

from __future__ import annotations

from typing import Final

from coordinator_server.events import SLOW_COMMIT_MS
from coordinator_server.metrics.families import FAMILIES, Family

_SECTIONS: Final = {
    "Identity": ("txn_build_", "txn_config_"),
    "Transactions": ("txn_coordinator_",),
    "Partitions and reads": ("txn_partition", "txn_read_"),
    "Runtime": ("txn_runtime_",),
    "Store": ("txn_store_",),
    "Calls": ("txn_rpc_",),
}

_HEAD: Final = """\
# Metrics and log lines

Metrics say how much and how long, never who: no label holds a transactional id, a producer or a client, of which there
are too many. Who it was, the log says, one line per event ([below](#log-lines)).

## How to turn them on

```bash
txnctl serve --data-dir data --set metrics_listen=127.0.0.1:9464
curl -s http://127.0.0.1:9464/metrics
```

`metrics_listen` is not set by default. The endpoint answers in the text format of Prometheus, and in OpenMetrics to who
asks for it, from before the state is loaded until the server has drained. It has no authentication and names topics:
keep it on a trusted network. A scrape is taken in one step, so all its numbers are of the same moment; one that the
server cannot answer within five seconds fails with status 503.

```yaml
scrape_configs:
  - job_name: txn-coordinator
    scrape_interval: 15s
    static_configs:
      - targets: ["127.0.0.1:9464"]
```

Counters and histograms begin at 0 with every start of the process. What happened in a transaction is counted once it is
durable.
"""

_REMARKS: Final = """\
## Where the names could mislead

- Wait and flush times are counted from the moment work is there, so they hold queueing as well as work. There is no
  metric for a queue of requests: a request is worked on as soon as it arrives. Whether the server keeps up is said by
  `txn_runtime_event_loop_lag_seconds`, `txn_runtime_undurable_bytes` and `txn_runtime_commit_queue_groups`.
- A commit group holds rows of all coordinators and goes to one store. So `txn_runtime_batch_records`,
  `txn_runtime_flush_seconds` and the metrics of the store have no label for either.
- `txn_store_write_stalls_total` counts, because a gauge would miss every stall between two scrapes.
- Gauges of partitions exist for the first `metrics_partitions_max` ones by topic name and number;
  `txn_partitions_omitted` says how many have none. Series of a deleted topic end with it.
- `txn_coordinator_fenced_total`: an abort that fences a producer and the late calls of that producer are different
  reasons. A newer instance that finds nothing open is not counted here; it is a `bump` of
  `txn_coordinator_init_total`, and a `taken_over` line in the log.
- An error in an answer is no failed call: its request counts as `OK`, and its error in `txn_rpc_errors_total`.
"""

_LOG_LINES: Final = (
    ("fenced", "info", "A newer instance initialised the id; the open transaction of the other one is aborted."),
    ("taken_over", "info", "A newer instance initialised the id, and nothing was aborted."),
    ("transaction_timed_out", "info", "The transaction was open for longer than its timeout and is aborted."),
    ("transaction_aborted_with_topic", "info", "A topic with records of the transaction was deleted."),
    ("transaction_aborted_by_admin", "info", "An administrator aborted the open transaction."),
    ("fenced_by_admin", "info", "An administrator fenced whoever had the id; nothing was open."),
    ("hanging_transaction", "error", "An audit found a transaction in a partition that nobody will end."),
    ("hanging_transaction_aborted", "warning", "An administrator ended it."),
    (
        "coordinator_fenced",
        "error",
        "A partition knows a later coordinator of a `shard`: no markers are sent any more.",
    ),
    ("marker_from_outside", "info", "A marker that no coordinator of this server sent was written (WriteTxnMarkers)."),
    ("slow_commit", "warning", f"From the outcome until COMPLETE was durable it took {SLOW_COMMIT_MS} ms or longer."),
    ("topic_created", "info", "With `topic`, `topic_id`, `partitions`."),
    ("topic_deleted", "info", "The same."),
    ("stepped", "debug", "Every change of state."),
    ("expired", "debug", "An id that nobody used was forgotten."),
    ("loaded", "info", "All shards are loaded, but for `failed_shards`: the server takes work."),
    ("load_failed", "error", "What all shards share cannot be read; nothing was served."),
    ("shard_load_failed", "error", "A `shard` of a `coordinator` cannot be read and does not serve; the others do."),
    ("shard_loaded", "info", "A shard was loaded after the start, with `records` and `elapsed_ms`."),
    ("shard_unloaded", "info", "A shard is not served any more."),
    ("shard_control", "info", "An administrator asked for a load or unload (`action`)."),
    ("fail_stop", "error", "The store failed: the process ends, and the next start recovers."),
    ("defect", "error", "A bug of ours failed one operation, with its traceback."),
    ("scrape_failed", "warning", "Somebody asked for metrics and got status 503."),
)

_LOG_HEAD: Final = """\
## Log lines

Lines go to stderr, as JSON where nobody reads along and in words in a terminal (`log_format`). Lines about transactions
carry `transactional_id`, `producer_id`, `old_epoch`, `producer_epoch`, `old_state`, `new_state`, `cause`, and the
`client_id` and `host` of whoever caused them (empty: the server itself). They are written once the event is durable.

| event | level | meaning |
| --- | --- | --- |
"""


def metrics_page() -> str:
    """The text of docs/metrics.md."""
    sections = "\n".join(_section(title, prefixes) for title, prefixes in _SECTIONS.items())
    events = "".join(f"| `{event}` | {level} | {meaning} |\n" for event, level, meaning in _LOG_LINES)
    return f"{_HEAD}\n## All metrics\n\n{sections}\n{_REMARKS}\n{_LOG_HEAD}{events}"


def _section(title: str, prefixes: tuple[str, ...]) -> str:
    rows = "".join(_row(family) for family in FAMILIES if family.name.startswith(prefixes))
    return f"### {title}\n\n| name | type | labels | meaning |\n| --- | --- | --- | --- |\n{rows}"


def _row(family: Family) -> str:
    labels = ", ".join(f"`{label}`" for label in family.labels)
    return f"| `{family.name}` | {family.kind} | {labels} | {family.meaning} |\n"
