"""The SDK against a real server process: what the fakes taught it must be true."""

# Under test is the exit of a `with`, so the block that raises has the length of a transaction.
# ruff: noqa: PT012

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from coordinator_client import (
    Abortable,
    Admin,
    AsyncAdmin,
    BatchReader,
    Consumer,
    Fenced,
    Misconfigured,
    Producer,
    Rejected,
    TopicPartition,
    plan_ranges,
    read,
)
from coordinator_client.reading.reader import ReadPlan
from coordinator_client.transport.connection import Connection
from coordinator_protocol.compression import COMPRESSION_NAMES
from coordinator_protocol.errors import ErrorCode
from coordinator_protocol.marker import Outcome
from tests.harness import forked
from tests.harness.patience import looks
from tests.harness.server_process import ServerProcess

KILLS = 5

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("client") / "data") as server:
        yield server


@pytest.fixture
def topic(shared: ServerProcess, request: pytest.FixtureRequest) -> str:
    """A topic of this test, on the shared server."""
    name = request.node.name.replace("[", ".").rstrip("]")[:200]
    with Admin(shared.address) as admin:
        admin.create_topic(name, 3)
    return name


def values(server: ServerProcess, topic: str, **options) -> list[bytes | None]:
    return [record.value for record in read(topic, server.address, **options)]


def wait_for_abort(server: ServerProcess, transactional_id: str) -> None:
    """Return once the server has aborted the open transaction; its clock is asked, not ours."""
    with Admin(server.address) as admin:
        for _ in looks("the state of the transaction"):
            if admin.describe_transaction(transactional_id).state == "CompleteAbort":
                return


async def test_an_asyncio_administrator_asks_many_questions_at_once(shared: ServerProcess, topic: str) -> None:
    async with AsyncAdmin(shared.address) as admin:
        answers = await asyncio.gather(*[admin.describe_topic(topic) for _ in range(20)], admin.list_shards())
        assert {answer.name for answer in answers[:-1]} == {topic}
        assert {shard.state for shard in answers[-1]} == {"active"}
        assert (await admin.describe_disk()).is_low is False
        assert (await admin.describe_limits()).batch_bytes_max > 0
        with pytest.raises(Rejected, match="UNKNOWN_TOPIC_OR_PARTITION"):
            await admin.delete_topic("none")


RUNS = """
import asyncio, sys
from coordinator_client import AsyncConsumer

async def leave():
    consumer = AsyncConsumer(sys.argv[1])
    consumer.assign([(sys.argv[2], 0)])
    # The next fetch waits on the server when this returns.
    await consumer.poll(timeout_ms=50)
    await consumer.close()

for _ in range(10):
    asyncio.run(leave())
"""


def test_loops_one_after_the_other_print_no_traceback(shared: ServerProcess, topic: str) -> None:
    """A fetch is in flight when each loop ends, and is reported to grpc.aio while the next one runs."""
    program = [sys.executable, "-c", RUNS, shared.address, topic]
    done = forked.run(
        program, capture_output=True, text=True, check=True, env=os.environ | {"PYTHONPATH": ":".join(sys.path)}
    )
    assert done.stderr == ""


def test_results_of_sends_are_the_offsets_that_readers_see(shared: ServerProcess, topic: str) -> None:
    with Producer(shared.address, transactional_id=topic) as producer:
        with producer.transaction() as txn:
            small = [txn.send(topic, b"%d" % number) for number in range(5)]
        with producer.transaction() as txn:
            large = [txn.send(topic, bytes(100_000)) for _ in range(20)]
            txn.flush()
    found = {(record.partition, record.offset) for record in read(topic, shared.address)}
    assert {(each.partition, each.offset) for each in small + large} == found
    with Producer(shared.address, transactional_id=topic) as producer, producer.transaction() as txn:
        unflushed = [txn.send(topic, bytes(100_000), partition=0) for _ in range(20)]
    seen = {record.offset for record in read(topic, shared.address) if record.partition == 0}
    assert {each.offset for each in unflushed} - {None} < seen


