"""Every metric that is promised is documented, and a run that meets everything produces it."""

from __future__ import annotations

import asyncio
import subprocess

from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.parser import text_string_to_metric_families

from coordinator_runtime.store_statistics import Durations, ObjectStoreNumbers, StoreStatistics
from coordinator_server.connection_numbers import CertificateNumbers, ConnectionNumbers
from coordinator_server.metrics.collector import ReadingsCollector, registry_of
from coordinator_server.metrics.families import FAMILIES, Kind
from coordinator_server.metrics.instruments import by_label, single
from partition_log.records import RowsCompacted
from scripts.metrics_page import metrics_page
from tests.harness.in_process import in_process_server
from tests.harness.tools import require_tool
from tests.metrics.busy_groups import LATE, BusyGroups
from tests.metrics.busy_server import EPOCH_MAX, BusyServer, Seen

BY_NAME = {family.name: family for family in FAMILIES}

STATISTICS = StoreStatistics(
    wal_bytes=1,
    segment_bytes=6,
    sst_bytes=2,
    memtable_bytes=3,
    pending_compaction_bytes=4,
    write_stalls=5,
    objects=ObjectStoreNumbers(
        {("put", "ok"): 1}, {"put": Durations((0.1,), (1, 0), 0.05)}, {("disk", "hit"): 1}, {"log": 9}
    ),
)
"""Figures that a store in memory does not have; those of a real one are in test_process."""

OF_STORE = {
    "txn_store_size_bytes",
    "txn_store_wal_bytes",
    "txn_store_segment_bytes",
    "txn_store_memtable_bytes",
    "txn_store_block_cache_bytes",
    "txn_store_table_readers_bytes",
    "txn_store_pending_compaction_bytes",
    "txn_store_write_stalls_total",
    "txn_store_reclaims_total",
    "txn_store_damaged_files",
    # Those of a bucket are in tests/slate/test_numbers.py.
    "txn_object_store_requests_total",
    "txn_object_store_request_seconds",
    "txn_object_store_cache_reads_total",
    "txn_object_store_cache_bytes",
    "txn_object_store_written_bytes_total",
    "txn_object_store_log_flushes_total",
}
CONNECTIONS = ConnectionNumbers(
    connections_max=9,
    open_connections=2,
    abuses={"resets": 1},
    unauthenticated={"unknown_token": 1},
    certificates={"h:1": CertificateNumbers(2_000, is_refused=False)},
)
"""Figures that a transport would give; those of a real one are in tests/server."""

OF_TRANSPORT = {
    "txn_rpc_connections",
    "txn_rpc_connections_max",
    "txn_rpc_harm_total",
    "txn_rpc_unauthenticated_total",
    "txn_tls_certificate_expiry_timestamp_seconds",
    "txn_tls_files_refused",
    "txn_tls_handshakes_total",
    "txn_insecure_listeners",
}

OF_BACKUPS = {
    "txn_config_backup_interval_seconds",
    "txn_backup_age_seconds",
    "txn_backup_size_bytes",
    "txn_backup_elapsed_seconds",
    "txn_backup_copied_bytes",
    "txn_backups_total",
}
"""Figures of backups, which a store in memory does not have; those of a real one are in tests/server/test_backups.py
and test_process."""

OF_ACCESS = {"txn_access_refusals_total", "txn_access_acls", "txn_access_enforced"}
"""Metrics of servers that go by ACLs only: tests/server/test_refusals.py has one."""

OF_QUOTAS = {"txn_quota_refusals_total", "txn_quota_throttles_total"}
"""Metrics of servers that bound their callers only: tests/quotas/test_levels_on_the_wire.py has one."""

OF_SHARES = {family.name for family in FAMILIES if family.name.startswith("txn_share_")}
"""Metrics of members of share groups, which no request can move yet: test_shares has them."""

OF_COMPACTION = {family.name for family in FAMILIES if family.name.startswith("txn_compaction_")}
"""Metrics of passes of compaction, for which a log must be long: test_compaction_numbers has them."""

ALWAYS_ZERO = {"txn_partition_log_start_offset"}
"""Nothing removes the beginning of a log yet."""

