"""A caller of a consumer is interrupted at any line: the next polls return what the interrupted one did not."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable
from typing import TypeVar

import pytest

from coordinator_client import Consumer, RebalanceListener, Rejected, TopicPartition
from coordinator_client.reader import ReadRecord
from tests.client.consumers import T0, T1, T2, Room
from tests.client.interruptions import Interrupter, Interruption, one_of_each
from tests.client.world import World

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


def filled(world: World) -> Room:
    room = Room(world)
    for number in range(EACH):
        for partition in range(3):
            room.topic.append(partition, b"%d-%d" % (partition, number))
    room.group.give(0, 1, 2)
    return room


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
    room = filled(WorldApart())
    listener = Listener()
    consumer = room.consumer(enable_auto_commit=False)
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
    assert sorted(set(listener.assigned)) == [T0, T1, T2], where
    consumer.commit()
    assert committed(consumer) == dict.fromkeys((T0, T1, T2), EACH), where
    with interrupter:
        at_last(consumer.close)
    assert consumer.is_closed, where
    with pytest.raises(Rejected, match="closed"):
        consumer.poll()
    return interrupter


READS = {"poll": by_poll, "iteration": by_iteration, "batches": with_batches}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_an_exception_at_each_line_skips_no_record(read: Read) -> None:
    for at in one_of_each(a_run(read).places, last=True):
        a_run(read, (at,))


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_a_second_exception_while_the_first_is_handled(read: Read) -> None:
    choose = random.Random(53)
    steps = len(a_run(read).places)
    for _ in range(40):
        first = choose.randrange(steps)
        a_run(read, (first, first + choose.randrange(1, 40)))


@pytest.mark.slow
@pytest.mark.parametrize("by_opcode", [False, True], ids=["lines", "opcodes"])
@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_exceptions_at_any_step_and_in_pairs(read: Read, *, by_opcode: bool) -> None:
    choose = random.Random()
    steps = len(a_run(read, by_opcode=by_opcode).places)
    for at in choose.sample(range(steps), k=min(steps, 300)):
        a_run(read, (at,), by_opcode=by_opcode)
        a_run(read, (at, at + choose.randrange(1, 60)), by_opcode=by_opcode)
