"""The metrics of a real process: from its start to its end, over a real store."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import grpc
import pytest
from prometheus_client.parser import text_string_to_metric_families

from coordinator_api.v1 import transaction_pb2, transaction_pb2_grpc
from coordinator_server.exits import ExitStatus
from tests.harness.patience import DEADLINE_SECONDS
from tests.harness.server_process import ServerProcess

pytestmark = pytest.mark.slow

METRICS = ("--set", "metrics_listen=127.0.0.1:0")


def events(server: ServerProcess) -> list[dict[str, Any]]:
    return [json.loads(line) for line in server.output.splitlines() if line.startswith("{")]


def metrics_address(server: ServerProcess) -> str:
    """Return the metrics address of the newest start."""
    listens = [event["listen"] for event in events(server) if event["event"] == "serving_metrics"]
    return str(listens[-1])


def scrape(address: str) -> dict[str, dict[str, float]]:
    """Values by name and by the labels as text."""
    with urlopen(f"http://{address}/metrics", timeout=DEADLINE_SECONDS) as response:
        text = response.read().decode()
    found: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
            found.setdefault(sample.name, {})[labels] = sample.value
    return found


def test_a_process_publishes_what_it_does_and_what_its_store_holds(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data", *METRICS) as server:
        with grpc.insecure_channel(server.address) as channel:
            stub = transaction_pb2_grpc.TransactionServiceStub(channel)
            request = transaction_pb2.InitProducerIdRequest(transactional_id="a", transaction_timeout_ms=60_000)
            assert stub.InitProducerId(request, timeout=DEADLINE_SECONDS).error_code == 0
        address = metrics_address(server)
        found = scrape(address)
        labels = "code=OK,method=InitProducerId,service=TransactionService"
        assert found["txn_rpc_requests_total"][labels] == 1
        assert found["txn_coordinator_transactions"]["state=Empty"] == 1
        assert found["txn_runtime_shard_state"]["coordinator=log,state=active"] == 64
        assert found["txn_store_sync_seconds_count"][""] >= 1
        for name in ("txn_store_wal_bytes", "txn_store_memtable_bytes", "txn_store_write_bytes_total"):
            assert found[name][""] > 0, name
        assert found["txn_store_write_stalls_total"][""] == 0
        assert server.terminate() == ExitStatus.OK
        with pytest.raises(URLError):
            scrape(address)
        server.start()
        found = scrape(metrics_address(server))
        assert found["txn_coordinator_transactional_ids"][""] == 1
        assert found["txn_rpc_requests_total"][labels] == 0
        assert set(found["txn_runtime_load_seconds"]) == {
            "coordinator=log",
            "coordinator=transactions",
            "coordinator=groups",
            "coordinator=share_partitions",
        }
    (loaded, again) = (event for event in events(server) if event["event"] == "loaded")
    assert (loaded["old_state"], loaded["new_state"], loaded["transactional_ids"]) == ("loading", "active", 0)
    assert again["transactional_ids"] == 1


def test_a_port_that_is_taken_is_said_in_one_line(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data", *METRICS) as server:
        address = metrics_address(server)
        second = ServerProcess(tmp_path / "other", "--set", f"metrics_listen={address}")
        second.launch()
        assert second.wait() == ExitStatus.ADDRESS_REFUSED
        assert re.findall(r"cannot listen for metrics on .*", second.output) == [
            f"cannot listen for metrics on {address}: Address already in use; choose another"
        ]
        assert "Traceback" not in second.output
        assert scrape(address)


def test_without_the_setting_there_is_no_listener(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server:
        assert not [event for event in events(server) if event["event"] == "serving_metrics"]