SHARDS = ("counters", "catalog", "log", "transactions", "groups", "share_partitions")
"""Coordinators whose shards are counted."""

FORBIDDEN_LABELS = {"transactional_id", "producer_id", "member", "member_id", "group", "client_id", "host"}

OF_CHOSEN_GROUPS = {"txn_group_lag_records", "txn_group_lag_seconds"}
"""Families with groups as labels: those that an operator names one by one, and of a limited number."""


async def test_a_run_that_meets_everything_produces_every_metric() -> None:
    seen = Seen()
    await _run_everything(seen)
    elsewhere = OF_STORE | OF_TRANSPORT | OF_BACKUPS | OF_ACCESS | OF_QUOTAS | OF_SHARES | OF_COMPACTION | ALWAYS_ZERO
    produced = {name for name in BY_NAME if seen.labels(name)} | elsewhere
    assert produced == set(BY_NAME)
    assert seen.largest.keys() <= set(BY_NAME), "everything that is taken is published"
    for name, values in seen.largest.items():
        assert {len(labels) for labels in values} <= {len(BY_NAME[name].labels)}, name
    assert seen.labels("txn_coordinator_completed_total") == {
        ("commit", "client"),
        ("commit", "decision"),
        *(("abort", cause) for cause in ("client", "fence", "timeout", "topic_deleted", "admin", "given_up")),
    }
    reasons = {"newer_init", "timeout", "topic_deleted", "admin", "epoch", "zombie_produce"}
    assert seen.labels("txn_coordinator_fenced_total") == {(reason,) for reason in reasons}
    assert seen.labels("txn_coordinator_init_total") >= {("new",), ("bump",), ("rotate",)}
    assert seen.labels("txn_coordinator_verifications_total") == {("all",), ("missing",), ("refused",)}
    assert seen.labels("txn_partition_payload_checks_total") == {("taken",), ("refused",), ("lost",), ("no_room",)}
    assert seen.labels("txn_sink_joins_total") == {("member",), ("committed",)}
    assert seen.labels("txn_sink_batches_total") == {("committed",), ("repeated",), ("given_up",)}
    assert seen.labels("txn_coordinator_invalid_transitions_total") == {("PrepareAbort", "Ongoing")}
    assert seen.labels("txn_coordinator_marker_retries_total") == {("INVALID_TXN_STATE",)}
    assert seen.labels("txn_coordinator_marker_alarms_total") == {("INVALID_TXN_STATE",)}
    assert seen.labels("txn_runtime_shard_state") == {
        ("transactions", "failed"),
        *((coordinator, "active") for coordinator in SHARDS),
    }
    assert {kind for (kind,) in seen.labels("txn_runtime_timers")} >= {
        "transaction_timeout",
        "transaction_expiration",
        "producer_expiration",
        "parked",
        "fetch",
        "markers",
    }


async def _run_everything(seen: Seen) -> None:
    async with in_process_server(
        two_phase="split",
        transaction_two_phase_commit_enable=True,
        producer_epoch_max=EPOCH_MAX,
        calls_in_work_max=8,
        metrics_partitions_max=2,
    ) as server:
        busy = BusyServer(server, seen)
        await busy.outcomes()
        await busy.topic("with-partitions-beyond-the-limit")
        await busy.outside_decision()
        await busy.stuck_marker()
        await busy.crowd()
        await busy.payloads()
        await busy.full_disk()
        await busy.snapshots()
        await busy.sinks()
        await busy.bugs()
        await busy.damage()
        await busy.until(lambda readings: bool(seen.labels("txn_runtime_event_loop_lag_seconds")))
    async with in_process_server() as server:
        await BusyServer(server, seen).readers_that_stand_still()
    async with in_process_server(
        group_initial_rebalance_delay_ms=1, metrics_lag_groups=LATE, metrics_lag_topics_max=1
    ) as server:
        groups = BusyGroups(BusyServer(server, seen))
        await groups.rebalances()
        await groups.offsets()
        await groups.lags()
        await groups.administration()
    async with in_process_server(offsets_retention_ms=1, offsets_retention_check_interval_ms=1) as server:
        await BusyGroups(BusyServer(server, seen)).forgotten()
    async with in_process_server(transactional_id_expiration_ms=1) as server:
        busy = BusyServer(server, seen)
        await busy.init("forgotten")
        await busy.until(lambda readings: readings["txn_coordinator_expired_ids_total"][()] == 1)
    async with in_process_server(default_retention_ms=1, retention_check_interval_ms=1) as server:
        busy = BusyServer(server, seen)
        await busy.topic("a")
        identity = await busy.opened("a", "a")
        await busy.until(lambda readings: readings["txn_partition_retention_held_back"][()] == 1)
        assert await busy.end("a", identity, committed=True) == 0
        await busy.until(lambda readings: readings["txn_partition_removed_bytes_total"].get(("a",), 0) > 0)
    async with in_process_server(producer_id_expiration_ms=1) as server:
        busy = BusyServer(server, seen)
        await busy.topic("a")
        assert await busy.end("a", await busy.opened("a", "a"), committed=True) == 0
        await busy.until(lambda readings: readings["txn_partition_expired_producers_total"][()] == 1)


