"""A caller of a share consumer is interrupted at any line: no record is accepted that was not returned, and none is
lost."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection

import pytest

from coordinator_client import AcknowledgementFailed, AsyncShareConsumer, Rejected, ShareConsumer
from coordinator_client.share.acquired import ShareRecord
from tests.client.fake_share import ShareCluster
from tests.client.interruptions import SEED, Interrupter, Interruption, one_of_each
from tests.client.test_interrupted_consumer import WorldApart, at_last, let_pass
from tests.client.world import World
from tests.harness.long_cases import by_stride, long_but, some_or_all

EACH = 6
"""Records in each of two partitions."""


def filled(world: World) -> ShareCluster:
    cluster = ShareCluster(world)
    for number in range(EACH):
        for partition in range(2):
            cluster.group.append(partition, b"%d-%d" % (partition, number))
    return cluster


def places(records: Collection[ShareRecord]) -> list[tuple[int, int]]:
    return [(record.partition, record.offset) for record in records]


def all_places() -> list[tuple[int, int]]:
    return [(partition, offset) for partition in range(2) for offset in range(EACH)]


Read = Callable[[ShareConsumer, list[ShareRecord]], None]
"""Polls under interruptions; what a poll returned is appended at once."""


def returned(consumer: ShareConsumer) -> list[ShareRecord]:
    """What a poll returned. An exception in an iteration over it would be none in the poll."""
    return consumer.poll(timeout_ms=200)._records


def implicit(consumer: ShareConsumer, got: list[ShareRecord]) -> None:
    for number in range(8):
        try:
            got.extend(returned(consumer))
            if number % 3 == 2:
                consumer.commit()
        except Interruption:
            continue


def explicit(consumer: ShareConsumer, got: list[ShareRecord]) -> None:
    held: list[ShareRecord] = []
    for number in range(10):
        try:
            if held:
                consumer.accept(held)
            held = []
            held = returned(consumer)
            got.extend(held)
            if number % 4 == 3:
                consumer.renew(held)
                consumer.commit()
        except Interruption:
            held = [record for record in got if is_held(consumer, record)]


def is_held(consumer: ShareConsumer, record: ShareRecord) -> bool:
    found = consumer._core.acquisitions.get(record.acquisition)
    return found is not None and record.offset in found.open


def a_run(read: Read, at: tuple[int, ...] = (), *, by_opcode: bool = False) -> Interrupter:
    """Read under exceptions at these steps, then to the end; each record is returned and accepted, once."""
    cluster = filled(WorldApart())
    consumer = ShareConsumer(cluster.world.connection(), group_id="g", explicit=read is explicit, max_poll_records=3)
    got: list[ShareRecord] = []
    interrupter = Interrupter(at, by_opcode=by_opcode)
    with interrupter:
        at_last(lambda: consumer.subscribe(["t"]))
        read(consumer, got)
    where = at, interrupter.raised
    for _ in range(30):
        if len(got) >= 2 * EACH:
            break
        consumer.accept([record for record in got if is_held(consumer, record)])
        got += consumer.poll(timeout_ms=200)
    assert sorted(places(got)) == all_places(), where
    accepted = [(partition, offset) for partition, offset, how in cluster.group.acks if how == 1]
    assert set(accepted) <= set(places(got)), where
    consumer.accept([record for record in got if is_held(consumer, record)])
    with interrupter:
        at_last(consumer.close)
    assert consumer.is_closed, where
    accepted = [(partition, offset) for partition, offset, how in cluster.group.acks if how == 1]
    # An interrupted close may have been closed already, and then what was left is released.
    left = [place for place in all_places() if place not in accepted]
    released = [(n, offset) for n in range(2) for offset in cluster.group.partitions[n].in_state("available")]
    held = [(n, offset) for n in range(2) for offset in cluster.group.partitions[n].in_state("held")]
    assert sorted([*released, *held]) == left, where
    assert len(accepted) == len(set(accepted)), where
    with pytest.raises(Rejected, match="closed"):
        consumer.poll()
    return interrupter


READS = {"implicit": implicit, "explicit": explicit}


@some_or_all
@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_an_exception_at_each_line_loses_no_record(read: Read, stride: int, request: pytest.FixtureRequest) -> None:
    seen = () if read is implicit else a_run(implicit).places
    lines = one_of_each(a_run(read).places, last=True, seen=set(seen))
    for at in by_stride(request.config, lines, stride):
        a_run(read, (at,))


@pytest.mark.parametrize("read", long_but(lambda read: read is implicit, READS.values()), ids=READS)
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


def a_cancelled_run(at: Collection[int]) -> int:
    """Poll and commit in one task after the other, each cancelled at these turns; each record comes once, and is
    accepted."""
    world = World()
    cluster = filled(world)
    got: list[ShareRecord] = []

    async def play() -> int:
        consumer = AsyncShareConsumer(world.connection(), group_id="g", max_poll_records=2)
        consumer.subscribe(["t"])

        async def read_some() -> None:
            got.extend(await consumer.poll(timeout_ms=50))
            results = await consumer.commit()
            assert not any(results.values())

        most = 0
        number = 0
        while len(got) < 2 * EACH:
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
    assert sorted(places(got)) == all_places(), at
    assert [cluster.group.state(number) for number in range(2)] == ["k" * EACH] * 2, at
    return most


@some_or_all
def test_a_cancel_at_each_turn_loses_no_record(stride: int, request: pytest.FixtureRequest) -> None:
    turns = range(1, a_cancelled_run(()) + 1)
    for at in by_stride(request.config, turns, stride):
        a_cancelled_run((at,))
        a_cancelled_run((at, at + 1))


def test_an_asyncio_share_consumer_does_what_the_blocking_one_does() -> None:
    world = World()
    cluster = filled(world)
    told: list[object] = []

    async def callback(offsets: object, error: AcknowledgementFailed | None) -> None:
        await asyncio.sleep(0)
        told.append(error and error.offsets)

    async def play() -> None:
        async with AsyncShareConsumer(
            world.connection(), group_id="g", explicit=True, max_poll_records=100
        ) as consumer:
            consumer.subscribe(["t"])
            consumer.set_acknowledgement_commit_callback(callback)
            batch = await consumer.poll()
            assert len(batch) == 2 * EACH
            with pytest.raises(Rejected, match="12 records"):
                await consumer.poll()
            consumer.accept(batch)
            consumer.reject(batch[0])
            cluster.group.expire(partition=1)
            again = await consumer.poll()
            assert {record.delivery_count for record in again} == {2}
            consumer.release(again)
            assert set((await consumer.commit()).values()) == {None}
        assert consumer.is_closed

    world.run(play())
    assert told == [None, {(("t"), 1): tuple(range(EACH))}]
    assert cluster.group.state(0) == "r" + "k" * (EACH - 1)
