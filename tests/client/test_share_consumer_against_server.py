"""Share consumers of a real server process: what the fake taught them must be true."""

# What is under test is the exit of a `with`, so the block that raises has the length of a session.
# ruff: noqa: PT012

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator

import pytest

from coordinator_client import (
    AcknowledgementFailed,
    Admin,
    AsyncShareConsumer,
    Producer,
    ShareConsumer,
    ShareRecord,
    TopicPartition,
    read,
)
from coordinator_protocol.errors import ErrorCode
from tests.client.consumers import values
from tests.harness.patience import looks
from tests.harness.server_process import ServerProcess

STEPS_MAX = 50

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("share") / "data") as server:
        yield server


@pytest.fixture
def topic(shared: ServerProcess, request: pytest.FixtureRequest) -> str:
    """A topic of this test with two partitions; also the name of its group, which begins at the first record."""
    name = request.node.name.replace("[", ".").rstrip("]")[:200]
    make(shared, name)
    return name


def make(server: ServerProcess, name: str, **settings: int | str) -> None:
    with Admin(server.address) as admin:
        admin.create_topic(name, 2)
        admin.alter_group_configs(name, {"share_auto_offset_reset": "earliest"} | settings)


def member(server: ServerProcess, topic: str, **options: object) -> ShareConsumer:
    consumer = ShareConsumer(server.address, **({"group_id": topic} | options))  # type: ignore[arg-type]
    consumer.subscribe([topic])
    return consumer


def append(server: ServerProcess, topic: str, *numbers: int) -> list[bytes]:
    """Commit these as records, spread over the partitions."""
    sent = [b"%d" % number for number in numbers]
    with Producer(server.address, transactional_id=topic) as producer, producer.transaction() as txn:
        for number, value in zip(numbers, sent, strict=True):
            txn.send(topic, value, partition=number % 2)
    return sent


def poll_some(consumer: ShareConsumer, count: int) -> list[ShareRecord]:
    """Poll until this many records came."""
    found: list[ShareRecord] = []
    for _ in range(STEPS_MAX):
        found += consumer.poll(timeout_ms=500)
        if len(found) >= count:
            return found
    raise AssertionError(f"only {len(found)} of {count} records came")


def test_members_share_a_partition_and_nothing_is_taken_twice(shared: ServerProcess, topic: str) -> None:
    with (
        member(shared, topic, max_poll_records=5, share_acquire_mode="record_limit") as first,
        member(shared, topic, max_poll_records=5, share_acquire_mode="record_limit") as second,
    ):
        for each in (first, second):
            for _ in looks("the assignment of a member"):
                assert not each.poll(timeout_ms=200)
                if each.assignment():
                    break
        sent = append(shared, topic, *range(40))
        read: list[bytes | None] = []
        counts = [0, 0]
        for _ in range(STEPS_MAX):
            for number, each in enumerate((first, second)):
                batch = each.poll(timeout_ms=200)
                counts[number] += len(batch)
                read += values(batch)
            if len(read) == 40:
                break
        assert all(counts), counts
        assert set(first.commit().values()) <= {None}
        assert set(second.commit().values()) <= {None}
    assert Counter(read) == Counter(sent)
    with member(shared, topic) as third:
        assert not third.poll(timeout_ms=500)


def test_releases_come_again_and_rejects_do_not(shared: ServerProcess, topic: str) -> None:
    append(shared, topic, 0, 2, 4)
    with member(shared, topic, explicit=True) as consumer:
        batch = poll_some(consumer, 3)
        consumer.accept(batch[0])
        consumer.release(batch[1])
        consumer.reject(batch[2])
        (again,) = poll_some(consumer, 1)
        assert (again.value, again.delivery_count) == (b"2", 2)
        consumer.release(again)
        for count in (3, 4, 5):
            (again,) = poll_some(consumer, 1)
            assert again.delivery_count == count
            consumer.release(again)
        # The delivery limit is 5.
        assert not consumer.poll(timeout_ms=500)


def test_a_renewed_lock_outlives_the_first(shared: ServerProcess, request: pytest.FixtureRequest) -> None:
    topic = request.node.name
    make(shared, topic)
    append(shared, topic, 0)
    with member(shared, topic) as consumer:
        (record,) = poll_some(consumer, 1)
        consumer.renew(record)
        assert consumer.commit() == {TopicPartition(topic, 0): None}
        assert not consumer.poll(timeout_ms=300)
        consumer.accept(record)
        assert consumer.commit() == {TopicPartition(topic, 0): None}


def test_a_renewal_that_is_not_enabled_fails_alone(shared: ServerProcess, request: pytest.FixtureRequest) -> None:
    topic = request.node.name
    make(shared, topic, share_renew_acknowledge_enable="false")
    append(shared, topic, 0, 2)
    with member(shared, topic) as consumer:
        batch = poll_some(consumer, 2)
        consumer.renew(batch[0])
        error = consumer.commit()[TopicPartition(topic, 0)]
        assert isinstance(error, AcknowledgementFailed)
        assert (error.code, error.offsets) == (ErrorCode.INVALID_REQUEST, {TopicPartition(topic, 0): (0,)})
        consumer.accept(batch[0])
        assert consumer.commit() == {TopicPartition(topic, 0): None}


