"""Two equal servers on one bucket: one holds the lease and serves, the other waits and takes over."""

from __future__ import annotations

import signal
import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from coordinator_api.v1 import common_pb2, transaction_pb2, transaction_pb2_grpc
from coordinator_client import Admin, Consumer, Producer, read
from coordinator_client.transport import known_servers
from coordinator_server.exits import ExitStatus
from tests.harness.object_store import ObjectServer
from tests.harness.patience import DEADLINE_SECONDS, looks
from tests.harness.server_process import READY, ServerProcess
from tests.slate.test_serving import initialised, served, txnctl

pytestmark = pytest.mark.slow


@contextmanager
def pair(
    tmp_path: Path, server: ObjectServer, address: str, *, port: int = 0
) -> Iterator[tuple[ServerProcess, ServerProcess]]:
    """Two servers with a lease of four seconds; the first serves and the second waits, at this port."""
    server.wall_seconds = None
    first, second = (leased(tmp_path / name, number, server, address) for number, name in ((1, "a"), (2, "b")))
    second.port = port
    with first, second_waits(second):
        yield first, second


@contextmanager
def second_waits(second: ServerProcess) -> Iterator[None]:
    second.launch()
    try:
        yield
    finally:
        second.kill()


def leased(
    path: Path, node_id: int, server: ObjectServer, address: str, *arguments: str, ttl_ms: int = 4_000
) -> ServerProcess:
    settings = ("--set", f"node_id={node_id}", "--set", f"lease_ttl_ms={ttl_ms}", *arguments)
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
def test_an_owner_that_is_fenced_before_its_lease_ends_is_to_be_started_again(
    tmp_path: Path, server: ObjectServer, address: str
) -> None:
    """A server without a lease takes the store over, and loses it to the owner that is started again."""
    server.wall_seconds = None
    with leased(tmp_path / "a", 1, server, address, ttl_ms=60_000) as owner:
        assert epoch_at(owner) == 0
        with served(tmp_path / "b", server, address) as rival:
            assert epoch_at(rival) == 1
            # An owner without work notices nothing.
            epoch_at(owner, "late")
            assert owner.wait() == ExitStatus.LEASE_ENDED
            assert "another server has opened the store" in owner.output
            owner.start()
            assert epoch_at(owner) == 2
            epoch_at(rival, "late")
            assert rival.wait() == ExitStatus.FENCED


@pytest.mark.long
def test_an_owner_that_is_cut_off_from_the_bucket_ends_itself(
    tmp_path: Path, server: ObjectServer, address: str
) -> None:
    server.wall_seconds = None
    with leased(tmp_path / "a", 1, server, address) as alone:
        server.refusal = 403
        assert alone.wait() in (ExitStatus.LEASE_ENDED, ExitStatus.FAILED)


@pytest.mark.long
def test_a_server_that_waits_ends_at_once_after_sigterm(tmp_path: Path, server: ObjectServer, address: str) -> None:
    with pair(tmp_path, server, address) as (first, second):
        waits(second)
        assert second.terminate() == ExitStatus.OK
        assert epoch_at(first) == 0