def test_what_is_published_can_be_read_by_prometheus() -> None:
    text, openmetrics = asyncio.run(_published())
    families = {family.name: family for family in text_string_to_metric_families(text)}
    for family in FAMILIES:
        found = families[family.name.removesuffix("_total")]
        assert (found.type, found.documentation) == (family.kind.value, family.meaning), family.name
        assert found.samples, f"{family.name} has no sample"
        for sample in found.samples:
            assert set(sample.labels) - {"le"} == set(family.labels), family.name
    assert openmetrics.endswith("# EOF\n")
    assert "_created" not in text
    promtool = require_tool("promtool")
    checked = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")


async def _published() -> tuple[str, str]:
    """Both formats, from a server to which everything happened."""
    async with in_process_server(
        two_phase="split",
        producer_epoch_max=EPOCH_MAX,
        calls_in_work_max=8,
        metrics_lag_groups=LATE,
        metrics_lag_topics_max=1,
        retention_check_interval_ms=1,
    ) as server:
        busy = BusyServer(server, Seen())
        await busy.outcomes()
        await busy.until(lambda readings: bool(readings["txn_partition_removed_bytes_total"]))
        found = server.parts.core.catalog.durable_topics()[0]
        server.parts.readings.numbers.log.compacted(RowsCompacted(found.partition_ordinals[0], 1, 1))
        await BusyGroups(busy).lags()
        await busy.stuck_marker()
        await busy.full_disk()
        await busy.snapshots()
        await busy.bugs()
        await busy.damage()
        server.parts.readings.of_backups = lambda: (
            dict.fromkeys(OF_BACKUPS - {"txn_backups_total"}, single(1)) | {"txn_backups_total": by_label({"made": 1})}
        )
        registry = registry_of(
            ReadingsCollector(
                asyncio.get_running_loop(), server.parts.readings, lambda: STATISTICS, lambda: CONNECTIONS
            )
        )
        text = await asyncio.to_thread(generate_latest, registry)
        openmetrics = await asyncio.to_thread(generate_openmetrics, registry)
    return text.decode(), openmetrics.decode()


def test_every_metric_is_documented() -> None:
    page = metrics_page()
    for family in FAMILIES:
        labels = ", ".join(f"`{label}`" for label in family.labels)
        assert f"| `{family.name}` | {family.kind} | {labels} | {family.meaning} |" in page


def test_names_and_labels_follow_the_conventions() -> None:
    assert len(BY_NAME) == len(FAMILIES), "a name is used once"
    for family in FAMILIES:
        assert family.name.startswith("txn_")
        assert family.name.endswith("_total") is (family.kind is Kind.COUNTER), family.name
        if family.name not in OF_CHOSEN_GROUPS:
            assert not FORBIDDEN_LABELS & set(family.labels), family.name
        assert family.meaning.endswith("."), family.name
        for part in ("_ms", "_us", "_kb", "_mb"):
            assert part not in family.name.replace("_total", "").split("_by_")[0][-3:], family.name
