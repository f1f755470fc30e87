"""Two equal servers on one bucket: one holds the lease and serves, the other waits and takes over."""

from __future__ import annotations

import signal
import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest

from coordinator_client import Admin, Producer, read
from coordinator_server.exits import ExitStatus
from tests.harness.kafka_socket import kafka_address
from tests.harness.object_store import ObjectServer
from tests.harness.patience import looks
from tests.harness.server_process import READY, ServerProcess
from tests.slate.test_serving import initialised

pytestmark = pytest.mark.slow


@contextmanager
def pair(tmp_path: Path, server: ObjectServer, address: str) -> Iterator[tuple[ServerProcess, ServerProcess]]:
    """Two servers with a lease of four seconds; the first serves and the second waits."""
    server.wall_seconds = None
    first, second = (leased(tmp_path / name, number, server, address) for number, name in ((1, "a"), (2, "b")))
    with first, second_waits(second):
        yield first, second


@contextmanager
def second_waits(second: ServerProcess) -> Iterator[None]:
    second.launch()
    try:
        yield
    finally:
        second.kill()


def leased(path: Path, node_id: int, server: ObjectServer, address: str, *arguments: str) -> ServerProcess:
    settings = ("--set", f"node_id={node_id}", "--set", "lease_ttl_ms=4000", *arguments)
    return ServerProcess(path, "--store", address, "--lease", *settings, environment=server.environment())


def serving(process: ServerProcess) -> None:
    """Return once it serves."""
    process.port = int(process.read_until(READY)["port"])


def waits(process: ServerProcess) -> None:
    """Return once it waits for the lease."""
    for _ in looks("the log of the server that waits"):
        if "lease_awaited" in process.output:
            return


def epoch_at(process: ServerProcess, transactional_id: str = "a") -> int:
    with grpc.insecure_channel(process.address) as channel:
        return initialised(channel, transactional_id)[1]


@pytest.mark.long
def test_the_other_server_takes_over_after_a_kill_with_everything_acknowledged(
    tmp_path: Path, server: ObjectServer, address: str
) -> None:
    with pair(tmp_path, server, address) as (first, second):
        assert epoch_at(first) == 0
        first.kill()
        serving(second)
        assert epoch_at(second) == 1


def test_sigterm_hands_over_and_the_server_that_comes_back_waits(
    tmp_path: Path, server: ObjectServer, address: str
) -> None:
    with pair(tmp_path, server, address) as (first, second):
        assert epoch_at(first) == 0
        assert first.terminate() == ExitStatus.OK
        serving(second)
        assert epoch_at(second) == 1
        first.launch()
        assert second.terminate() == ExitStatus.OK
        serving(first)
        assert epoch_at(first) == 2


@pytest.mark.long
def test_a_server_that_stood_still_ends_itself_when_it_goes_on(
    tmp_path: Path, server: ObjectServer, address: str
) -> None:
    with pair(tmp_path, server, address) as (first, second):
        assert epoch_at(first) == 0
        first.send_signal(signal.SIGSTOP)
        serving(second)
        assert epoch_at(second) == 1
        first.send_signal(signal.SIGCONT)
        assert first.wait() == ExitStatus.LEASE_ENDED
        assert epoch_at(second) == 2
    assert "the lease of the store is over" in first.output


@pytest.mark.long
def test_an_owner_that_is_cut_off_from_the_bucket_ends_itself(
    tmp_path: Path, server: ObjectServer, address: str
) -> None:
    server.wall_seconds = None
    with leased(tmp_path / "a", 1, server, address) as alone:
        server.refusal = 403
        assert alone.wait() in (ExitStatus.LEASE_ENDED, ExitStatus.FAILED)


def test_a_server_that_waits_ends_at_once_after_sigterm(tmp_path: Path, server: ObjectServer, address: str) -> None:
    with pair(tmp_path, server, address) as (first, second):
        waits(second)
        assert second.terminate() == ExitStatus.OK
        assert epoch_at(first) == 0


def test_two_servers_with_one_number_are_refused(tmp_path: Path, server: ObjectServer, address: str) -> None:
    server.wall_seconds = None
    with (
        leased(tmp_path / "a", 1, server, address) as first,
        second_waits(twin := leased(tmp_path / "b", 1, server, address)),
    ):
        assert twin.wait() == ExitStatus.STORE_REFUSED
        assert f"the server at {first.address} has the same node_id = 1" in twin.output


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port


@pytest.mark.long
def test_a_producer_that_knows_both_servers_goes_on_after_a_kill(
    tmp_path: Path, server: ObjectServer, address: str
) -> None:
    """Nothing that was acknowledged is lost, and nothing is there twice."""
    server.wall_seconds = None
    first, second = leased(tmp_path / "a", 1, server, address), leased(tmp_path / "b", 2, server, address)
    second.port = free_port()
    with first, second_waits(second), Admin(first.address) as admin:
        admin.create_topic("t", 2)
        waits(second)
        # A server that let callers wait would keep them from the owner.
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((second.host, second.port))
        acknowledged: list[str] = []
        with Producer(f"{first.address},{second.address}", transactional_id="p") as producer:
            for number in range(40):
                if number == 20:
                    first.kill()
                with producer.begin() as transaction:
                    for part in range(2):
                        transaction.send("t", f"{number}/{part}".encode(), partition=part)
                acknowledged += [f"{number}/{part}" for part in range(2)]
        serving(second)
        found = Counter(record.value.decode() for record in read("t", f"{first.address},{second.address}"))
        assert found == Counter(acknowledged)


@pytest.mark.long
def test_a_kafka_client_sees_the_server_that_waits_as_a_broker(
    tmp_path: Path, server: ObjectServer, address: str
) -> None:
    admin = pytest.importorskip("confluent_kafka.admin", reason="the environment is older than the lock")
    server.wall_seconds = None
    listen = ("--kafka-listen", "127.0.0.1:0")
    first = leased(tmp_path / "a", 1, server, address, *listen)
    second = leased(tmp_path / "b", 2, server, address, *listen)
    with first, second_waits(second):
        known = admin.AdminClient({"bootstrap.servers": str(kafka_address(first))})
        for _ in looks("the server that waits, among the brokers"):
            if set(known.list_topics().brokers) == {1, 2}:
                break
