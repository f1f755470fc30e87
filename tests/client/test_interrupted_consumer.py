"""A caller of a consumer is interrupted at any line: the next polls return what the interrupted one did not."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Iterable
from typing import Any, TypeVar

import pytest

from coordinator_client import AsyncConsumer, Consumer, RebalanceListener, Rejected, TopicPartition
from coordinator_client.reading.reader import ReadRecord
from tests.client.consumers import T0, T1, T2, FakeCluster
from tests.client.interruptions import SEED, Interrupter, Interruption, one_of_each
from tests.client.world import World
from tests.harness.long_cases import by_stride, long_but, some_or_all

T = TypeVar("T")

EACH = 6
"""Records in each of three partitions."""


class WorldApart(World):
    """A world whose loop is a thread of its own: what it does is none of the caller's lines."""

    @property
    def is_here(self) -> bool:
        return False


class Listener(RebalanceListener):
    """Commits what is revoked, as applications do."""

    def __init__(self) -> None:
        self.assigned: list[TopicPartition] = []

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self.assigned += partitions


def filled(world: World) -> FakeCluster:
    cluster = FakeCluster(world)
    for number in range(EACH):
        for partition in range(3):
            cluster.topic.append(partition, b"%d-%d" % (partition, number))
    cluster.group.give(0, 1, 2)
    return cluster


def all_values() -> list[bytes]:
    return sorted(b"%d-%d" % (partition, number) for number in range(EACH) for partition in range(3))


def at_last(call: Callable[[], T]) -> T:
    """Call it until it is not interrupted."""
    while True:
        try:
            return call()
        except Interruption:
            continue


Read = Callable[[Consumer, list[Iterable[ReadRecord]]], None]
"""Polls under interruptions, and appends each batch whole: what comes once a batch is returned is not polling."""


def by_poll(consumer: Consumer, got: list[Iterable[ReadRecord]]) -> None:
    for number in range(8):
        try:
            got.append(consumer.poll(timeout_ms=200, max_records=4))
            if number % 2:
                consumer.commit()
        except Interruption:
            continue


def by_iteration(consumer: Consumer, got: list[Iterable[ReadRecord]]) -> None:
    records = at_last(lambda: iter(consumer))
    for number in range(3 * EACH):
        try:
            got.append([next(records)])
            if number % 5 == 4:
                consumer.commit()
        except Interruption:
            continue


def with_batches(consumer: Consumer, got: list[Iterable[ReadRecord]]) -> None:
    batches = at_last(lambda: consumer.batches(max_records=5))
    for _ in range(3):
        try:
            got.append(next(batches))
            consumer.pause([T0])
            consumer.resume([T0])
            consumer.position(T1)
        except Interruption:
            continue


def committed(consumer: Consumer) -> dict[TopicPartition, int]:
    found = consumer.committed([T0, T1, T2])
    return {name: offset.offset for name, offset in found.items() if offset is not None}


def a_run(read: Read, at: tuple[int, ...] = (), *, by_opcode: bool = False) -> Interrupter:
    """Read under exceptions at these steps, then to the end; nothing is skipped, and nothing comes twice."""
    cluster = filled(WorldApart())
    listener = Listener()
    consumer = cluster.consumer(enable_auto_commit=False)
    batches: list[Iterable[ReadRecord]] = []
    interrupter = Interrupter(at, by_opcode=by_opcode)
    with interrupter:
        at_last(lambda: consumer.subscribe(["t"], listener=listener))
        read(consumer, batches)
        at_last(lambda: consumer.resume(consumer.paused()))
    where = at, interrupter.raised
    got = [record.value for batch in batches for record in batch]
    for _ in range(30):
        if len(got) >= 3 * EACH:
            break
        got += [record.value for record in consumer.poll(timeout_ms=200)]
    got += [record.value for record in consumer.poll(timeout_ms=200)]
    assert sorted(got) == all_values(), where
    # Between the instruction that notes a call of the listener and the call itself there is one more.
    assert by_opcode or sorted(set(listener.assigned)) == [T0, T1, T2], where
    consumer.commit()
    assert committed(consumer) == dict.fromkeys((T0, T1, T2), EACH), where
    with interrupter:
        at_last(consumer.close)
    assert consumer.is_closed, where
    with pytest.raises(Rejected, match="closed"):
        consumer.poll()
    return interrupter


READS = {"poll": by_poll, "iteration": by_iteration, "batches": with_batches}


@some_or_all
@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_an_exception_at_each_line_skips_no_record(read: Read, stride: int, request: pytest.FixtureRequest) -> None:
    seen = () if read is by_poll else a_run(by_poll).places
    lines = one_of_each(a_run(read).places, last=True, seen=set(seen))
    for at in by_stride(request.config, lines, stride):
        a_run(read, (at,))