def test_aborted_records_and_markers_never_come(shared: ServerProcess, request: pytest.FixtureRequest) -> None:
    topic = request.node.name
    make(shared, topic, share_isolation_level="read_committed")
    with Producer(shared.address, transactional_id=topic) as producer:
        with pytest.raises(ZeroDivisionError), producer.transaction() as txn:
            txn.send(topic, b"aborted", partition=0)
            txn.flush()
            raise ZeroDivisionError
        with member(shared, topic) as consumer:
            with producer.transaction() as txn:
                txn.send(topic, b"committed", partition=0)
                txn.flush()
                assert not consumer.poll(timeout_ms=700)
            assert values(poll_some(consumer, 1)) == [b"committed"]
            with producer.transaction() as txn:
                txn.send(topic, b"again", partition=0)
            assert values(poll_some(consumer, 1)) == [b"again"]


def test_an_asyncio_consumer_beside_a_blocking_one(shared: ServerProcess, topic: str) -> None:
    sent = append(shared, topic, *range(20))

    async def read() -> list[bytes | None]:
        found: list[bytes | None] = []
        async with AsyncShareConsumer(shared.address, group_id=topic, explicit=True) as consumer:
            consumer.subscribe([topic])
            for _ in range(STEPS_MAX):
                batch = await consumer.poll(timeout_ms=200)
                consumer.accept(batch)
                found += values(batch)
                if len(found) == 20:
                    return found
        raise AssertionError(f"only {len(found)} came")

    assert Counter(asyncio.run(read())) == Counter(sent)


def test_a_consumer_that_closes_gives_its_records_to_another_at_once(shared: ServerProcess, topic: str) -> None:
    append(shared, topic, 0, 2)
    with member(shared, topic, explicit=True) as first, member(shared, topic) as second:
        batch = poll_some(first, 2)
        first.accept(batch[0])
        assert not second.poll(timeout_ms=200)
        first.close()
        (record,) = poll_some(second, 1)
        assert (record.value, record.delivery_count) == (b"2", 2)


def test_a_topic_that_is_deleted_and_made_again(shared: ServerProcess, topic: str) -> None:
    append(shared, topic, 0)
    with member(shared, topic) as consumer:
        poll_some(consumer, 1)
        with Admin(shared.address) as admin:
            admin.delete_topic(topic)
            with pytest.raises(AcknowledgementFailed, match=f"{topic}-0 0"):
                for _ in range(STEPS_MAX):
                    consumer.poll(timeout_ms=100)
            admin.create_topic(topic, 2)
        append(shared, topic, 1)
        assert values(poll_some(consumer, 1)) == [b"1"]


@pytest.mark.kill
def test_a_server_that_is_killed_and_comes_back(tmp_path: object) -> None:
    with ServerProcess(tmp_path / "data") as server:  # type: ignore[operator]
        make(server, "t")
        append(server, "t", *range(6))
        with member(server, "t", group_id="t", explicit=True) as consumer:
            batch = poll_some(consumer, 6)
            consumer.accept(batch[:3])
            assert set(consumer.commit().values()) == {None}
            server.kill()
            assert not consumer_polls_in_vain(consumer, batch[3:])
            server.start()
            accepted = {(record.partition, record.offset) for record in batch[:3]}
            with pytest.raises(AcknowledgementFailed) as why:
                for _ in range(STEPS_MAX):
                    consumer.poll(timeout_ms=500)
            lost = {(name.partition, offset) for name, offsets in why.value.offsets.items() for offset in offsets}
            assert lost == {(record.partition, record.offset) for record in batch[3:]}
            again = poll_some(consumer, 3)
            assert lost == {(record.partition, record.offset) for record in again}
            assert not lost & accepted
            consumer.accept(again)
            assert set(consumer.commit().values()) == {None}


def consumer_polls_in_vain(consumer: ShareConsumer, held: list[ShareRecord]) -> list[ShareRecord]:
    consumer.accept(held)
    return list(consumer.poll(timeout_ms=500))


# With transactions


def test_a_transaction_acknowledges_what_it_made_results_of(shared: ServerProcess, topic: str) -> None:
    append(shared, topic, 0, 2)
    results = f"{topic}.results"
    with Admin(shared.address) as admin:
        admin.create_topic(results, 1)
    with (
        Producer(shared.address, transactional_id=f"{topic}.worker") as producer,
        member(shared, topic, explicit=True) as consumer,
    ):
        whole = consumer.poll(timeout_ms=5_000)
        with pytest.raises(ZeroDivisionError), producer.transaction() as txn:
            txn.send(results, b"aborted")
            txn.acknowledge(whole)
            raise ZeroDivisionError
        consumer.release(whole)
        again = consumer.poll(timeout_ms=5_000)
        assert [record.delivery_count for record in again] == [2, 2]
        with producer.transaction() as txn:
            for record in again:
                txn.send(results, record.value)
            txn.acknowledge(again)
        assert not consumer.poll(timeout_ms=500)
    assert [record.value for record in read(results, shared.address)] == [b"0", b"2"]
    with member(shared, topic) as other:
        assert not other.poll(timeout_ms=500)
