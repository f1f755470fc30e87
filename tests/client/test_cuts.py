"""Consumers that stop at cuts, against a real server in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from coordinator_client import Admin, AsyncConsumer, Consumer, Producer, Rejected
from coordinator_client.consumer import cuts
from coordinator_protocol.errors import ErrorCode
from tests.harness.threaded_server import threaded_server

BOTH = [("t", 0), ("t", 1)]
GROUPED = {"group_id": "g", "enable_auto_commit": False, "auto_offset_reset": "earliest"}
ALONE = {"auto_offset_reset": "earliest"}


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with threaded_server() as address:
        yield address


@pytest.fixture
def topic(address: str) -> Iterator[None]:
    with Admin(address) as admin:
        admin.create_topic("t", 2)
        yield
        admin.delete_topic("t")


def commit(producer: Producer, value: bytes) -> None:
    """Write the value to both partitions."""
    with producer.transaction() as transaction:
        for _topic, partition in BOTH:
            transaction.send("t", value, partition=partition)


def read_to_cut(consumer: Consumer, *, max_records: int = 500) -> list[bytes]:
    cut = consumer.next_cut()
    found: list[bytes] = []
    while not consumer.has_reached(cut):
        found += [record.value or b"" for record in consumer.poll(until=cut, max_records=max_records)]
    assert not consumer.poll(until=cut, timeout_ms=60_000), "it is reached: nothing is waited for"
    return sorted(found)


@pytest.mark.usefixtures("topic")
def test_a_consumer_stands_at_cuts_and_goes_on_there_after_a_restart(address: str) -> None:
    with Producer(address, transactional_id="a") as older, Producer(address, transactional_id="b") as newer:
        commit(newer, b"first")
        with older.transaction() as held:
            held.send("t", b"held", partition=0)
            held.flush()
            commit(newer, b"second")
            with Consumer(address, **GROUPED) as consumer:
                consumer.assign(BOTH)
                assert read_to_cut(consumer, max_records=1) == [b"first", b"first"]
                assert read_to_cut(consumer) == [], "a plain poll returns half of what is next"
                consumer.commit()
                assert [record.value for record in consumer.poll(timeout_ms=60_000)] == [b"second"]
        with Consumer(address, **GROUPED) as consumer:
            consumer.assign(BOTH)
            assert read_to_cut(consumer) == [b"held", b"second", b"second"]


@pytest.mark.usefixtures("topic")
def test_a_backlog_is_looked_through_in_parts(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuts, "_AT_ONCE_MAX", 1)
    with Producer(address, transactional_id="a") as producer, Consumer(address, **ALONE) as consumer:
        for number in range(20):
            commit(producer, b"%02d" % number)
        consumer.assign(BOTH)
        assert read_to_cut(consumer, max_records=3) == sorted([b"%02d" % number for number in range(20)] * 2)
        consumer.seek(("t", 1), 0)
        assert len(read_to_cut(consumer)) == 20
        consumer.assign(BOTH[:1])
        commit(producer, b"only here")
        assert read_to_cut(consumer) == [b"only here"]


@pytest.mark.usefixtures("topic")
def test_the_asyncio_consumer_stops_at_cuts(address: str) -> None:
    async def read() -> list[bytes | None]:
        async with AsyncConsumer(address, **ALONE) as consumer:
            consumer.assign(BOTH)
            cut = await consumer.next_cut()
            found: list[bytes | None] = []
            while not consumer.has_reached(cut):
                found += [record.value for record in await consumer.poll(until=cut)]
            return found

    with Producer(address, transactional_id="a") as producer:
        commit(producer, b"x")
    assert asyncio.run(read()) == [b"x", b"x"]


def test_what_cannot_stand_at_a_cut_is_refused(address: str) -> None:
    for options in ({"group_id": "g"}, {"isolation": "read_uncommitted"}):
        with Consumer(address, **options) as consumer, pytest.raises(Rejected) as refusal:
            consumer.next_cut()
        assert refusal.value.code == ErrorCode.INVALID_CONFIG
    with Consumer(address, **GROUPED) as consumer:
        with pytest.raises(Rejected, match="assign"):
            consumer.next_cut()
        consumer.subscribe(["t"])
        with pytest.raises(Rejected, match="assign"):
            consumer.next_cut()
    with Consumer(address, **ALONE) as consumer:
        consumer.assign([("absent", 0)])
        with pytest.raises(Rejected) as refusal:
            consumer.next_cut()
        assert refusal.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.usefixtures("topic")
def test_a_cut_of_partitions_that_are_gone_is_not_reached(address: str) -> None:
    with Producer(address, transactional_id="a") as producer, Consumer(address, **ALONE) as consumer:
        consumer.assign(BOTH)
        commit(producer, b"x")
        cut = consumer.next_cut()
        consumer.assign(BOTH[:1])
        with pytest.raises(Rejected, match="not assigned"):
            consumer.has_reached(cut)
