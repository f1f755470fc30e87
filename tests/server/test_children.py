"""The processes that a server starts end with it, however it ends."""

from __future__ import annotations

from pathlib import Path

import grpc
import pytest

from coordinator_api.v1 import log_pb2, log_pb2_grpc
from coordinator_protocol.batch import Compression
from partition_log.batch_checks import UNPACKED_HERE_BYTES_MAX
from tests.harness.patience import DEADLINE_SECONDS
from tests.harness.server_process import ServerProcess
from tests.server.test_payloads import a_batch, produce


@pytest.mark.slow
def test_a_server_that_is_killed_leaves_no_process_behind(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server:
        with grpc.insecure_channel(server.address) as channel:
            log = log_pb2_grpc.LogServiceStub(channel)
            topics = [log_pb2.NewTopic(name="t", partition_count=1)]
            log.CreateTopics(log_pb2.CreateTopicsRequest(topics=topics), timeout=DEADLINE_SECONDS)
            # Large once it is unpacked, so that a worker process looks at it.
            large = a_batch(UNPACKED_HERE_BYTES_MAX // 1_000 + 1, compression=int(Compression.ZSTD))
            assert not log.Produce(produce(large), timeout=DEADLINE_SECONDS).results[0].error_code
        server.kill_and_outlive()
        server.start()
