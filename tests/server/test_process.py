"""The server as a real process: it starts, refuses to start with a reason, drains, and fails without a lie."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from coordinator_api.v1 import common_pb2, transaction_pb2, transaction_pb2_grpc
from coordinator_protocol.errors import ErrorClass, ErrorCode
from coordinator_runtime import own_rows
from coordinator_runtime.rocks import open_read_only, open_store
from coordinator_runtime.rocks.durable_mark import read_mark
from coordinator_runtime.rocks.store_directory import StoreDirectory
from coordinator_server.exits import ExitStatus
from tests.harness.failing_server import ERROR_VARIABLE, FENCED, POISON, STEP_VARIABLE
from tests.harness.patience import DEADLINE_SECONDS, TRANSACTION_TIMEOUT_MS, looks
from tests.harness.server_process import ROOT, ServerFailed, ServerProcess
from tests.harness.stopping_server import POINT_VARIABLE, STOPPED, WATCHED_ID
from tests.server.producer_by_wire import ProducerByWire, Reader

pytestmark = pytest.mark.slow

TransactionStub = transaction_pb2_grpc.TransactionServiceStub
SERVICE = "coordinator_api.v1.TransactionService"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path / "data") as running:
        yield running


def init(stub: TransactionStub, transactional_id: str) -> transaction_pb2.InitProducerIdResponse:
    request = transaction_pb2.InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS
    )
    return stub.InitProducerId(request, timeout=DEADLINE_SECONDS)


def identity(response: transaction_pb2.InitProducerIdResponse) -> tuple[int, int]:
    assert response.error_code == 0, response.error_message
    return response.producer_id, response.producer_epoch


@pytest.mark.usefixtures("transport")
def test_it_serves_and_reports_its_health(server: ServerProcess) -> None:
    with grpc.insecure_channel(server.address) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        for service in ("", SERVICE):
            status = health.Check(health_pb2.HealthCheckRequest(service=service), timeout=DEADLINE_SECONDS).status
            assert status == health_pb2.HealthCheckResponse.SERVING
        assert identity(init(TransactionStub(channel), "a")) == (0, 0)


@pytest.mark.kill
@pytest.mark.usefixtures("combination")
def test_what_was_acknowledged_survives_a_kill(server: ServerProcess) -> None:
    with grpc.insecure_channel(server.address) as channel:
        first = identity(init(TransactionStub(channel), "a"))
    server.kill()
    server.start()
    with grpc.insecure_channel(server.address) as channel:
        assert identity(init(TransactionStub(channel), "a")) == (first[0], first[1] + 1)


@pytest.mark.usefixtures("transport")
def test_sigterm_drains_and_leaves_a_directory_that_opens_cleanly(server: ServerProcess) -> None:
    with grpc.insecure_channel(server.address) as channel:
        stub = TransactionStub(channel)
        calls = [
            stub.InitProducerId.future(
                transaction_pb2.InitProducerIdRequest(
                    transactional_id=f"id-{number}", transaction_timeout_ms=TRANSACTION_TIMEOUT_MS
                ),
                timeout=DEADLINE_SECONDS,
            )
            for number in range(200)
        ]
        identity(calls[0].result())
        assert server.terminate() == ExitStatus.OK
        answered = [call.result() for call in calls if call.exception() is None]
    assert '"event": "stopped"' in server.output
    acknowledged = {response.producer_id for response in answered if response.error_code == 0}
    refused = {response.error_code for response in answered if response.error_code != 0}
    assert refused <= {ErrorCode.COORDINATOR_NOT_AVAILABLE}
    server.start()
    with grpc.insecure_channel(server.address) as channel:
        listed = TransactionStub(channel).ListTransactions(
            transaction_pb2.ListTransactionsRequest(), timeout=DEADLINE_SECONDS
        )
    assert acknowledged == {transaction.producer_id for transaction in listed.transactions}, "unanswered is undone"


def refusal_of(server: ServerProcess) -> tuple[int, str]:
    """Return the exit status and the output of a server that does not start."""
    server.launch()
    status = server.wait()
    assert "Traceback" not in server.output
    return status, server.output


def test_a_second_process_on_the_directory_is_refused_with_the_reason(server: ServerProcess) -> None:
    status, said = refusal_of(ServerProcess(server.data_dir))
    assert status == ExitStatus.STORE_REFUSED
    assert f"another process (pid {server.process_id}) has the directory" in said


@pytest.mark.long
def test_another_shard_count_is_refused_with_the_reason(server: ServerProcess) -> None:
    server.kill()
    status, said = refusal_of(ServerProcess(server.data_dir, "--set", "shard_count=32"))
    assert status == ExitStatus.STORE_REFUSED
    assert "made with 64 shards and cannot be opened with 32" in said
    server.start()


@pytest.mark.long
def test_a_newer_format_is_refused_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_rows, "FORMAT_VERSION", own_rows.FORMAT_VERSION + 1)
    open_store(tmp_path / "data", shard_count=64).close()
    monkeypatch.undo()
    status, said = refusal_of(ServerProcess(tmp_path / "data"))
    assert status == ExitStatus.STORE_REFUSED
    assert f"has format {own_rows.FORMAT_VERSION + 1}" in said


def test_a_directory_that_lost_durable_data_is_refused_until_the_loss_is_accepted(server: ServerProcess) -> None:
    mark_path = StoreDirectory(server.data_dir).durable_mark_path
    with grpc.insecure_channel(server.address) as channel:
        marked = read_mark(mark_path)
        identity(init(TransactionStub(channel), "a"))
        for _ in looks("the durable mark"):
            if read_mark(mark_path) != marked:
                break
    server.kill()
    for log in (server.data_dir / "store").glob("*.log"):
        os.truncate(log, log.stat().st_size // 2)
    status, said = refusal_of(ServerProcess(server.data_dir))
    assert status == ExitStatus.STORE_REFUSED
    # One, or as many as had come until then.
    assert re.search("groups? of acknowledged writes are missing", said)
    assert "--accept-data-loss" in said
    with (
        ServerProcess(server.data_dir, "--accept-data-loss") as accepted,
        grpc.insecure_channel(accepted.address) as channel,
    ):
        found = identity(init(TransactionStub(channel), "b"))
        accepted.terminate()
    store = open_read_only(server.data_dir)
    assert found[0] >= store.incarnation.least_producer_id > 0, "no lost incarnation can have given this one"
    store.close()
    server.start()


@pytest.mark.parametrize(
    "file", ["CURRENT", *(pytest.param(name, marks=pytest.mark.long) for name in ("MANIFEST-*", "*.log"))]
)
def test_a_directory_that_lacks_a_file_is_refused_and_serves_once_it_is_back(tmp_path: Path, file: str) -> None:
    data_dir, keep = tmp_path / "data", tmp_path / "keep"
    # Families are flushed at different times, so that there are several logs.
    small = ("--set", "write_buffer_bytes=65536")
    with ServerProcess(data_dir, *small) as server, grpc.insecure_channel(server.address) as channel:
        stub = TransactionStub(channel)
        for _ in range(40):
            known = [identity(init(stub, f"{number}-{'x' * 900}")) for number in range(10)]
        server.kill()
    found = sorted((data_dir / "store").glob(file))
    # Of the logs the last one that was closed: RocksDB itself does not miss it.
    path = found[-2] if file == "*.log" else found[0]
    shutil.copyfile(path, keep)
    path.unlink()
    before = {file.name for file in path.parent.iterdir()}
    status, said = refusal_of(ServerProcess(data_dir, *small))
    assert status == ExitStatus.STORE_REFUSED
    assert f"{path} is missing" in said
    assert "Put the file back from a copy" in said
    assert {file.name for file in path.parent.iterdir()} == before
    shutil.copyfile(keep, path)
    with ServerProcess(data_dir, *small) as server, grpc.insecure_channel(server.address) as channel:
        again = identity(init(TransactionStub(channel), f"0-{'x' * 900}"))
    assert again == (known[0][0], known[0][1] + 1)


def test_a_port_in_use_is_refused_with_the_reason(server: ServerProcess, tmp_path: Path) -> None:
    second = ServerProcess(tmp_path / "other")
    second.port = server.port
    status, said = refusal_of(second)
    assert status == ExitStatus.ADDRESS_REFUSED
    assert f"cannot listen on {server.address}: Address already in use" in said


def test_a_directory_that_cannot_be_made_is_refused_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("not a directory")
    status, said = refusal_of(ServerProcess(tmp_path / "data"))
    assert status == ExitStatus.STORE_REFUSED
    assert f"the directory {tmp_path / 'data'} cannot be made or used" in said


@pytest.mark.long
def test_it_does_not_run_without_assertions(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-O", "-m", "txnctl", "dev", "--listen", "127.0.0.1:0"],
        env=os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'proto'}", "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    assert ran.returncode == ExitStatus.USAGE
    assert "does not run with python -O" in ran.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_throw_away_server_says_where_it_listens_and_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    server = DevServer(temporary)
    server.start()
    (data_dir,) = temporary.iterdir()
    assert f"gRPC on {server.address}, data in {data_dir} until Ctrl-C" in server.output
    server.send_signal(number)
    assert server.wait() == ExitStatus.OK
    assert list(temporary.iterdir()) == []
    server.kill()


@pytest.mark.long
def test_under_nohup_a_closed_terminal_ends_nothing(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data", prefix=["nohup"]) as server:
        server.send_signal(signal.SIGHUP)
        with grpc.insecure_channel(server.address) as channel:
            init(TransactionStub(channel), "a")
        assert server.terminate() == ExitStatus.OK
        assert '"signal": "SIGTERM"' in server.output


def test_who_asks_twice_does_not_wait_for_a_disk_that_stands_still(tmp_path: Path) -> None:
    stopping = {"TXN_GROUP_BYTES_MAX": "1", POINT_VARIABLE: "before prepare"}
    with (
        ServerProcess(tmp_path / "data", module="tests.harness.stopping_server", environment=stopping) as server,
        grpc.insecure_channel(server.address) as channel,
    ):
        Reader(channel).create_topic("t", 1)
        producer = ProducerByWire(channel, WATCHED_ID, 2)
        producer.init()
        producer.write("t", 0, "a")
        # Kept: gRPC cancels a call once its future is collected, possibly before the server has seen it.
        ending = producer.sends_end(committed=True)
        server.read_until(re.compile(f"{STOPPED}before prepare\n"))
        assert not ending.done()
        # Two different ones, because the system delivers only one of two that are alike; either may come first.
        server.send_signal(signal.SIGTERM)
        server.send_signal(signal.SIGINT)
        assert server.wait() in (128 + signal.SIGTERM, 128 + signal.SIGINT)


class DevServer(ServerProcess):
    """`txnctl dev`, with its directory below one of the test."""

    def __init__(self, temporary: Path) -> None:
        super().__init__(temporary.parent / "unused", environment={"TMPDIR": str(temporary)})

    @property
    def command(self) -> list[str]:
        return ["dev", "--listen", f"{self.host}:{self.port}", "--page", "off"]


@pytest.mark.usefixtures("transport")
@pytest.mark.parametrize("step", ["sync", "write"])
@pytest.mark.parametrize("error", ["EIO", pytest.param("ENOSPC", marks=pytest.mark.long)])
def test_a_failing_disk_ends_the_process_and_loses_nothing_acknowledged(tmp_path: Path, error: str, step: str) -> None:
    server = ServerProcess(
        tmp_path / "data",
        module="tests.harness.failing_server",
        environment={ERROR_VARIABLE: error, STEP_VARIABLE: step},
    )
    with server, grpc.insecure_channel(server.address) as channel:
        stub = TransactionStub(channel)
        acknowledged = {name: identity(init(stub, name)) for name in ("a", "b", "c")}
        unknown = init(stub, POISON)
        assert unknown.error_code == ErrorCode.REQUEST_TIMED_OUT
        assert unknown.error_class == ErrorClass.UNKNOWN_OUTCOME
        assert server.wait() == ExitStatus.FAILED
    assert '"event": "fail_stop"' in server.output
    assert os.strerror({"EIO": 5, "ENOSPC": 28}[error]) in server.output
    assert "start again to recover" in server.output

    with ServerProcess(tmp_path / "data") as healthy, grpc.insecure_channel(healthy.address) as channel:
        for name, (producer_id, producer_epoch) in acknowledged.items():
            assert identity(init(TransactionStub(channel), name)) == (producer_id, producer_epoch + 1)


def test_a_fenced_server_ends_with_a_status_of_its_own(tmp_path: Path) -> None:
    variables = {ERROR_VARIABLE: FENCED, STEP_VARIABLE: "sync"}
    server = ServerProcess(tmp_path / "data", module="tests.harness.failing_server", environment=variables)
    with server, grpc.insecure_channel(server.address) as channel:
        unknown = init(TransactionStub(channel), POISON)
        assert unknown.error_class == ErrorClass.UNKNOWN_OUTCOME
        assert server.wait() == ExitStatus.FENCED
    assert "another server has taken the store over" in server.output


def test_a_server_that_cannot_serve_is_reported_with_what_it_wrote(tmp_path: Path) -> None:
    with pytest.raises(ServerFailed, match=r"shard_cont \(flag\) is unknown; did you mean shard_count"):
        ServerProcess(tmp_path / "data", "--set", "shard_cont=1").start()


def test_find_coordinator_names_the_port_that_it_really_listens_on(server: ServerProcess) -> None:
    with grpc.insecure_channel(server.address) as channel:
        response = TransactionStub(channel).FindCoordinator(
            transaction_pb2.FindCoordinatorRequest(
                header=common_pb2.RequestHeader(client_id="test"),
                key_type=transaction_pb2.COORDINATOR_KEY_TYPE_TRANSACTION,
                keys=["a"],
            ),
            timeout=DEADLINE_SECONDS,
        )
    (found,) = response.coordinators
    assert (found.host, found.port) == (server.host, server.port)
