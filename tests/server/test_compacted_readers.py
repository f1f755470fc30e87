"""Readers of every kind on a log that its server has compacted: the right records, offsets, lag and ends.

No reader may wait for an offset that is gone. Spark's readers are in `tests/spark/test_compacted_topics.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from coordinator_client import Admin, Consumer, Producer, ReadRecord, Rejected, ShareConsumer, TopicPartition, read
from coordinator_client.clock import SystemClock as ClientClock
from coordinator_protocol.errors import ErrorCode
from coordinator_runtime.backups import restore
from coordinator_runtime.clock import SystemClock
from tests.cli.terminal import Terminal
from tests.harness.compacted_topic import EAGER, END, LEFT, SOON, left_from, make_compacted
from tests.harness.kafka_socket import kafka_address
from tests.harness.patience import looks
from tests.harness.server_process import ServerProcess

pytestmark = pytest.mark.slow

TOPIC = "t"
PLACE = TopicPartition(TOPIC, 0)
STEPS_MAX = 50


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    path = tmp_path_factory.mktemp("compacted")
    settings = (f"backup_directory={path / 'backups'}", "kafka_listen=127.0.0.1:0")
    arguments = [word for setting in settings for word in ("--set", setting)]
    with ServerProcess(path / "data", *arguments, environment=SOON) as running:
        make_compacted(running.address, TOPIC)
        yield running


@pytest.fixture
def admin(server: ServerProcess) -> Iterator[Admin]:
    with Admin(server.address) as admin:
        yield admin


@pytest.fixture
def txnctl(monkeypatch: pytest.MonkeyPatch, server: ServerProcess) -> Terminal:
    terminal = Terminal(monkeypatch)
    monkeypatch.setenv("TXNCTL_SERVER", server.address)
    return terminal


def offsets(records: Iterator[ReadRecord]) -> list[int]:
    return [record.offset for record in records]


def test_the_log_has_holes_of_every_kind(txnctl: Terminal) -> None:
    batches = txnctl("log", "dump", TOPIC, "--json").well().objects
    data = [(row["base_offset"], row["last_offset"]) for row in batches if row["kind"] == "data"]
    markers = [row["base_offset"] for row in batches if row["kind"] == "marker"]
    assert data[0] == (0, 5), "records at 0, 2 and 5 are gone from it"
    assert not any(7 <= last <= 12 for _base, last in data), "two whole batches are gone"
    assert markers == [6, 10, 13, 21, 23, 25]


def test_the_sdk_reads_from_every_offset_to_every_end(server: ServerProcess) -> None:
    found = list(read(TOPIC, server.address))
    assert {record.offset: record.key for record in found} == LEFT
    for start in range(END + 1):
        for isolation in ("read_committed", "read_uncommitted"):
            records = read(TOPIC, server.address, start={0: start}, isolation=isolation)
            assert offsets(records) == left_from(start)
    for end in (0, 1, 2, 6, 8, 10, 13, 25, END):
        assert offsets(read(TOPIC, server.address, end={0: end})) == left_from(0, end)


def test_a_snapshot_without_a_lease_is_refused_once_it_was_compacted(server: ServerProcess, admin: Admin) -> None:
    make_compacted(server.address, "snapped")
    held, unheld = admin.take_snapshot(["snapped"]), admin.take_snapshot(["snapped"], lease_ms=0)
    with Producer(server.address, transactional_id="writes on") as producer, producer.transaction() as transaction:
        transaction.send("snapped", b"new", key=b"b", partition=0)
    for snapshot in (held, unheld):
        assert offsets(read("snapped", server.address, snapshot=snapshot)) == list(LEFT)
    admin.release_snapshot(held)
    for _ in looks("the compaction of snapped"):
        if 1 not in offsets(read("snapped", server.address)):
            break
    with pytest.raises(Rejected, match="compacted since the snapshot was taken") as refusal:
        list(read("snapped", server.address, snapshot=unheld))
    assert refusal.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_reader_that_follows_goes_on_over_a_hole(server: ServerProcess) -> None:
    following = read(TOPIC, server.address, start={0: 5}, follow=True)
    assert next(following).offset == 14
    following.close()
    assert offsets(read(TOPIC, server.address, start={0: 5}, end={0: 13}, follow=True)) == []


def polled(consumer: Consumer, count: int) -> list[int]:
    """Poll until there are so many records, and the position is the end of the log."""
    found: list[int] = []
    for _ in range(STEPS_MAX):
        found += [record.offset for record in consumer.poll(timeout_ms=200)]
        if len(found) >= count and consumer.assignment() and consumer.position(PLACE) == END:
            return found
    raise AssertionError(f"{found}, assigned {consumer.assignment()}")


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_a_group_ends_with_no_lag(server: ServerProcess, admin: Admin, protocol: str) -> None:
    group = f"readers {protocol}"
    options = {"group_id": group, "auto_offset_reset": "earliest", "group_protocol": protocol}
    with Consumer(server.address, enable_auto_commit=False, **options) as consumer:  # type: ignore[arg-type]
        consumer.subscribe([TOPIC])
        assert polled(consumer, len(LEFT)) == list(LEFT)
        consumer.commit()
    (lag,) = admin.group_lag(group)
    assert lag.offset.committed is not None
    assert lag.offset.committed.offset == END
    assert lag.lag is not None
    assert (lag.lag.to_last_stable_offset, lag.lag.to_high_watermark) == (0, 0)


def test_a_group_goes_on_from_an_offset_that_is_gone(server: ServerProcess, admin: Admin) -> None:
    for start in (2, 8, 12, 24):
        group = f"from {start}"
        admin.alter_group_offsets(group, {PLACE: start})
        (lag,) = admin.group_lag(group)
        assert lag.lag is not None
        # A count that begins inside a batch with holes is an upper bound.
        assert len(left_from(start)) <= lag.lag.to_last_stable_offset <= len(left_from(start)) + 3 * (start < 6)
        with Consumer(server.address, group_id=group, enable_auto_commit=False) as consumer:
            consumer.subscribe([TOPIC])
            assert polled(consumer, len(left_from(start))) == left_from(start)


def test_a_snapshot_shows_what_is_left_and_holds_it(server: ServerProcess, admin: Admin) -> None:
    topic = "held"
    make_compacted(server.address, topic)
    held = admin.take_snapshot([topic])
    with Producer(server.address) as producer:
        producer.send(topic, b"new", key=b"b", partition=0)
        producer.flush()
    assert {record.offset: record.key for record in read(topic, server.address, snapshot=held)} == LEFT
    newer = admin.take_snapshot([topic])
    assert offsets(read(topic, server.address, snapshot=newer, since=held)) == [END]
    for lease in (held, newer):
        admin.release_snapshot(lease)
    for _ in looks("the pass that the snapshots held"):
        if offsets(read(topic, server.address))[0] == 3:
            break
    bare = admin.take_snapshot([topic])
    assert offsets(read(topic, server.address, snapshot=bare)) == [*left_from(3), END]


def test_a_share_group_hands_out_what_is_left_and_comes_to_the_end(server: ServerProcess, admin: Admin) -> None:
    admin.alter_group_configs("workers", {"share_auto_offset_reset": "earliest"})
    found: list[int] = []
    with ShareConsumer(server.address, group_id="workers") as consumer:
        consumer.subscribe([TOPIC])
        for _ in range(STEPS_MAX):
            found += [record.offset for record in consumer.poll(timeout_ms=200)]
            consumer.commit()
            (progress,) = admin.share_group_offsets("workers") or [None]
            if progress is not None and progress.start_offset == END:
                break
    assert found == list(LEFT)
    (progress,) = admin.share_group_offsets("workers")
    assert (progress.start_offset, progress.lag) == (END, 0)


def test_commands_show_what_is_left(txnctl: Terminal) -> None:
    shown = txnctl("consume", TOPIC, "--json").well().objects
    assert [row["offset"] for row in shown] == list(LEFT)
    for start in (2, 8, 24):
        from_there = txnctl("consume", TOPIC, "--from", str(start), "--json").well().objects
        assert [row["offset"] for row in from_there] == left_from(start)
        dumped = txnctl("log", "dump", TOPIC, "--show", "records", "--from", str(start), "--json").well().objects
        assert [row["offset"] for row in dumped if row.get("key") is not None] == left_from(start)
    (first,) = txnctl("consume", TOPIC, "--from", "5", "-n", "1", "--json").well().objects
    assert first["offset"] == 14
    (found,) = txnctl("consume", TOPIC, "--key", "x", "--json").well().objects
    assert found["offset"] == 17
    explained = txnctl("explain", TOPIC, "--json").well().document
    assert (explained["records"], explained["blocked_partitions"]) == (len(LEFT), [])


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
@pytest.mark.parametrize("start", [0, 2, 8, 12, 24])
def test_a_client_of_kafka_comes_to_the_end(kafka: str, start: int, isolation: str) -> None:
    confluent_kafka = pytest.importorskip("confluent_kafka")
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": kafka,
            "group.id": f"kafka {start} {isolation}",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(TOPIC, 0, start)])
    found, is_at_end = [], False
    for _ in range(STEPS_MAX):
        message = consumer.poll(1.0)
        if message is None:
            continue
        if message.error() is None:
            found.append(message.offset())
        else:
            assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF, message.error()
            is_at_end = True
            break
    assert consumer.get_watermark_offsets(confluent_kafka.TopicPartition(TOPIC, 0)) == (0, END)
    consumer.close()
    assert (found, is_at_end) == (left_from(start), True)


@pytest.fixture(scope="module")
def kafka(server: ServerProcess) -> str:
    return str(kafka_address(server))


def test_a_backup_has_what_is_left(server: ServerProcess, txnctl: Terminal, tmp_path: Path) -> None:
    (made,) = txnctl("backup", "create", "-o", "json").well().document
    shelf = server.data_dir.parent / "backups"
    txnctl("backup", "verify", str(shelf / made["name"])).well()
    restore(shelf / made["name"], tmp_path / "restored", clock=SystemClock(), pause=ClientClock().pause)
    txnctl("store", "verify", str(tmp_path / "restored")).well()
    dumped = txnctl("log", "dump", TOPIC, "--data-dir", str(tmp_path / "restored"), "--show", "records", "--json")
    assert [row["offset"] for row in dumped.well().objects if row.get("key") is not None] == list(LEFT)
    with ServerProcess(tmp_path / "restored", environment=SOON) as again:
        assert {record.offset: record.key for record in read(TOPIC, again.address)} == LEFT
        with Admin(again.address) as admin:
            assert admin.topic_configs(TOPIC)["cleanup_policy"].value == EAGER["cleanup_policy"]