@pytest.mark.long
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
        acknowledged: list[str] = []
        # The first address is that of the server that waits.
        with Producer(f"{second.address},{first.address}", transactional_id="p") as producer:
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
def test_clients_that_were_given_only_the_owner_go_on_after_a_kill(
    tmp_path: Path, server: ObjectServer, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A producer, a consumer and an administrator. Nothing acknowledged is lost, and nothing is there twice."""
    monkeypatch.setattr(known_servers, "FIRST_QUESTION_MS", 0)
    with pair(tmp_path, server, address, port=free_port()) as (first, second), Admin(first.address) as admin:
        admin.create_topic("t", 1)
        waits(second)
        with (
            Producer(first.address, transactional_id="p") as producer,
            Consumer(first.address, group_id="g", auto_offset_reset="earliest") as consumer,
        ):
            consumer.subscribe(["t"])
            sends(producer, range(10))
            found = received(consumer, 10)
            for _ in looks("the server that waits, among those that clients know"):
                if second.address in known_to_clients_of(first):
                    break
                admin.describe_topics()
            first.kill()
            sends(producer, range(10, 20))
            found += received(consumer, 10)
            assert [each.name for each in admin.describe_topics()] == ["t"]
        serving(second)
        assert Counter(found) == Counter(str(number) for number in range(20))


def known_to_clients_of(process: ServerProcess) -> tuple[str, ...]:
    known = known_servers.followed_servers(process.address, None, 0)
    return () if known is None else known.addresses


def sends(producer: Producer, numbers: range) -> None:
    """Commit one transaction for each number."""
    for number in numbers:
        with producer.begin() as transaction:
            transaction.send("t", str(number).encode())


def received(consumer: Consumer, count: int) -> list[str]:
    """Return the values of the next records."""
    found: list[str] = []
    for _ in looks("the records"):
        found += [record.value.decode() for record in consumer.poll(timeout_ms=1_000)]
        if len(found) >= count:
            return found
    raise AssertionError


def test_commands_that_were_given_the_server_that_waits_ask_the_owner(
    tmp_path: Path, server: ObjectServer, address: str
) -> None:
    with pair(tmp_path, server, address, port=free_port()) as (first, second):
        waits(second)
        txnctl(second, "topic", "create", "t")
        assert "t" in txnctl(first, "topic", "list")


def test_a_server_that_waits_names_the_owner(tmp_path: Path, server: ObjectServer, address: str) -> None:
    with pair(tmp_path, server, address, port=free_port()) as (first, second):
        waits(second)
        with grpc.insecure_channel(second.address) as channel:
            stub = transaction_pb2_grpc.TransactionServiceStub(channel)
            found = owner_at(stub)
            assert [each.node_id for each in found.servers] == [1, 2]
            assert f"{found.servers[0].host}:{found.servers[0].port}" == first.address
            refused = stub.InitProducerId(transaction_pb2.InitProducerIdRequest(transactional_id="a"))
            assert refused.error_code == common_pb2.ERROR_CODE_NOT_COORDINATOR
            assert first.terminate() == ExitStatus.OK
            serving(second)
            # The connection stays, and the same server answers as the owner.
            assert [each.node_id for each in owner_at(stub).servers] == [2, 1], "the former one until another waits"
            assert initialised(channel, "a")[1] == 0


def owner_at(stub: transaction_pb2_grpc.TransactionServiceStub) -> transaction_pb2.FindCoordinatorResponse:
    """Ask until a server is named for the key: the lease may not have been seen yet."""
    key_type = transaction_pb2.COORDINATOR_KEY_TYPE_TRANSACTION
    request = transaction_pb2.FindCoordinatorRequest(key_type=key_type, keys=["a"])
    for _ in looks("the owner"):
        found = stub.FindCoordinator(request, wait_for_ready=True, timeout=DEADLINE_SECONDS)
        if found.coordinators[0].host:
            return found
    raise AssertionError


@pytest.mark.long
@pytest.mark.parametrize("known", ["owner", "waiting"])
def test_a_kafka_client_that_knows_one_server_goes_on_after_a_kill(
    tmp_path: Path, server: ObjectServer, address: str, known: str
) -> None:
    """librdkafka learns of the other server by Metadata. Nothing that was acknowledged is lost or there twice."""
    kafka = pytest.importorskip("confluent_kafka", reason="the environment is older than the lock")
    server.wall_seconds = None
    ports = free_port(), free_port()
    first, second = (
        # Long, so that a busy machine ends no owner: nothing here lets the next one serve.
        leased(tmp_path / name, number, server, address, "--kafka-listen", f"127.0.0.1:{port}", ttl_ms=20_000)
        for number, name, port in ((1, "a", ports[0]), (2, "b", ports[1]))
    )
    second.port = free_port()
    bootstrap = f"127.0.0.1:{ports[0 if known == 'owner' else 1]}"
    with first, second_waits(second), Admin(first.address) as admin:
        admin.create_topic("t", 2)
        waits(second)
        sees_both(bootstrap)
        settings = {"bootstrap.servers": bootstrap, "transactional.id": "p", "linger.ms": 0}
        # With `rebootstrap`, librdkafka 2.16 forgets the server that it learned of.
        settings |= {"metadata.recovery.strategy": "none", "reconnect.backoff.max.ms": 200}
        producer = kafka.Producer(settings)
        producer.init_transactions(DEADLINE_SECONDS)
        for number in range(20):
            if number == 10:
                sees_both(producer)
                first.kill()
            committed(producer, number)
        serving(second)
        found = Counter(record.value.decode() for record in read("t", second.address))
        assert found == Counter(f"{number}/{part}" for number in range(20) for part in range(2))


def sees_both(client: Any) -> None:
    """Return once a client knows both servers."""
    kafka = pytest.importorskip("confluent_kafka", reason="the environment is older than the lock")
    admin = pytest.importorskip("confluent_kafka.admin", reason="the environment is older than the lock")
    known = admin.AdminClient({"bootstrap.servers": client}) if isinstance(client, str) else client
    for _ in looks("the server that waits, among the brokers"):
        # On a new connection librdkafka may ask for all topics, too. The server that waits ends it then.
        with forgiven(kafka.KafkaError._TRANSPORT):
            if set(known.list_topics("t", timeout=DEADLINE_SECONDS).brokers) == {1, 2}:
                return


@contextmanager
def forgiven(code: int) -> Iterator[None]:
    """Ignore this error of librdkafka in the block."""
    from confluent_kafka import KafkaException

    try:
        yield
    except KafkaException as error:
        if error.args[0].code() != code:
            raise


def committed(producer: Any, number: int) -> None:
    """Commit one transaction with a record in each partition. Abort it and begin again where librdkafka asks for it."""
    from confluent_kafka import KafkaException

    while True:
        try:
            producer.begin_transaction()
            for part in range(2):
                producer.produce("t", f"{number}/{part}".encode(), partition=part)
            producer.commit_transaction(DEADLINE_SECONDS)
        except KafkaException as failure:
            if not failure.args[0].txn_requires_abort():
                raise
            producer.abort_transaction(DEADLINE_SECONDS)
        else:
            return
