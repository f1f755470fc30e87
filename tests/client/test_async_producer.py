"""The asyncio producer: what differs from the blocking one is how it waits, and what a cancelled wait means."""

# Under test is the exit of an `async with`, so the block that raises has the length of a transaction.
# ruff: noqa: PT012

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from coordinator_api.v1 import log_pb2 as log
from coordinator_client import Abortable, AsyncProducer, Connection, Fenced, Misconfigured, OutcomeUnknown, Rejected
from coordinator_client.process import THIS_PROCESS
from coordinator_client.producer.state import ProducerStatus
from coordinator_protocol.errors import ErrorCode
from coordinator_protocol.methods import Method
from tests.client.async_view import ProducerView, Stepper
from tests.client.fake_channel import SessionWorld, Weather
from tests.client.fake_server import refuse
from tests.client.test_producer_faults import WholeSessionSimulation, explore
from tests.client.test_transaction_offsets import TransactionCluster
from tests.client.world import Fault, Held, World

ASYNC_SEEDS = 25


@pytest.fixture
def world() -> SessionWorld:
    return SessionWorld()


def producer_in(world: World, transactional_id: str | None = "p", **options) -> AsyncProducer:
    return AsyncProducer(world.connection(), transactional_id=transactional_id, **options)


async def commit(producer: AsyncProducer, *values: bytes) -> int:
    async with producer.transaction() as txn:
        for value in values:
            await txn.send("t", value, partition=0)
    return txn.csn


async def until(is_so: Callable[[], bool]) -> None:
    """Let the other tasks go on until it is so."""
    for _ in range(1_000):
        if is_so():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never was")


def test_a_transaction_commits_in_one_request(world: SessionWorld) -> None:
    async def body() -> None:
        async with producer_in(world) as producer:
            assert await commit(producer, b"a", b"b") == 1
            assert await commit(producer, b"c") == 2

    world.run(body())
    assert world.server.visible() == [b"a", b"b", b"c"]
    assert world.channel.messages == [["InitProducerId"], ["DescribeTopics"], ["Transact"], ["Transact"]]


def test_many_producers_share_messages(world: SessionWorld) -> None:
    connection = world.connection()

    async def body() -> None:
        producers = [AsyncProducer(connection, transactional_id=f"p{number}") for number in range(20)]
        await asyncio.gather(*(producer.init() for producer in producers))
        await asyncio.gather(*(commit(producer, b"x") for producer in producers))
        await asyncio.gather(*(producer.close() for producer in producers))

    world.run(body())
    sizes = [len(message) for message in world.channel.messages]
    assert sizes[:2] == [20, 20], "what is asked for in one turn goes together"
    assert sum(sizes) == 60
    assert len(sizes) <= 5, "what follows from answers goes with what follows from their neighbours"
    assert len(world.channel.streams) == 1


def test_an_exception_aborts_and_goes_on(world: SessionWorld) -> None:
    async def body() -> None:
        producer = producer_in(world)
        with pytest.raises(ZeroDivisionError):
            async with producer.transaction() as txn:
                await txn.send("t", b"x", partition=0)
                await txn.flush()
                raise ZeroDivisionError
        await commit(producer, b"y")
        async with producer.transaction() as txn:
            await txn.send("t", b"z", partition=0)
            await txn.abort()
        with pytest.raises(Rejected, match="the transaction is over"):
            await txn.send("t", b"z")

    world.run(body())
    assert world.server.visible() == [b"y"]


def test_plain_records_are_in_the_log_after_a_flush(world: SessionWorld) -> None:
    async def body() -> None:
        producer = producer_in(world, None)
        await producer.send("t", b"a", partition=0)
        await producer.flush()
        assert world.server.visible() == [b"a"]
        await producer.send("t", b"b", partition=0)
        await producer.close()
        with pytest.raises(Rejected, match="closed"):
            await producer.send("t", b"c")
        with pytest.raises(Rejected, match="give it one"):
            producer.transaction()

    world.run(body())
    assert world.server.visible() == [b"a", b"b"]


