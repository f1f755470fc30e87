"""Real servers on a store in a bucket: killed, moved to another machine, fenced, refused."""

from __future__ import annotations

import sys
from pathlib import Path

import grpc
import pytest

from coordinator_api.v1 import transaction_pb2, transaction_pb2_grpc
from coordinator_server.exits import ExitStatus
from tests.harness import forked
from tests.harness.object_store import ObjectServer
from tests.harness.server_process import DEADLINE_SECONDS, ServerProcess

pytestmark = pytest.mark.slow

TransactionStub = transaction_pb2_grpc.TransactionServiceStub


def initialised(channel: grpc.Channel, transactional_id: str) -> tuple[int, int]:
    """Producer id and epoch of a new instance."""
    request = transaction_pb2.InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
    answer = TransactionStub(channel).InitProducerId(request, timeout=DEADLINE_SECONDS, wait_for_ready=True)
    return answer.producer_id, answer.producer_epoch


def served(path: Path, server: ObjectServer, address: str) -> ServerProcess:
    """A server whose data directory is only a cache."""
    return ServerProcess(path, "--store", address, environment=server.environment())


def test_a_second_machine_has_everything_and_the_first_one_ends(
    tmp_path: Path, server: ObjectServer, address: str
) -> None:
    server.wall_seconds = None
    with served(tmp_path / "a", server, address) as first, grpc.insecure_channel(first.address) as channel:
        acknowledged = {name: initialised(channel, name) for name in ("a", "b", "c")}
        with served(tmp_path / "b", server, address) as second, grpc.insecure_channel(second.address) as other:
            for name, (producer_id, producer_epoch) in acknowledged.items():
                assert initialised(other, name) == (producer_id, producer_epoch + 1)
            initialised(channel, "late")
            assert first.wait() == ExitStatus.FENCED
            second.kill()
            second.start()
            assert initialised(other, "a")[1] == acknowledged["a"][1] + 2
            second.terminate()
            assert second.wait() == ExitStatus.OK
    assert "another server has taken the store over" in first.output


@pytest.mark.long
def test_records_are_read_back_while_the_bucket_answers_late(
    tmp_path: Path, server: ObjectServer, address: str
) -> None:
    server.wall_seconds = None
    with served(tmp_path / "a", server, address) as serving:
        lines = "".join(f"line {number}\n" for number in range(100))
        txnctl(serving, "topic", "create", "t")
        txnctl(serving, "produce", "t", stdin=lines)
        # A new cache: what is read now comes from the bucket.
        serving.kill()
        serving.data_dir = tmp_path / "b"
        serving.start()
        server.delay_seconds["GET"] = 0.1
        assert txnctl(serving, "consume", "t").count("line ") == 100


def txnctl(serving: ServerProcess, *words: str, stdin: str = "") -> str:
    """Output of a command that ends well."""
    command = [sys.executable, "-m", "txnctl", *words, "--server", serving.address]
    return forked.run(command, input=stdin, capture_output=True, text=True, check=True).stdout
