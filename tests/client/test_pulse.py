"""A client that closes beside a server that answers nothing, and beside one whose disk is slow."""

from __future__ import annotations

import pytest

from coordinator_api.v1 import transaction_pb2 as txn
from coordinator_client import AsyncProducer, Retriable
from coordinator_protocol.methods import Method
from tests.client.consumers import FakeCluster
from tests.client.producers import producer_in
from tests.client.world import Fault, Held, World

SLOW_MS = 5_000
_CLOSES_WITHIN_MS = 1_100


def freeze(world: World) -> None:
    """Let the server answer nothing any more, without a word from the network."""
    world.weather = lambda _: Fault.SILENT


def answer_late(world: World, method: Method, answer: object) -> None:
    """Let the next answer of this method wait for the disk."""
    held = Held()
    world.answer(method, held)
    world.call_after(SLOW_MS, lambda: held.give(answer))


def test_a_producer_closes_within_a_second_beside_a_server_that_says_nothing(world: World) -> None:
    producer = producer_in(world)
    txn_open = producer.transaction().__enter__()
    txn_open.send("t", b"x", partition=0)
    txn_open.flush()
    freeze(world)
    began_ms = world.now_ms
    with pytest.raises(Retriable, match="did not come to an end within 1000 ms"):
        producer.close()
    assert world.now_ms - began_ms <= _CLOSES_WITHIN_MS
    assert world.methods()[-2:] == [Method.END_TXN, Method.DESCRIBE_LIMITS]


def test_a_producer_waits_for_the_abort_of_a_server_with_a_slow_disk(world: World) -> None:
    producer = producer_in(world)
    txn_open = producer.transaction().__enter__()
    txn_open.send("t", b"x", partition=0)
    txn_open.flush()
    answer_late(world, Method.END_TXN, txn.EndTxnResponse())
    began_ms = world.now_ms
    producer.close()
    assert world.now_ms - began_ms >= SLOW_MS
    assert world.methods().count(Method.DESCRIBE_LIMITS) > 10, "it is asked as long as it is waited for"


def test_a_close_that_is_answered_at_once_asks_nothing_else(world: World) -> None:
    with producer_in(world) as producer:
        txn_open = producer.transaction().__enter__()
        txn_open.send("t", b"x", partition=0)
        txn_open.flush()
    assert Method.DESCRIBE_LIMITS not in world.methods()
    assert world.requests(Method.END_TXN)


def test_an_asyncio_producer_closes_within_a_second_too(world: World) -> None:
    async def body() -> None:
        producer = AsyncProducer(world.connection(), transactional_id="p", transact_bytes=0)
        txn_open = await producer.transaction().__aenter__()
        await txn_open.send("t", b"x", partition=0)
        await txn_open.flush()
        freeze(world)
        began_ms = world.now_ms
        with pytest.raises(Retriable):
            await producer.close()
        assert world.now_ms - began_ms <= _CLOSES_WITHIN_MS

    world.run(body())


@pytest.mark.parametrize("enable_auto_commit", [False, True])
def test_a_consumer_closes_within_a_second_beside_a_server_that_says_nothing(*, enable_auto_commit: bool) -> None:
    cluster = FakeCluster()
    cluster.topic.append(0, b"x")
    cluster.group.give(0)
    consumer = cluster.member(enable_auto_commit=enable_auto_commit)
    assert consumer.poll(timeout_ms=500)
    freeze(cluster.world)
    cluster.world.pause(2_000)
    began_ms = cluster.world.now_ms
    consumer.close()
    assert cluster.world.now_ms - began_ms <= _CLOSES_WITHIN_MS


def test_a_consumer_waits_for_the_commit_of_a_server_with_a_slow_disk() -> None:
    cluster = FakeCluster()
    cluster.topic.append(0, b"x")
    cluster.group.give(0)
    consumer = cluster.member()
    assert consumer.poll(timeout_ms=500)
    commit = cluster.group.commit

    def late(request: object) -> Held:
        held = Held()
        cluster.world.call_after(SLOW_MS, lambda: held.give(commit(request)))
        return held

    cluster.world.server.handle(Method.OFFSET_COMMIT, late)
    consumer.close()
    assert cluster.group.offsets, "the commit was waited for"
    assert cluster.beats()[-1].member_epoch == -1, "and the group was left"