def test_an_open_transaction_is_aborted_by_an_administrator(shared: ServerProcess, topic: str) -> None:
    with Producer(shared.address, transactional_id=topic) as producer, Admin(shared.address) as admin:
        with pytest.raises(Abortable), producer.transaction() as txn:
            txn.send(topic, b"x")
            txn.flush()
            (would,) = admin.abort_transactions([topic], dry_run=True)
            (ended,) = admin.abort_transactions([topic])
        assert (would.state, ended.partition_count) == ("Ongoing", 1)
        (refused,) = admin.abort_transactions([topic])
        assert isinstance(refused.refusal, Rejected)
        assert admin.list_hanging_transactions() == []
    assert values(shared, topic) == []


@pytest.mark.parametrize("encoding", ["records", "arrow"])
@pytest.mark.parametrize("compression", COMPRESSION_NAMES)
def test_committed_records_come_back_as_they_were(
    shared: ServerProcess, topic: str, encoding: str, compression: str
) -> None:
    if encoding == "arrow":
        pytest.importorskip("pyarrow")
    sent = [(b"k%d" % (number % 7), b"v%d" % number, (("h", b"%d" % number), ("n", None))) for number in range(100)]
    with Producer(shared.address, transactional_id=topic, encoding=encoding, compression=compression) as producer:
        with producer.transaction() as txn:
            for key, value, headers in sent:
                txn.send(topic, value, key=key, headers=headers, timestamp_ms=1_234)
        assert txn.csn > 0
        with producer.transaction() as txn:
            txn.send(topic, None, key=None, partition=0)
    records = list(read(topic, shared.address))
    assert Counter((r.key, r.value, r.headers) for r in records) == Counter([*sent, (None, None, ())])
    for partition in range(3):
        mine = [r for r in records if r.partition == partition and r.timestamp_ms == 1_234]
        assert [r.value for r in mine] == [value for _, value, _ in sent if value in {r.value for r in mine}]


def test_aborted_records_are_hidden_counted_and_shown_to_auditors(shared: ServerProcess, topic: str) -> None:
    with Producer(shared.address, transactional_id=topic) as producer:
        with pytest.raises(ZeroDivisionError), producer.transaction() as txn:
            txn.send(topic, b"aborted", partition=0)
            txn.flush()
            raise ZeroDivisionError
        with producer.transaction() as txn:
            txn.send(topic, b"committed", partition=0)
    assert values(shared, topic) == [b"committed"]
    assert values(shared, topic, isolation="read_uncommitted") == [b"aborted", b"committed"]
    raw = list(read(topic, shared.address, raw=True))
    assert [record.marker and record.marker.outcome for record in raw] == [None, Outcome.ABORT, None, Outcome.COMMIT]
    with Connection(shared.address) as connection:
        reader = BatchReader(connection, plan_ranges(connection, topic, ReadPlan()))
        assert sum(batch.record_count for batch in reader) == 1
        assert (reader.hidden.aborted, reader.hidden.control) == (1, 2)


def test_an_open_transaction_holds_committed_readers_back(shared: ServerProcess, topic: str) -> None:
    with Producer(shared.address, transactional_id=topic) as producer, Producer(shared.address) as plain:
        with producer.transaction() as txn:
            txn.send(topic, b"open", partition=0)
            txn.flush()
            plain.send(topic, b"plain", partition=0)
            plain.flush()
            assert values(shared, topic) == []
            assert values(shared, topic, isolation="read_uncommitted") == [b"open", b"plain"]
        assert values(shared, topic) == [b"open", b"plain"]


def test_a_zombie_is_fenced_and_its_records_never_show(shared: ServerProcess, topic: str) -> None:
    zombie = Producer(shared.address, transactional_id=topic)
    with Producer(shared.address, transactional_id=topic) as owner:
        with pytest.raises(Fenced), zombie.transaction() as txn:
            txn.send(topic, b"zombie", partition=0)
            txn.flush()
            with owner.transaction() as own:
                own.send(topic, b"owner", partition=0)
        with pytest.raises(Fenced), zombie.transaction():
            pass
        with owner.transaction() as own:
            own.send(topic, b"owner again", partition=0)
    zombie.close()
    assert values(shared, topic) == [b"owner", b"owner again"]


