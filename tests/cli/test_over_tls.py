"""Everything that talks to a server talks TLS: the SDK, `txnctl` and the Spark source's planning, on a server that
demands certificates of its callers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest
from grpc import aio

from coordinator_api.v1 import log_pb2, log_pb2_grpc
from coordinator_client import Admin, AsyncProducer, Consumer, Producer, Tls, Unreachable, read
from coordinator_client.transport.connection import Connection
from pyspark_txnlog.bounds import InvalidOption
from pyspark_txnlog.connections import tls_of
from pyspark_txnlog.options import parse_options
from pyspark_txnlog.read.planning import plan_read
from tests.cli.terminal import Terminal
from tests.harness.certificates import Authority, Pair
from tests.harness.in_process import in_process_server
from tests.harness.threaded_server import threaded_server


@dataclass(frozen=True)
class Safe:
    """A server that demands certificates, and what one of its clients has."""

    address: str
    authority: Authority
    client: Pair

    @property
    def tls(self) -> Tls:
        return Tls(ca_file=self.authority.ca_file, certificate_file=self.client.certificate, key_file=self.client.key)

    @property
    def flags(self) -> list[str]:
        named = (self.authority.ca_file, self.client.certificate, self.client.key)
        options = ("--tls-ca-file", "--tls-certificate-file", "--tls-key-file")
        return [word for option, file in zip(options, named, strict=True) for word in (option, str(file))]


@pytest.fixture(scope="module")
def safe(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Safe]:
    authority = Authority(tmp_path_factory.mktemp("certificates"), "ca")
    server = authority.issue("server")
    with threaded_server(
        transport="grpc",
        tls_certificate_file=server.certificate,
        tls_key_file=server.key,
        tls_client_ca_file=authority.ca_file,
        tls_client_auth="required",
    ) as address:
        yield Safe(address, authority, authority.issue("client"))


def test_producers_and_readers_of_every_kind_get_in(safe: Safe) -> None:
    with Admin(safe.address, tls=safe.tls) as admin:
        admin.create_topic("kinds", partition_count=1)
    for transport in ("session", "unary"):
        with (
            Producer(safe.address, transactional_id="p", transport=transport, tls=safe.tls) as producer,
            producer.transaction() as transaction,
        ):
            transaction.send("kinds", transport.encode())
    assert [record.value for record in read("kinds", safe.address, tls=safe.tls)] == [b"session", b"unary"]
    with Consumer(safe.address, group_id="g", auto_offset_reset="earliest", tls=safe.tls) as consumer:
        consumer.subscribe(["kinds"])
        values: list[bytes | None] = []
        while len(values) < 2:
            values += [record.value for record in consumer.poll(timeout_ms=30_000)]
    assert values == [b"session", b"unary"]


async def test_an_asyncio_producer_gets_in(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ca")
    pair = authority.issue("server")
    settings = {"transport": "grpc", "tls_certificate_file": pair.certificate, "tls_key_file": pair.key}
    async with in_process_server(None, **settings) as server:
        async with aio.secure_channel(
            str(server.address), grpc.ssl_channel_credentials(authority.ca_file.read_bytes())
        ) as channel:
            topics = log_pb2.CreateTopicsRequest(topics=[log_pb2.NewTopic(name="t", partition_count=1)])
            await log_pb2_grpc.LogServiceStub(channel).CreateTopics(topics)
        tls = Tls(ca_file=authority.ca_file)
        async with AsyncProducer(str(server.address), transactional_id="a", tls=tls) as producer:
            async with producer.transaction() as transaction:
                await transaction.send("t", b"async")
            assert transaction.csn > 0


def test_a_client_without_tls_and_one_without_a_certificate_are_told_what_is_missing(safe: Safe) -> None:
    without_certificate = Tls(ca_file=safe.authority.ca_file)
    for tls, said in ((None, "it may want TLS"), (without_certificate, "it demands a certificate of its clients")):
        producer = Producer(safe.address, transactional_id="p", wait_ms=0, tls=tls)
        with producer, pytest.raises(Unreachable, match=said):
            producer.init()


@pytest.fixture
def txnctl(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    return Terminal(monkeypatch)


def test_txnctl_gets_in_by_flags_and_by_the_environment(
    safe: Safe, txnctl: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = ("--server", safe.address)
    txnctl(*safe.flags, "topic", "create", "by-txnctl", *server).well()
    for option, file in zip(safe.flags[::2], safe.flags[1::2], strict=True):
        monkeypatch.setenv("TXNCTL" + option.removeprefix("-").replace("-", "_").upper(), file)
    txnctl("produce", "by-txnctl", *server, stdin="a\n").well()
    assert [record["value"] for record in txnctl("consume", "by-txnctl", *server, "-o", "json").well().objects] == ["a"]
    assert "SERVING" in txnctl("health", *server).well().stdout
    txnctl("doctor", *server).well()
    txnctl("probe", *server, "--count", "1").well()


def test_txnctl_says_what_is_missing(safe: Safe, txnctl: Terminal, tmp_path: Path) -> None:
    server = ("--server", safe.address)
    ca = ("--tls-ca-file", str(safe.authority.ca_file))
    txnctl("topic", "list", *server).refused(5, "it may want TLS (name a CA file)")
    txnctl(*ca, "topic", "list", *server).refused(5, "it demands a certificate of its clients")
    txnctl(*ca, "health", *server).refused(5, "it demands a certificate of its clients")
    txnctl("--tls-server-name", "n", "topic", "list", *server).refused(2, "need --tls-ca-file")
    txnctl("--tls-ca-file", str(tmp_path / "gone"), "topic", "list", *server).refused(2, "cannot be read")
    txnctl(*ca, "--tls-key-file", "k", "topic", "list", *server).refused(2, "certificate_file and key_file go together")
    txnctl(*ca, "topic", "list", "--server", "unix:/nobody").refused(5, "No such file")


def test_a_spark_read_is_planned_over_tls(safe: Safe) -> None:
    with Admin(safe.address, tls=safe.tls) as admin:
        admin.create_topic("for-spark", partition_count=2)
    options = {
        "endpoint": safe.address,
        "subscribe": "for-spark",
        "tlsCaFile": str(safe.authority.ca_file),
        "tlsCertificateFile": str(safe.client.certificate),
        "tlsKeyFile": str(safe.client.key),
    }
    parsed = parse_options(options)
    # One of its own: the one that a process shares stays open for as long as it lives, and other tests look there.
    with Connection(parsed.endpoint, client_id="planner", tls=tls_of(parsed)) as connection:
        assert [planned.partition for planned in plan_read(connection, parsed)] == [0, 1]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"tlsKeyFile": "k"}, "tlsKeyFile is set and tlsCaFile is not"),
        ({"tlsCaFile": "c", "tlsKeyFile": "k"}, "tlsCertificateFile and tlsKeyFile go together"),
        ({"token": "t"}, "options travel in plain sight"),
        ({"kafka.ssl.keystore.password": "p"}, "options travel in plain sight"),
        ({"kafka.ssl.truststore.location": "p"}, "use tlsCaFile"),
    ],
)
def test_half_of_the_options_of_a_spark_read_and_secrets_in_them_are_refused(
    options: dict[str, str], said: str
) -> None:
    with pytest.raises(InvalidOption, match=said):
        parse_options({"endpoint": "h:1", "subscribe": "t"} | options)