def test_a_full_buffer_holds_sends_back_until_there_is_room(world: SessionWorld) -> None:
    held = Held()
    reply = log.ProduceResponse()
    reply.results.add()
    world = World()
    world.server.handle(Method.PRODUCE, lambda _: held)
    sent = []

    async def body() -> None:
        producer = producer_in(world, None, batch_bytes=8_192, buffer_bytes=8_192)
        for number in range(4):
            await producer.send("t", b"x" * 3_000, partition=0)
            sent.append(number)
        await producer.close()

    async def release() -> None:
        await until(lambda: len(sent) == 2)
        assert sent == [0, 1]
        world.server.handle(Method.PRODUCE, lambda _: reply)
        held.give(reply)

    async def both() -> None:
        await asyncio.gather(body(), release())

    world.run(both())
    assert sent == [0, 1, 2, 3]


def test_an_abort_waits_for_nothing_that_is_on_its_way() -> None:
    world = World()
    world.server.handle(Method.PRODUCE, lambda _: Held())

    async def body() -> None:
        async with producer_in(world, batch_bytes=4_096, transact_bytes=4_096).transaction() as txn:
            for _ in range(3):
                await txn.send("t", b"x" * 2_000, partition=0)
            assert world.methods()[-1] is Method.PRODUCE
            await txn.abort()

    world.run(body())
    assert world.methods()[-1] is Method.END_TXN


def test_a_full_buffer_does_not_make_batches_small() -> None:
    held, sizes = Held(), []
    reply = log.ProduceResponse()
    reply.results.add()
    world = World()

    def produce(request: log.ProduceRequest) -> Held | log.ProduceResponse:
        sizes.append(request.batches[0].batch.record_count)
        return held if len(sizes) == 1 else reply

    world.server.handle(Method.PRODUCE, produce)

    async def body() -> None:
        producer = producer_in(world, None, batch_bytes=8_192, buffer_bytes=16_384)
        for _ in range(30):
            await producer.send("t", b"x" * 1_000, partition=0)
        await producer.close()

    async def release() -> None:
        await until(lambda: bool(sizes))
        held.give(reply)

    async def both() -> None:
        await asyncio.gather(body(), release())

    world.run(both())
    assert sizes == [5] * 6


def test_a_cancelled_commit_can_be_asked_for(world: SessionWorld) -> None:
    async def body() -> None:
        producer = producer_in(world)
        await producer.init()
        await commit(producer, b"a")
        world.channel.foresee(Weather.SILENT)
        task = asyncio.create_task(commit(producer, b"b"))
        await until(lambda: producer.status is ProducerStatus.COMMITTING)
        task.cancel()
        with pytest.raises(asyncio.CancelledError) as caught:
            await task
        assert "resolve_outcome" in caught.value.__notes__[0]
        assert await producer.resolve_outcome()
        await commit(producer, b"c")

    world.run(body())
    assert world.server.visible() == [b"a", b"b", b"c"]


def test_a_cancelled_body_aborts(world: SessionWorld) -> None:
    async def body() -> None:
        producer = producer_in(world)

        async def work() -> None:
            async with producer.transaction() as txn:
                await txn.send("t", b"x", partition=0)
                await txn.flush()
                await asyncio.get_running_loop().create_future()

        task = asyncio.create_task(work())
        await until(lambda: bool(world.requests(Method.PRODUCE)))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert producer.status is ProducerStatus.READY
        await commit(producer, b"y")

    world.run(body())
    assert world.server.visible() == [b"y"]


def test_an_unknown_outcome_is_resolved(world: SessionWorld) -> None:
    async def body() -> None:
        producer = producer_in(world, delivery_timeout_ms=300)
        await commit(producer, b"a")
        world.channel.foresee(Weather.LOST_ANSWERS, *[Weather.LOST_MESSAGE] * 50)
        with pytest.raises(OutcomeUnknown):
            await commit(producer, b"b")
        world.channel.foresee()
        assert await producer.resolve_outcome()

    world.run(body())
    assert world.server.visible() == [b"a", b"b"]


