"""A topic gets more partitions while a producer writes to it: the producer notices, and loses nothing."""

from __future__ import annotations

import pytest

from coordinator_api.v1 import log_pb2 as log
from coordinator_client import Abortable, AsyncProducer, Misconfigured, Rejected
from coordinator_protocol.hashing import partition_for
from coordinator_protocol.methods import Method
from tests.client.async_view import Stepper
from tests.client.producers import producer_in
from tests.client.world import Fault, World

MAX_AGE_MS = 30_000
KEYS = [b"%d" % number for number in range(40)]


def partitions_written(world: World) -> set[int]:
    return {batch.partition for request in world.requests(Method.PRODUCE) for batch in request.batches}


def keyed(world: World, producer: object, **options: object) -> set[int]:
    """One transaction with a record for each key; the partitions that got some."""
    world.sent.clear()
    with producer.transaction() as txn:
        for key in KEYS:
            txn.send("t", key, key=key, **options)
    return partitions_written(world)


def test_keys_are_spread_over_new_partitions_once_the_metadata_is_too_old(world: World) -> None:
    producer = producer_in(world)
    assert keyed(world, producer) == {partition_for(key, 3) for key in KEYS}
    world.server.topics["t"] = 5
    world.now_ms += MAX_AGE_MS - 1_000
    assert keyed(world, producer) == {partition_for(key, 3) for key in KEYS}
    world.now_ms += 1_000
    keyed(world, producer)
    assert keyed(world, producer) == {partition_for(key, 5) for key in KEYS}
    assert len(world.server.visible()) == 4 * len(KEYS)


@pytest.mark.parametrize("partition_count", [3, 1, 5])
def test_a_topic_that_is_made_again_is_noticed_before_a_record_for_it_is_refused(
    world: World, partition_count: int
) -> None:
    world.server.topics["u"] = 1
    producer = producer_in(world)
    keyed(world, producer)
    world.server.delete_topic("t")
    world.server.topics["t"] = partition_count
    world.now_ms += MAX_AGE_MS
    with producer.transaction() as txn:
        txn.send("u", b"beside this request the topics are asked for")
        txn.flush()
    world.settle()
    assert keyed(world, producer) == {partition_for(key, partition_count) for key in KEYS}
    assert len(world.server.visible()) == len(KEYS)


def test_records_of_the_old_topic_are_refused_and_never_written_into_the_new_one(world: World) -> None:
    world.server.topics["u"] = 1
    producer = producer_in(world)
    keyed(world, producer)
    world.server.delete_topic("t")
    world.server.topics["t"] = 3
    world.now_ms += MAX_AGE_MS

    def write_to_both() -> None:
        with producer.transaction() as txn:
            txn.send("t", b"for the old one", partition=0)
            txn.send("u", b"x")
            txn.flush()

    with pytest.raises(Abortable, match="made anew"):
        write_to_both()
    assert world.server.visible() == []
    assert keyed(world, producer) == {partition_for(key, 3) for key in KEYS}


def test_the_known_topics_are_asked_for_in_one_request_and_not_again_too_soon(world: World) -> None:
    world.server.topics["u"] = 1
    producer = producer_in(world)
    with producer.transaction() as txn:
        txn.send("t", b"x")
        txn.send("u", b"x")
    world.now_ms += MAX_AGE_MS
    world.sent.clear()
    for _ in range(3):
        keyed(world, producer)
    asked = world.requests(Method.DESCRIBE_TOPICS)
    assert [[topic.name for topic in request.topics] for request in asked] in ([["t", "u"]], [])


@pytest.mark.parametrize("fault", [Fault.LOST_REQUEST, Fault.LOST_REPLY, Fault.SILENT])
def test_a_refresh_that_fails_delays_no_call_and_is_made_again(world: World, fault: Fault) -> None:
    producer = producer_in(world)
    keyed(world, producer)
    world.server.topics["t"] = 5
    world.fault(Method.DESCRIBE_TOPICS, fault)
    world.now_ms += MAX_AGE_MS
    for _ in range(3):
        assert keyed(world, producer) <= {0, 1, 2}
    world.now_ms += MAX_AGE_MS
    keyed(world, producer)
    assert keyed(world, producer) == {partition_for(key, 5) for key in KEYS}


def test_who_sends_nothing_asks_for_nothing(world: World) -> None:
    """Alone the request would be made in the caller's thread, and held up by a server that does not answer."""
    producer = producer_in(world)
    keyed(world, producer)
    world.now_ms += MAX_AGE_MS
    world.sent.clear()
    with producer.transaction() as txn:
        txn.flush()
    producer.init()
    assert world.sent == []


def test_a_partition_that_is_named_is_looked_for_at_once(world: World) -> None:
    producer = producer_in(world)
    keyed(world, producer)
    world.server.topics["t"] = 5
    with producer.transaction() as txn:
        txn.send("t", b"new", partition=4)
    assert b"new" in world.server.visible()


def test_a_partition_that_there_is_not_is_refused_and_the_transaction_goes_on(world: World) -> None:
    producer = producer_in(world)
    with producer.transaction() as txn:
        txn.send("t", b"a")
        for partition in (3, -1):
            with pytest.raises(Rejected, match="t has the partitions 0 to 2"):
                txn.send("t", b"b", partition=partition)
    assert world.server.visible() == [b"a"]


def test_records_that_wait_keep_their_partition_and_sequence_through_growth(world: World) -> None:
    producer = producer_in(world)
    with producer.transaction() as txn:
        for number in range(4):
            txn.send("t", b"%d" % number, partition=0)
        world.server.topics["t"] = 5
        txn.send("t", b"new", partition=4)
        txn.flush()
        txn.send("t", b"4", partition=0)
    assert sorted(world.server.visible()) == [b"0", b"1", b"2", b"3", b"4", b"new"]
    assert [
        (batch.partition, batch.batch.base_sequence)
        for request in world.requests(Method.PRODUCE)
        for batch in request.batches
        if batch.partition == 0
    ] == [(0, 0), (0, 4)]


def test_a_topic_that_was_made_anew_meanwhile_is_not_taken_for_a_larger_one(world: World) -> None:
    producer = producer_in(world)
    keyed(world, producer)
    other = log.DescribeTopicsResponse()
    other.topics.add(name="t", topic_id=b"another topic id").partitions.extend(
        log.PartitionDescription(partition=number) for number in range(9)
    )
    world.answer(Method.DESCRIBE_TOPICS, other)
    world.now_ms += MAX_AGE_MS
    for _ in range(3):
        assert keyed(world, producer) <= {0, 1, 2}


def test_an_asyncio_producer_notices_too(world: World) -> None:
    run = Stepper(world)

    async def write() -> None:
        producer = AsyncProducer(world.connection(), transactional_id="p", transact_bytes=0)
        async with producer.transaction() as txn:
            await txn.send("t", b"a")
        world.server.topics["t"] = 5
        async with producer.transaction() as txn:
            await txn.send("t", b"b", partition=4)

    try:
        run(write())
    finally:
        run.close()
    assert sorted(world.server.visible()) == [b"a", b"b"]


def test_an_age_that_is_none_is_refused(world: World) -> None:
    with pytest.raises(Misconfigured, match="metadata_max_age_ms"):
        producer_in(world, metadata_max_age_ms=0)
