"""One line when the shards of a process are loaded, cannot be, or fail."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import grpc
import pytest

from coordinator_api.v1 import transaction_pb2, transaction_pb2_grpc
from coordinator_runtime.decision import Coordinator
from coordinator_runtime.rocks import open_store
from coordinator_runtime.store import CommitGroup, Family
from coordinator_server.exit_status import ExitStatus
from tests.harness.failing_server import ERROR_VARIABLE, POISON, STEP_VARIABLE
from tests.harness.server_process import DEADLINE_SECONDS, ServerProcess
from txn_coordinator.codec import TRANSACTION_TYPE

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
            transactional_id=transactional_id, transaction_timeout_ms=60_000
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


def test_a_load_that_cannot_be_done(tmp_path: Path) -> None:
    store = open_store(tmp_path / "data", shard_count=SHARD_COUNT)
    key = struct.pack(">BHB", Coordinator.TRANSACTIONS, 0, TRANSACTION_TYPE) + b"nobody"
    store.write([CommitGroup(store.version() + 1, [(Family.COORDINATOR_STATE, key, b"\xff\xff no transaction")])])
    store.sync()
    store.close()
    server = ServerProcess(tmp_path / "data")
    server.launch()
    assert server.wait() == ExitStatus.STORE_REFUSED
    assert shard_changes(server) == [("load_failed", "error", "loading", "failed")]