def test_a_rival_fences(world: SessionWorld) -> None:
    async def body() -> None:
        one, two = producer_in(world), producer_in(world)
        await commit(one, b"a")
        await commit(two, b"b")
        with pytest.raises(Fenced):
            await commit(one, b"c")
        await one.close()

    world.run(body())
    assert world.server.visible() == [b"a", b"b"]


def test_the_decision_is_made_outside() -> None:
    world = SessionWorld()

    async def body() -> None:
        producer = producer_in(world, two_phase_commit=True)
        assert await producer.recover() is None
        async with producer.transaction() as txn:
            await txn.send("t", b"a", partition=0)
            prepared = await txn.prepare()
        assert await prepared.commit() == 1
        async with producer.transaction() as txn:
            await txn.send("t", b"b", partition=0)
            prepared = await txn.prepare()
        await prepared.abort()
        async with producer.transaction() as txn:
            await txn.send("t", b"c", partition=0)
            await txn.prepare()
        await producer.close()
        later = producer_in(world, two_phase_commit=True)
        kept = await later.recover()
        assert kept is not None
        await kept.commit()

    world.run(body())
    assert world.server.visible() == [b"a", b"c"]


def test_offsets_commit_with_it() -> None:
    cluster = TransactionCluster()
    consumer = cluster.reading()
    batch = consumer.poll()

    async def body() -> None:
        producer = producer_in(cluster.world)
        async with producer.transaction() as txn:
            await txn.send("out", b"x")
            txn.commit_offsets(consumer, batch)

    cluster.world.run(body())
    (request,) = cluster.world.requests(Method.TRANSACT)
    assert request.groups[0].topics[0].partitions[0].committed_offset == 2


def test_a_batch_that_is_refused_aborts(world: SessionWorld) -> None:
    refusal = log.ProduceResponse()
    refuse(refusal.results.add(), Method.PRODUCE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    world.server.handle(Method.PRODUCE, lambda _: refusal)

    async def body() -> None:
        producer = producer_in(world)
        with pytest.raises(Abortable):
            async with producer.transaction() as txn:
                await txn.send("t", b"x", partition=0)
                await txn.flush()
        await commit(producer, b"y")

    world.run(body())
    assert world.server.visible() == [b"y"]


def test_without_a_session_answers_find_the_loop_again() -> None:
    world = World()
    world.fault(Method.TRANSACT, Fault.LOST_REPLY)

    async def body() -> None:
        async with producer_in(world) as producer:
            await commit(producer, b"a")

    world.run(body())
    assert world.server.visible() == [b"a"]


def test_a_fork_is_told_that_it_is_one(world: SessionWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    async def body() -> None:
        producer = producer_in(world)
        await producer.init()
        monkeypatch.setattr(THIS_PROCESS, "process_id", -1)
        with pytest.raises(Misconfigured, match="inside the child"):
            await commit(producer, b"x")
        await producer.close()

    world.run(body())
    assert not world.is_closed


@pytest.fixture
def stepping() -> Iterator[list[Stepper]]:
    steppers: list[Stepper] = []
    yield steppers
    for stepper in steppers:
        stepper.close()


def test_what_it_says_about_a_transaction_is_true_whatever_the_network_does(stepping: list[Stepper]) -> None:
    class AsyncSimulation(WholeSessionSimulation):
        def new_producer(self) -> ProducerView:  # type: ignore[override]
            connection: Connection = self.world.connection()
            if not stepping:
                stepping.append(Stepper(self.world))
            stepping[0]._world = self.world
            made = AsyncProducer(
                connection,
                transactional_id="p",
                delivery_timeout_ms=1_500,
                batch_bytes=4_096,
                transact_bytes=self.transact_bytes,
            )
            return ProducerView(made, stepping[0])

    ends: Counter[str] = Counter()
    for seed in range(ASYNC_SEEDS):
        ends += explore(seed, AsyncSimulation)
    assert ends["committed"] > 10
