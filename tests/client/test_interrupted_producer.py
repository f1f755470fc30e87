"""A caller of a producer is interrupted at any line: its report agrees with the log, and the producer goes on."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from coordinator_client import Abortable, OutcomeUnknown, Producer, Rejected, TransactionError
from coordinator_client.producer.producer import PreparedTransaction
from tests.client.interruptions import SEED, Interrupter, Interruption, one_of_each
from tests.client.producers import producer_in
from tests.client.world import World
from tests.harness.long_cases import by_stride, some_or_all

PARTITIONS = 2
SIZE = 3_000
"""Two records of this size do not fit into a batch, so that sends send."""


class GivenUpError(Exception):
    """The reason for which the application gives a transaction up."""


@dataclass
class Story:
    """The calls of one caller to one producer, and their results."""

    world: World
    producer: Producer
    committed: dict[bytes, bool | None] = field(default_factory=dict)
    """Outcome by the name of the transaction; None if it is not known."""
    values: dict[bytes, list[bytes]] = field(default_factory=dict)
    refusals: list[TransactionError] = field(default_factory=list)

    def begin(self, name: bytes, count: int) -> list[bytes]:
        """Return the records of a transaction."""
        self.values[name] = [name + b"%d" % each + bytes(SIZE) for each in range(count)]
        return self.values[name]

    def told(self) -> bool | None:
        """Ask for the outcome as a caller does that was interrupted, and may be so again."""
        while True:
            try:
                return self.producer.resolve_outcome()
            except Rejected:
                return False
            except OutcomeUnknown:
                return None
            except Interruption:
                continue

    def check(self, where: object) -> None:
        """Compare the log with the results that the caller has seen."""
        self.world.settle()
        there = self.world.server.visible()
        for name, committed in self.committed.items():
            found = sorted(value for value in there if value is not None and value.startswith(name))
            wanted = sorted(self.values[name])
            if committed is None:
                assert found in ([], wanted), f"{where}: {name!r} is there in part"
            else:
                assert found == (wanted if committed else []), f"{where}: {name!r} told {committed}"


Work = Callable[[Story, str], None]


def transactions(story: Story, prefix: str, count: int = 3) -> None:
    """Some transactions: sends that send and wait for room, a flush, and one that the application gives up."""
    for number in range(count):
        name = f"{prefix}{number}-".encode()
        values = story.begin(name, 3 + number % 2)
        try:
            with story.producer.transaction() as txn:
                for place, value in enumerate(values):
                    txn.send("t", value, partition=place % PARTITIONS)
                    if number == 1 and not place:
                        txn.flush()
                if number == 2:
                    raise GivenUpError
            story.committed[name] = True
        except GivenUpError:
            story.committed[name] = False
        except Interruption:
            story.committed[name] = story.told()
        except TransactionError as error:
            story.refusals.append(error)
            story.committed[name] = False


def caught_in_the_body(story: Story, prefix: str) -> None:
    """A caller that goes on in the same transaction, and sends again what it was interrupted in."""
    name = f"{prefix}0-".encode()
    values = story.begin(name, 3)
    try:
        with story.producer.transaction() as txn:
            for place, value in enumerate(values):
                try:
                    txn.send("t", value, partition=place % PARTITIONS)
                except Interruption:
                    txn.send("t", value, partition=place % PARTITIONS)
            try:
                txn.flush()
            except Interruption:
                txn.flush()
        story.committed[name] = True
    except Interruption:
        story.committed[name] = story.told()
    except TransactionError as error:
        story.refusals.append(error)
        story.committed[name] = False


def prepared(story: Story, prefix: str) -> None:
    """A transaction that an outside decision commits; undecided ones are aborted."""
    name = f"{prefix}0-".encode()
    values = story.begin(name, 3)
    decided: PreparedTransaction | None = None
    try:
        with story.producer.transaction() as txn:
            for place, value in enumerate(values):
                txn.send("t", value, partition=place % PARTITIONS)
            decided = txn.prepare()
    except (Interruption, TransactionError) as error:
        if isinstance(error, TransactionError):
            story.refusals.append(error)
    if decided is None:
        story.committed[name] = False
        return
    while True:
        try:
            decided.commit()
        except Interruption:
            continue
        break
    story.committed[name] = True


def a_run(work: Work, at: tuple[int, ...] = (), *, by_opcode: bool = False, **options: Any) -> Interrupter:
    """Do the work with exceptions at these steps and compare; another transaction shows that the producer goes on."""
    world = World()
    world.server.topics["t"] = PARTITIONS
    story = Story(world, producer_in(world, batch_bytes=4_096, buffer_bytes=8_192, **options))
    interrupter = Interrupter(at, by_opcode=by_opcode)
    with interrupter:
        work(story, "")
    where = at, interrupter.raised
    assert len(story.refusals) <= 2 * len(interrupter.raised), f"{where}: {story.refusals}"
    # A transaction whose `with` was interrupted at its very end is aborted by the second one that is begun after it.
    for attempt in range(2):
        name = f"after{attempt}0-".encode()
        transactions(story, f"after{attempt}", 1)
        if story.committed[name]:
            break
    assert story.committed[name], f"{where}: it does not go on: {story.refusals}"
    story.check(where)
    story.producer.close()
    return interrupter


WAYS: dict[str, tuple[Work, dict[str, Any]]] = {
    "in parts": (transactions, {}),
    "whole": (transactions, {"transact_bytes": 500_000}),
    "caught in the body": (caught_in_the_body, {}),
    "prepared": (prepared, {"two_phase_commit": True}),
}


@pytest.fixture(params=WAYS.values(), ids=WAYS)
def way(request: pytest.FixtureRequest) -> tuple[Work, dict[str, Any]]:
    found: tuple[Work, dict[str, Any]] = request.param
    return found


@some_or_all
def test_an_exception_at_each_line_leaves_told_what_is_true(
    way: tuple[Work, dict[str, Any]], stride: int, request: pytest.FixtureRequest
) -> None:
    work, options = way
    seen = () if way is WAYS["in parts"] else a_run(transactions).places
    lines = one_of_each(a_run(work, **options).places, seen=set(seen))
    for at in by_stride(request.config, lines, stride):
        a_run(work, (at,), **options)


def test_a_second_exception_while_the_first_is_handled(way: tuple[Work, dict[str, Any]]) -> None:
    work, options = way
    choose = random.Random(53)
    steps = len(a_run(work, **options).places)
    for _ in range(40):
        first = choose.randrange(steps)
        a_run(work, (first, first + choose.randrange(1, 60)), **options)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("by_opcode", [False, True], ids=["lines", "opcodes"])
def test_exceptions_at_any_step_and_in_pairs(way: tuple[Work, dict[str, Any]], *, by_opcode: bool) -> None:
    """The long run: steps drawn at random, lines whenever they are met and single instructions, alone and in pairs."""
    work, options = way
    choose = random.Random(SEED)
    steps = len(a_run(work, by_opcode=by_opcode, **options).places)
    for at in choose.sample(range(steps), k=min(steps, 300)):
        a_run(work, (at,), by_opcode=by_opcode, **options)
    for at in choose.sample(range(steps), k=min(steps, 300)):
        a_run(work, (at, at + choose.randrange(1, 300 if by_opcode else 80)), by_opcode=by_opcode, **options)


# Outside transactions.


def a_plain_run(at: tuple[int, ...] = (), *, by_opcode: bool = False) -> Interrupter:
    """Send with flushes in between, under exceptions at these steps. What a flush confirmed must be there, once."""
    world = World()
    world.server.topics["t"] = PARTITIONS
    producer = producer_in(world, None, batch_bytes=4_096, buffer_bytes=8_192)
    confirmed: list[bytes] = []
    sent: list[bytes] = []

    def flush() -> None:
        try:
            producer.flush()
        except Interruption:
            return
        except TransactionError:
            # Reported once, for all records sent since the last flush.
            sent.clear()
            return
        confirmed.extend(sent)
        sent.clear()

    interrupter = Interrupter(at, by_opcode=by_opcode)
    with interrupter:
        for number in range(8):
            try:
                producer.send("t", value := b"%d" % number + bytes(SIZE), partition=number % PARTITIONS)
                sent.append(value)
            except Interruption:
                continue
            if number % 3 == 2:
                flush()
    for _ in range(2):
        flush()
        producer.send("t", last := b"last" + bytes(SIZE), partition=0)
        sent.append(last)
    flush()
    world.settle()
    there = world.server.visible()
    where = at, interrupter.raised
    assert last in confirmed, f"{where}: it does not go on"
    for value in confirmed:
        assert there.count(value) == confirmed.count(value), f"{where}: {value[:9]!r} was confirmed"
    producer.close()
    return interrupter


@some_or_all
def test_an_exception_at_each_line_of_a_plain_producer_loses_nothing_that_a_flush_confirmed(
    stride: int, request: pytest.FixtureRequest
) -> None:
    lines = one_of_each(a_plain_run().places, seen=set(a_run(transactions).places))
    for at in by_stride(request.config, lines, stride):
        a_plain_run((at,))


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("by_opcode", [False, True], ids=["lines", "opcodes"])
def test_exceptions_at_any_step_of_a_plain_producer(*, by_opcode: bool) -> None:
    choose = random.Random(SEED)
    steps = len(a_plain_run(by_opcode=by_opcode).places)
    for at in choose.sample(range(steps), k=min(steps, 400)):
        a_plain_run((at,), by_opcode=by_opcode)
        a_plain_run((at, at + choose.randrange(1, 100)), by_opcode=by_opcode)


def test_a_second_transaction_is_refused_once_and_then_takes_the_place_of_the_first() -> None:
    """An end of a `with` that is interrupted before its first line leaves a transaction that looks like one in use."""
    world = World()
    world.server.topics["t"] = PARTITIONS
    producer = producer_in(world)
    first = producer.transaction().__enter__()
    first.send("t", b"first", partition=0)
    with pytest.raises(Rejected, match="a transaction is open already"):
        producer.transaction().__enter__()
    with producer.transaction() as second:
        second.send("t", b"second", partition=0)
    with pytest.raises(Abortable, match="another one was begun twice in its place"):
        first.send("t", b"more", partition=0)
    with pytest.raises(Abortable, match="another one was begun twice in its place"):
        first.__exit__(None, None, None)
    assert world.server.visible() == [b"second"]
