"""The ways from Kafka that docs/kafka.md and docs/compatibility.md name, each with a Kafka client and real servers."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from coordinator_client import Admin
from coordinator_client import Consumer as SdkConsumer
from coordinator_client import Producer as SdkProducer
from tests.docs.fences import PROGRAMS, ROOT, commands, programs
from tests.harness import forked
from tests.harness.kafka_socket import kafka_address
from tests.harness.patience import DEADLINE_SECONDS, looks
from tests.harness.server_process import ServerProcess

pytestmark = pytest.mark.slow

PAGE = "docs/kafka.md"
ADDRESS = "127.0.0.1:9092"
OPTIONS = (
    *("--kafka-listen", "127.0.0.1:0"),
    *("--set", "group_consumer_heartbeat_interval_ms=100", "--set", "group_consumer_heartbeat_interval_ms_min=100"),
)
CLASSIC, CONSUMER = {"group.protocol": "classic"}, {"group.protocol": "consumer"}


class Server:
    """A server with both fronts."""

    def __init__(self, process: ServerProcess) -> None:
        self.grpc = process.address
        self.kafka = str(kafka_address(process))

    def writes(self, topic: str, values: list[str], *, ends: str = "commit", partition: int = 0) -> None:
        """Write to a topic in one transaction of a Kafka producer."""
        producer = Producer({"bootstrap.servers": self.kafka, "transactional.id": "kafka-shop"})
        producer.init_transactions(DEADLINE_SECONDS)
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value, value[0], partition, headers={"of": value})
        if ends == "commit":
            producer.commit_transaction(DEADLINE_SECONDS)
        else:
            producer.flush(DEADLINE_SECONDS)
            producer.abort_transaction(DEADLINE_SECONDS)

    def consumer(self, topic: str, group: str, options: Mapping[str, object]) -> Consumer:
        """Return a Kafka consumer of a topic."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.kafka,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                **options,
            }
        )
        consumer.subscribe([topic])
        return consumer

    def reads(self, topic: str, group: str, count: int, options: Mapping[str, object] = CLASSIC) -> list[Message]:
        """Read so many records of a topic as a member of a group that then commits what it read."""
        consumer = self.consumer(topic, group, options)
        found: list[Message] = []
        while len(found) < count:
            message = consumer.poll(DEADLINE_SECONDS)
            assert message is not None, f"{len(found)} of {count} records came"
            if message.error():
                raise KafkaException(message.error())
            found.append(message)
            consumer.commit(message=message, asynchronous=False)
        consumer.close()
        return found

    def offsets(self, group: str) -> dict[int, int]:
        """Return the committed offsets of a group of one topic, as Kafka's admin client sees them."""
        asked = [ConsumerGroupTopicPartitions(group)]
        admin = AdminClient({"bootstrap.servers": self.kafka})
        found = admin.list_consumer_group_offsets(asked)[group].result()
        return {each.partition: each.offset for each in found.topic_partitions}

    def run(self, command: str, directory: Path) -> str:
        """Run a command of a page."""
        words = shlex.split(command.replace(ADDRESS, self.kafka))
        if words[0] == "txnctl":
            words[:1] = [sys.executable, "-m", "txnctl"]
        environment = os.environ | {"TXNCTL_SERVER": self.grpc, "PATH": f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}"}
        done = forked.run(words, cwd=directory, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with ServerProcess(tmp_path_factory.mktemp("server") / "data", *OPTIONS) as process:
        yield Server(process)


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The server from which topics move: one of ours, of which only Kafka's protocol is used."""
    with ServerProcess(tmp_path_factory.mktemp("kafka") / "data", *OPTIONS) as process:
        yield Server(process)


def values(messages: list[Message]) -> list[str]:
    return [(message.value() or b"").decode() for message in messages]


@pytest.mark.long
def test_a_program_moves_from_one_protocol_to_the_other_in_the_same_group(server: Server) -> None:
    with Admin(server.grpc) as admin:
        admin.create_topic("shared", 1)
    with SdkProducer(server.grpc, transactional_id="sdk-shop") as producer, producer.transaction() as txn:
        txn.send("shared", b"a1")
        txn.send("shared", b"a2")
    server.writes("shared", ["b1", "b2"])
    assert values(server.reads("shared", "tellers", 3)) == ["a1", "a2", "b1"]
    with SdkConsumer(server.grpc, group_id="tellers", enable_auto_commit=False) as consumer:
        consumer.subscribe(["shared"])
        batch = next(iter(consumer.batches()))
        assert [record.value for record in batch] == [b"b2"]
        consumer.commit()
    server.writes("shared", ["c1"])
    assert values(server.reads("shared", "tellers", 1, CONSUMER)) == ["c1"]


def test_programs_of_both_protocols_share_a_group_at_once(server: Server) -> None:
    with Admin(server.grpc) as admin:
        admin.create_topic("both", 2)
    with (
        SdkConsumer(server.grpc, group_id="both") as ours,
        closing(server.consumer("both", "both", CONSUMER)) as theirs,
    ):
        ours.subscribe(["both"])
        for _ in looks("one partition for each"):
            if shares(ours, theirs) == (1, 1):
                break
        for partition in range(2):
            server.writes("both", [f"p{partition}"], partition=partition)
        mine = [record.value for record in next(iter(ours.batches()))]
        other = theirs.poll(DEADLINE_SECONDS)
        assert other is not None
        assert sorted([*mine, other.value() or b""]) == [b"p0", b"p1"]


def shares(ours: SdkConsumer, theirs: Consumer) -> tuple[int, int]:
    """Let both go on, and return how many partitions each has."""
    ours.poll(timeout_ms=100)
    theirs.poll(0.1)
    return len(ours.assignment()), len(theirs.assignment())


@pytest.mark.long
def test_a_topic_is_copied_with_the_offsets_of_its_groups(kafka: Server, server: Server, tmp_path: Path) -> None:
    with Admin(kafka.grpc) as admin:
        admin.create_topic("moved", 2)
    kafka.writes("moved", ["a1", "a2", "a3"])
    kafka.writes("moved", ["x1", "x2"], ends="abort")
    kafka.writes("moved", ["b1", "b2", "b3"])
    kafka.writes("moved", ["c1", "c2"], partition=1)
    old = AdminClient({"bootstrap.servers": kafka.kafka})
    commit(old, "before-the-start", {0: 0})
    commit(old, "at-the-markers", {0: 3, 1: 1})
    commit(old, "in-the-middle", {0: 8})
    commit(old, "at-the-end", {0: 11, 1: 3})
    old.delete_records([TopicPartition("moved", 0, 1)])[TopicPartition("moved", 0)].result()

    copy = f"examples/copy_from_kafka.py {kafka.kafka} {server.kafka} moved"
    assert server.run(f"{sys.executable} {ROOT}/{copy}", tmp_path) == (
        "copied 7 records of moved, and the offsets of 4 groups\n"
    )

    expected = {
        "before-the-start": ["a2", "a3", "b1", "b2", "b3", "c1", "c2"],
        "at-the-markers": ["b1", "b2", "b3", "c2"],
        "in-the-middle": ["b2", "b3", "c1", "c2"],
    }
    assert server.offsets("at-the-end") == {0: 5, 1: 2}
    for group, rest in expected.items():
        before, after = (each.reads("moved", group, len(rest)) for each in (kafka, server))
        assert sorted(values(before)) == sorted(values(after)) == rest
        assert sorted(map(said, before)) == sorted(map(said, after))
    with pytest.raises(AssertionError, match="there is a topic moved already"):
        server.run(f"{sys.executable} {ROOT}/{copy}", tmp_path)


def commit(admin: AdminClient, group: str, offsets: dict[int, int]) -> None:
    wanted = [TopicPartition("moved", partition, offset) for partition, offset in offsets.items()]
    admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, wanted)])[group].result()


def said(message: Message) -> tuple[object, ...]:
    """The parts of a record that a copy keeps."""
    headers = tuple(message.headers() or ())
    return message.partition(), message.key(), message.value(), message.timestamp()[1], headers


def test_the_page_of_kafkas_clients_does_what_it_says(server: Server, tmp_path: Path) -> None:
    ((program, promised),) = programs(PAGE)
    source = program.text.replace(ADDRESS, server.kafka)
    assert server.run(shlex.join([sys.executable, "-c", source]), tmp_path) == promised
    start, *others = commands(PAGE)
    assert start == f"txnctl dev --kafka-listen {ADDRESS}"
    said = {command: server.run(command, tmp_path) for command in others}
    assert any("reset-offsets" in command for command in said)
    assert server.offsets("shop") == {0: 0, 1: 0}
