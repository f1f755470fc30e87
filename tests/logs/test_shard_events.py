"""One line when the shards of a process are loaded, cannot be, or fail."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from coordinator_api.v1 import transaction_pb2, transaction_pb2_grpc
from coordinator_runtime.decision import Coordinator
from coordinator_runtime.rocks import open_store
from coordinator_runtime.store import CommitGroup, Family
from coordinator_server.exits import ExitStatus
from tests.harness.failing_server import ERROR_VARIABLE, POISON, STEP_VARIABLE
from tests.harness.patience import DEADLINE_SECONDS, TRANSACTION_TIMEOUT_MS
from tests.harness.server_process import ServerProcess
from txn_coordinator.codec import CSN_TYPE, TRANSACTION_TYPE
from txnctl.commands.waiting import SERVICE

pytestmark = pytest.mark.slow

SHARD_COUNT = 64


def shard_changes(server: ServerProcess) -> list[tuple[str, str, str, str]]:
    """Event, level and states of every line that tells of shards."""
    events: list[dict[str, Any]] = [json.loads(line) for line in server.output.splitlines() if line.startswith("{")]
    return [
        (event["event"], event["level"], event["old_state"], event["new_state"])
        for event in events
        if "new_state" in event
    ]


def init(address: str, transactional_id: str) -> None:
    with grpc.insecure_channel(address) as channel:
        request = transaction_pb2.InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS
        )
        transaction_pb2_grpc.TransactionServiceStub(channel).InitProducerId(request, timeout=DEADLINE_SECONDS)


def test_a_load_and_a_failure(tmp_path: Path) -> None:
    environment = {ERROR_VARIABLE: "EIO", STEP_VARIABLE: "sync"}
    server = ServerProcess(tmp_path / "data", module="tests.harness.failing_server", environment=environment)
    with server:
        init(server.address, POISON)
        assert server.wait() == ExitStatus.FAILED
    assert shard_changes(server) == [
        ("loaded", "info", "loading", "active"),
        ("fail_stop", "error", "active", "failed"),
    ]


def damage(tmp_path: Path, coordinator: Coordinator, record_type: int) -> None:
    """Put a row that cannot be read into the first shard of a coordinator."""
    store = open_store(tmp_path / "data", shard_count=SHARD_COUNT)
    key = struct.pack(">BHB", coordinator, 0, record_type) + b"nobody"
    store.write([CommitGroup(store.version() + 1, [(Family.COORDINATOR_STATE, key, b"\xff\xff no record")])])
    store.sync()
    store.close()


def test_a_load_of_one_shard_that_cannot_be_done(tmp_path: Path) -> None:
    damage(tmp_path, Coordinator.TRANSACTIONS, TRANSACTION_TYPE)
    with ServerProcess(tmp_path / "data") as server:
        init(server.address, "in-a-shard-that-is-well")
        assert [health_of(server, name) for name in ("shards", "shards/transactions/0", SERVICE)] == [
            "NOT_SERVING",
            "NOT_SERVING",
            "SERVING",
        ]
        assert server.terminate() == ExitStatus.OK
    lines = [json.loads(line) for line in server.output.splitlines() if line.startswith("{")]
    [failed] = [line for line in lines if line["event"] == "shard_load_failed"]
    assert (failed["coordinator"], failed["shard"]) == ("transactions", 0)
    assert "DecodeError" in failed["reason"]
    assert shard_changes(server) == [
        ("shard_load_failed", "error", "loading", "failed"),
        ("loaded", "info", "loading", "active"),
    ]


def test_all_shards_of_a_whole_store_are_well(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server:
        assert health_of(server, "shards") == "SERVING"


def health_of(server: ServerProcess, service: str) -> str:
    with grpc.insecure_channel(server.address) as channel:
        request = health_pb2.HealthCheckRequest(service=service)
        answer = health_pb2_grpc.HealthStub(channel).Check(request, timeout=DEADLINE_SECONDS)
    return str(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status))


def test_a_load_of_what_all_shards_need_that_cannot_be_done(tmp_path: Path) -> None:
    damage(tmp_path, Coordinator.COUNTERS, CSN_TYPE)
    server = ServerProcess(tmp_path / "data")
    server.launch()
    assert server.wait() == ExitStatus.STORE_REFUSED
    assert shard_changes(server) == [("load_failed", "error", "loading", "failed")]
