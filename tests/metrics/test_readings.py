"""Readings of a server at every stage of its life, and of callers that come and go."""

from __future__ import annotations

from pathlib import Path

from coordinator_api.v1 import log_pb2, log_pb2_grpc
from coordinator_runtime.clock import SystemClock
from coordinator_runtime.engine import OpenStore
from coordinator_runtime.running_version import running_version
from coordinator_server.build import build
from coordinator_server.metrics.instruments import Readings
from coordinator_server.settings.config import Config
from tests.harness.in_process import in_process_server
from tests.harness.memory_store import MemoryStore
from tests.harness.patience import DEADLINE_SECONDS, until

STATE = "txn_runtime_shard_state"


def states(readings: Readings) -> set[str]:
    return {state for (_coordinator, state), value in readings[STATE].items() if value}


async def test_a_server_that_loads_says_so_and_tells_nothing_that_it_does_not_know() -> None:
    config = Config.model_validate({"data_dir": Path("in-memory")})
    server = build(config, OpenStore(MemoryStore(), lambda _version: None), SystemClock(), lambda _failure: None)
    readings = server.readings()
    assert states(readings) == {"loading"}
    assert "txn_coordinator_transactional_ids" not in readings
    assert "txn_partitions_omitted" not in readings
    assert readings["txn_config_transaction_max_timeout_seconds"] == {(): 900.0}
    ((version, *_others),) = readings["txn_build_info"]
    assert version == running_version()


async def test_a_server_that_works_and_one_that_failed() -> None:
    async with in_process_server() as server:
        assert states(server.parts.readings()) == {"active"}
        server.parts.core.runtime.fail(OSError("the disk"))
        assert states(server.parts.readings()) == {"failed"}


async def test_a_reader_that_leaves_is_not_waited_for() -> None:
    async with in_process_server(long_polls_max=1) as server:
        log = log_pb2_grpc.LogServiceStub(server.channel)
        topic = log_pb2.NewTopic(name="t", partition_count=1)
        await log.CreateTopics(log_pb2.CreateTopicsRequest(topics=[topic]), timeout=DEADLINE_SECONDS)
        request = log_pb2.FetchRequest(max_wait_ms=600_000, partitions=[log_pb2.FetchPartition(topic="t")])

        def in_flight() -> object:
            return server.parts.readings()["txn_rpc_in_flight"]["Fetch",]

        for number in range(1, 4):
            call = log.Fetch(request, timeout=DEADLINE_SECONDS)
            await until(lambda: in_flight() == 1)
            call.cancel()
            await until(lambda: in_flight() == 0)
            requests = server.parts.readings()["txn_rpc_requests_total"]
            assert requests["LogService", "Fetch", "CANCELLED"] == number
            assert requests["LogService", "Fetch", "OK"] == 0