@pytest.mark.parametrize("is_noticed_by_a_send", [True, False])
def test_a_transaction_that_takes_too_long_is_survived(
    shared: ServerProcess, topic: str, is_noticed_by_a_send: bool
) -> None:
    with Producer(shared.address, transactional_id=topic, transaction_timeout_ms=200) as producer:
        with pytest.raises(Abortable), producer.transaction() as txn:
            txn.send(topic, b"late", partition=0)
            txn.flush()
            wait_for_abort(shared, topic)
            if is_noticed_by_a_send:
                txn.send(topic, b"later", partition=0)
        with producer.transaction() as txn:
            txn.send(topic, b"in time", partition=0)
    assert values(shared, topic) == [b"in time"]


@pytest.mark.parametrize("maximum_ms", [5_000, 3_600_000])
def test_the_longest_transaction_timeout_is_the_servers(tmp_path: Path, maximum_ms: int) -> None:
    environment = {"TXN_TRANSACTION_MAX_TIMEOUT_MS": str(maximum_ms)}
    with ServerProcess(tmp_path / "data", environment=environment) as server:
        with Producer(server.address, transactional_id="p", transaction_timeout_ms=maximum_ms) as producer:
            producer.init()
        # Closing it has nothing to say about the refusal.
        with Producer(server.address, transactional_id="p", transaction_timeout_ms=maximum_ms + 1) as producer:
            with pytest.raises(Misconfigured, match=f"is {maximum_ms + 1}; it must be 1 to {maximum_ms}") as refused:
                producer.init()
            with pytest.raises(Misconfigured), producer.transaction():
                pass
    assert refused.value.code == ErrorCode.INVALID_TRANSACTION_TIMEOUT


@pytest.mark.long
def test_a_server_that_is_killed_and_comes_back_is_not_noticed(tmp_path: Path) -> None:
    """Kills fall anywhere: between requests, in a Produce, in a commit."""
    expected = [b"%06d" % number for number in range(1_600)]
    with ServerProcess(tmp_path / "data") as server:
        with Admin(server.address) as admin:
            admin.create_topic("t", 3)
        kills = threading.Semaphore(0)

        def kill_when_told() -> None:
            for _ in range(KILLS):
                kills.acquire()
                server.kill()
                server.start()

        with Producer(server.address, transactional_id="p") as producer:
            killer = threading.Thread(target=kill_when_told)
            killer.start()
            for start in range(0, len(expected), 20):
                with producer.transaction() as txn:
                    for number, value in enumerate(expected[start : start + 20]):
                        txn.send("t", value, partition=number % 3)
                        if number % 10 == 9:
                            txn.flush()
                        if start % 320 == 0 and number == start // 320 * 3:
                            # The killer runs beside this thread, so the kill falls into the next few requests.
                            kills.release()
            killer.join()
        found = values(server, "t")
    assert sorted(value or b"" for value in found) == expected


def test_a_killed_producer_is_aborted_by_its_timeout(shared: ServerProcess, topic: str) -> None:
    context = multiprocessing.get_context("spawn")
    receiving, sending = context.Pipe(duplex=False)
    child = context.Process(target=_produce_and_hang, args=(shared.address, topic, sending))
    child.start()
    assert receiving.poll(60), "the child never produced"
    assert child.pid is not None
    os.kill(child.pid, signal.SIGKILL)
    child.join()
    wait_for_abort(shared, topic)
    assert values(shared, topic) == []
    with Producer(shared.address, transactional_id=topic) as producer, producer.transaction() as txn:
        txn.send(topic, b"successor")
    assert values(shared, topic) == [b"successor"]


def _produce_and_hang(address: str, topic: str, ready) -> None:
    producer = Producer(address, transactional_id=topic, transaction_timeout_ms=1_500)
    with producer.transaction() as txn:
        txn.send(topic, b"never seen")
        txn.flush()
        ready.send(True)
        threading.Event().wait()