@pytest.mark.parametrize("read", long_but(lambda read: read is by_poll, READS.values()), ids=READS)
def test_a_second_exception_while_the_first_is_handled(read: Read) -> None:
    choose = random.Random(53)
    steps = len(a_run(read).places)
    for _ in range(40):
        first = choose.randrange(steps)
        a_run(read, (first, first + choose.randrange(1, 40)))


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("by_opcode", [False, True], ids=["lines", "opcodes"])
@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_exceptions_at_any_step_and_in_pairs(read: Read, *, by_opcode: bool) -> None:
    choose = random.Random(SEED)
    steps = len(a_run(read, by_opcode=by_opcode).places)
    for at in choose.sample(range(steps), k=min(steps, 300)):
        a_run(read, (at,), by_opcode=by_opcode)
        a_run(read, (at, at + choose.randrange(1, 60)), by_opcode=by_opcode)


# Tasks that are cancelled.


async def let_pass(world: World, task: asyncio.Task[Any], cancel_at: Collection[int] = ()) -> int:
    """Run a task turn by turn, with cancellations at some turns; return how many turns it took."""
    turns = 0
    while not task.done():
        await asyncio.sleep(0)
        turns += 1
        if turns in cancel_at:
            task.cancel()
        elif turns % 2 == 0 and world._events:
            world._next_event()
    return turns


def a_cancelled_run(at: Collection[int], *, iterates: bool) -> int:
    """Read in one task after the other, each cancelled at these turns; nothing is skipped, and nothing comes twice."""
    world = World()
    cluster = filled(world)
    got: list[bytes | None] = []

    async def play() -> int:
        consumer = AsyncConsumer(
            world.connection(), group_id="g", auto_offset_reset="earliest", enable_auto_commit=False
        )
        consumer.subscribe(["t"])
        records = aiter(consumer)

        async def read_some() -> None:
            if iterates:
                record = await anext(records)
                got.append(record.value)
            else:
                batch = await consumer.poll(timeout_ms=50, max_records=2)
                got.extend(record.value for record in batch)
            await consumer.commit()

        most = 0
        number = 0
        while len(got) < 3 * EACH:
            assert number < 100, "it does not go on"
            # Every other task is left alone, so that there is an end.
            task = asyncio.create_task(read_some())
            most = max(most, await let_pass(world, task, () if number % 2 else at))
            number += 1
            if not task.cancelled():
                task.result()
        closing = asyncio.create_task(consumer.close())
        await let_pass(world, closing)
        closing.result()
        return most

    most = asyncio.run(play())
    assert sorted(value or b"" for value in got) == all_values(), at
    assert cluster.group.offsets == dict.fromkeys((T0, T1, T2), EACH), at
    return most


@some_or_all
@pytest.mark.parametrize("iterates", [False, True], ids=["poll", "iteration"])
def test_a_cancel_at_each_turn_skips_no_record(stride: int, request: pytest.FixtureRequest, *, iterates: bool) -> None:
    turns = range(1, a_cancelled_run((), iterates=iterates) + 1)
    for at in by_stride(request.config, turns, stride):
        a_cancelled_run((at,), iterates=iterates)
        a_cancelled_run((at, at + 1), iterates=iterates)


def test_a_wait_for_the_next_record_that_timed_out_does_not_end_the_iteration() -> None:
    world = World()
    cluster = filled(world)

    async def play() -> list[bytes | None]:
        consumer = AsyncConsumer(world.connection(), group_id="g", auto_offset_reset="earliest")
        consumer.subscribe(["t"])
        records = aiter(consumer)
        got = [(await anext(records)).value for _ in range(3 * EACH)]
        waiting = asyncio.ensure_future(anext(records))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        cluster.topic.append(0, b"late")
        got.append((await anext(records)).value)
        await consumer.close()
        return got

    assert sorted(value or b"" for value in world.run(play())) == [*all_values(), b"late"]


def test_a_consumer_whose_step_is_interrupted_on_its_own_loop_closes_and_says_so() -> None:
    """An asyncio consumer runs on the loop of its caller, where a signal handler may raise in the middle of a step."""
    world = World()
    filled(world)

    async def play() -> None:
        consumer = AsyncConsumer(world.connection(), group_id="g", auto_offset_reset="earliest")
        consumer.subscribe(["t"])
        with pytest.raises(Interruption):
            consumer._engine.ask(interrupted).result()
        for _ in range(2):
            with pytest.raises(
                Rejected, match="closed itself, because an exception came in the middle of a step"
            ) as why:
                await consumer.poll()
            assert isinstance(why.value.__cause__, Interruption)
        assert consumer.is_closed
        await consumer.close()

    asyncio.run(play())


def interrupted(_: object) -> None:
    raise Interruption
