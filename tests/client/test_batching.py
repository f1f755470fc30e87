"""Batches: the partition of a record, the end of a batch, and the batches that travel together."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator_api.v1 import log_pb2 as log
from coordinator_client import Producer
from coordinator_client.producer.batching import Accumulator, BatchFormat, SealedBatch
from coordinator_client.transport.session import CALL_OVERHEAD_BYTES_MAX
from coordinator_client.values import Identity, TopicPartitionCount
from coordinator_protocol.batch import HEADER_BYTES, Compression, Encoding
from coordinator_protocol.hashing import partition_for
from coordinator_protocol.limits import KIBI, MEBI
from coordinator_protocol.methods import Method
from tests.client.world import World

ME = Identity(1, 0)
TOPIC = TopicPartitionCount(name="t", topic_id=b"", partition_count=3)


def take(waiting: Accumulator, identity: Identity = ME) -> list[SealedBatch]:
    """The batches of the next request."""
    return waiting.take(identity, log.ProduceRequest().batches)


def accumulator(*, batch_bytes: int = 4 * KIBI, topic: TopicPartitionCount = TOPIC, first: float = 0.0) -> Accumulator:
    plan = BatchFormat(
        encoding=Encoding.RECORDS_V1,
        compression=Compression.NONE,
        batch_bytes=batch_bytes,
        record_bytes_max=MEBI,
        is_transactional=True,
    )
    waiting = Accumulator(plan)
    waiting.learn(topic, first=first)
    return waiting


def put(waiting: Accumulator, *, key: bytes | None = None, partition: int | None = None, size: int = 10) -> bool:
    return waiting.append(waiting.writers["t"], (key, b"x" * size, 0, ()), partition)


def placed(waiting: Accumulator) -> list[tuple[int, int]]:
    """(partition, records) of the batches that can go now."""
    waiting.seal_all()
    return [(batch.queue.partition, batch.message.batch.record_count) for batch in take(waiting)]


@given(st.binary(max_size=20))
def test_a_key_goes_where_kafka_sends_it(key: bytes) -> None:
    waiting = accumulator()
    put(waiting, key=key)
    put(waiting, key=key)
    assert placed(waiting) == [(partition_for(key, 3), 2)]


def test_records_without_a_key_share_a_batch_and_take_turns_batch_by_batch() -> None:
    waiting = accumulator(first=0.4)
    for _ in range(4):
        put(waiting)
        put(waiting)
        waiting.seal_all()
    assert placed(waiting) == [(1, 2), (2, 2), (0, 2)]


def test_a_batch_is_cut_before_it_grows_past_its_size() -> None:
    waiting = accumulator(batch_bytes=4 * KIBI)
    assert [put(waiting, partition=0, size=600) for _ in range(8)] == [
        False,
        False,
        False,
        True,
        False,
        False,
        True,
        False,
    ]
    waiting.seal_all()
    sizes = []
    while batches := take(waiting):
        (batch,) = batches
        sizes.append((batch.base_sequence, batch.message.batch.record_count))
        assert len(batch.message.batch.payload) + HEADER_BYTES <= 4 * KIBI
        assert take(waiting) == [], "one batch of a partition at a time"
        waiting.settle(batch)
    assert sizes == [(0, 3), (3, 3), (6, 2)]
    assert waiting.buffered_bytes == 0


def test_a_large_record_has_a_batch_of_its_own() -> None:
    waiting = accumulator(batch_bytes=4 * KIBI)
    for size in (10, 100_000, 10):
        put(waiting, partition=0, size=size)
    waiting.seal_all()
    counts = []
    while batches := take(waiting):
        counts += [batch.message.batch.record_count for batch in batches if batch.message]
        waiting.settle(batches[0])
    assert counts == [1, 1, 1]


def test_a_request_fits_into_a_message_of_a_session() -> None:
    waiting = accumulator(topic=TopicPartitionCount(name="t", topic_id=b"", partition_count=30))
    for partition in range(30):
        put(waiting, partition=partition, size=100_000)
    requests = []
    waiting.seal_all()
    while batches := take(waiting):
        requests.append(sum(batch.message.ByteSize() for batch in batches))
    assert len(requests) == 4
    assert max(requests) < MEBI - CALL_OVERHEAD_BYTES_MAX


def test_sequences_begin_again_with_a_new_identity() -> None:
    waiting = accumulator()
    put(waiting, partition=0)
    waiting.seal_all()
    (first,) = take(waiting)
    waiting.settle(first)
    put(waiting, partition=0)
    waiting.seal_all()
    waiting.restart_sequences()
    assert waiting.last_sequences() == []
    (second,) = take(waiting, Identity(1, 1))
    assert second.base_sequence == 0
    waiting.take_back_sequence(first, Identity(1, 1))
    assert second.queue.next_sequence == 1, "a batch of the old identity says nothing about the new one"


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3_000)), max_size=30), st.data())
def test_nothing_is_lost_or_counted_twice_in_any_order_of_answers(records, data: st.DataObject) -> None:
    waiting = accumulator()
    on_the_way: list = []
    sent: dict[int, list[tuple[int, int]]] = {0: [], 1: [], 2: []}
    for partition, size in itertools.chain(records, [(-1, 0)]):
        if partition >= 0:
            put(waiting, partition=partition, size=size)
        else:
            waiting.seal_all()
        for batch in take(waiting) if data.draw(st.booleans()) or partition < 0 else ():
            on_the_way.append(batch)
            sent[batch.queue.partition].append((batch.base_sequence, batch.message.batch.record_count))
        while on_the_way and data.draw(st.booleans()):
            waiting.settle(on_the_way.pop(data.draw(st.integers(0, len(on_the_way) - 1))))
    while on_the_way or waiting.ready:
        for batch in take(waiting):
            on_the_way.append(batch)
            sent[batch.queue.partition].append((batch.base_sequence, batch.message.batch.record_count))
        waiting.settle(on_the_way.pop())
    for partition, batches in sent.items():
        counts = [count for _, count in batches]
        assert [sequence for sequence, _ in batches] == [sum(counts[:i]) for i in range(len(counts))]
        assert sum(counts) == sum(1 for number, _ in records if number == partition)
    assert waiting.buffered_bytes == 0


@pytest.mark.parametrize("partition", [None, 0])
def test_a_send_waits_when_enough_is_waiting(partition: int | None) -> None:
    world = World()
    producer = Producer(world.connection(), transactional_id="p", batch_bytes=8_192, buffer_bytes=16_384)
    with producer.transaction() as txn:
        for number in range(40):
            txn.send("t", b"%d" % number * 1_000, partition=partition)
            assert producer._core.sender.waiting.buffered_bytes < 2 * 16_384
    assert len(world.server.visible()) == 40


def test_open_batches_of_many_partitions_do_not_fill_the_buffer_for_ever() -> None:
    world = World()
    world.server.topics["wide"] = 50
    producer = Producer(world.connection(), transactional_id="p", batch_bytes=8_192, buffer_bytes=16_384)
    with producer.transaction() as txn:
        for number in range(100):
            txn.send("wide", b"x" * 1_000, partition=number % 50)
    assert len(world.server.visible("wide")) == 100
    assert len(world.requests(Method.PRODUCE)) > 3