def test_following_sees_what_is_committed_later(shared: ServerProcess, topic: str) -> None:
    with Producer(shared.address, transactional_id=topic) as producer:
        with producer.transaction() as txn:
            txn.send(topic, b"first", partition=1)
        records = read(topic, shared.address, follow=True)
        assert next(records).value == b"first"
        with producer.transaction() as txn:
            txn.send(topic, b"second", partition=2)
        assert next(records).value == b"second"


def test_topics_are_created_described_and_deleted(shared: ServerProcess) -> None:
    with Admin(shared.address) as admin:
        admin.create_topic("short-lived", 2)
        with pytest.raises(Rejected, match="TOPIC_ALREADY_EXISTS"):
            admin.create_topic("short-lived", 2)
        assert [p.high_watermark for p in admin.describe_topic("short-lived").partitions] == [0, 0]
        admin.delete_topic("short-lived")
        with pytest.raises(Rejected, match="UNKNOWN_TOPIC_OR_PARTITION"):
            admin.describe_topic("short-lived")
        with pytest.raises(Rejected, match="INVALID_PARTITIONS"):
            admin.create_topic("too-wide", 10_001)


def test_old_records_are_deleted_as_far_as_open_transactions_allow(shared: ServerProcess, topic: str) -> None:
    here, there = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with Admin(shared.address) as admin, Producer(shared.address, transactional_id=topic) as producer:
        with producer.transaction() as txn:
            txn.send(topic, b"first", partition=0)
            txn.send(topic, b"first", partition=1)
        with producer.transaction() as txn:
            txn.send(topic, b"second", partition=0)
            txn.flush()
            deleted = admin.delete_records({here: -1, there: 1})
            assert (deleted[here].low_watermark, deleted[there].low_watermark) == (2, 1)
            assert "began at offset 2 is open" in deleted[here].held_back
            assert deleted[there].held_back == ""
        assert values(shared, topic) == [b"second"]
        with pytest.raises(Rejected, match="OFFSET_OUT_OF_RANGE"):
            admin.delete_records({there: 100})
        assert admin.delete_records({here: -1})[here].held_back == ""
        assert values(shared, topic) == []


def test_a_consumer_whose_position_was_deleted_goes_on_as_its_reset_says(shared: ServerProcess, topic: str) -> None:
    with Producer(shared.address, transactional_id=topic) as producer:
        for value in (b"a", b"b", b"c"):
            with producer.transaction() as txn:
                txn.send(topic, value, partition=0)
    here = TopicPartition(topic, 0)
    with Admin(shared.address) as admin:
        admin.alter_group_offsets(f"{topic}-earliest", {here: 0})
        admin.alter_group_offsets(f"{topic}-none", {here: 0})
        assert admin.delete_records({here: 4})[here].low_watermark == 4

    def polled(reset: str) -> list[bytes | None]:
        with Consumer(shared.address, group_id=f"{topic}-{reset}", auto_offset_reset=reset) as consumer:
            consumer.subscribe([topic])
            found: list[bytes | None] = []
            while not found:
                found = [record.value for record in consumer.poll(timeout_ms=60_000)]
            return found

    assert polled("earliest") == [b"c"]
    with pytest.raises(Rejected, match="OFFSET_OUT_OF_RANGE"):
        polled("none")


def test_a_topic_that_is_deleted_in_a_transaction_aborts_it(shared: ServerProcess, topic: str) -> None:
    with Admin(shared.address) as admin, Producer(shared.address, transactional_id=topic) as producer:
        with pytest.raises(Abortable), producer.transaction() as txn:
            txn.send(topic, b"x", partition=0)
            txn.flush()
            admin.delete_topic(topic)
            txn.send(topic, b"y", partition=0)
        admin.create_topic(topic, 1)
        with producer.transaction() as txn:
            txn.send(topic, b"z")
    assert values(shared, topic) == [b"z"]
