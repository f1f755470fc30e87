"""Leftovers of an interrupted caller of a producer, case by case, and their effect on the next calls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from coordinator_api.v1 import group_pb2 as group
from coordinator_api.v1 import transaction_pb2 as txn_api
from coordinator_client import (
    Abortable,
    AsyncProducer,
    OutcomeUnknown,
    Producer,
    Rejected,
    TopicPartition,
    TransactionError,
)
from coordinator_client.errors import Loss
from coordinator_client.producer import shell
from coordinator_client.producer.shell import STEP
from coordinator_client.values import GroupMetadata, OffsetAndMetadata, TransactionOffsets
from coordinator_protocol.errors import ErrorCode
from coordinator_protocol.methods import Method
from tests.client.fake_server import refuse
from tests.client.interruptions import Interrupter, Interruption, one_of_each
from tests.client.producers import commit, produce_refused, producer_in
from tests.client.world import Fault, World

SIZE = 3_000
"""Two records of this size do not fit into a batch, so that sends send."""

Run = Callable[[tuple[int, ...]], Interrupter]


@pytest.fixture
def world() -> World:
    return a_world()


def a_world() -> World:
    world = World()
    world.server.topics["t"] = 2
    return world


def small(world: World, **options: Any) -> Producer:
    return producer_in(world, batch_bytes=4_096, buffer_bytes=8_192, **options)


def at_each_line(run: Run) -> None:
    for at in range(len(run(()).places)):
        run((at,))


def begun(producer: Producer, *values: bytes) -> Any:
    """Open a transaction by hand, with some records."""
    txn = producer.transaction().__enter__()
    for place, value in enumerate(values):
        txn.send("t", value, partition=place % 2)
    return txn


def busy(world: World, method: Method) -> None:
    """Let every answer from now on be that the server cannot do it now."""
    reply = {Method.TRANSACT: txn_api.TransactResponse, Method.END_TXN: txn_api.EndTxnResponse}[method]
    world.answer(method, *[refuse(reply(), method, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS) for _ in range(400)])


def outcome_of(producer: Producer) -> bool | None:
    try:
        return producer.resolve_outcome()
    except OutcomeUnknown:
        return None
    except Rejected:
        return False


# Handles.


def test_a_begin_that_was_interrupted_is_no_reason_to_refuse_the_next() -> None:
    def run(at: tuple[int, ...]) -> Interrupter:
        producer = small(a_world())
        commit(producer, b"a")
        interrupter, is_entered = Interrupter(at), False
        txn = producer.transaction()
        try:
            with interrupter:
                txn.__enter__()
            is_entered = True
        except Interruption:
            pass
        if not is_entered:
            commit(producer, b"b")
        return interrupter

    at_each_line(run)


class LateDict(dict[str, Any]):
    """A dictionary in which an exception comes right behind the store, once."""

    is_armed = False

    def setdefault(self, name: str, what: Any = None) -> Any:
        result = super().setdefault(name, what)
        if LateDict.is_armed:
            LateDict.is_armed = False
            raise Interruption
        return result


def test_what_was_noted_as_given_by_an_interrupted_return_was_not_given(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shell, "new_given", LateDict)
    producer = small(world)
    commit(producer, b"a")
    LateDict.is_armed = True
    with pytest.raises(Interruption):
        producer.transaction().__enter__()
    txn = begun(producer, b"b")
    LateDict.is_armed = True
    with pytest.raises(Interruption):
        txn.__exit__(None, None, None)
    assert producer.resolve_outcome()


@pytest.mark.parametrize("is_kept", [False, True], ids=["prepared here", "recovered"])
def test_a_prepared_transaction_is_no_abandoned_one_however_often_another_is_begun(
    world: World, *, is_kept: bool
) -> None:
    producer = small(world, two_phase_commit=True)
    prepared = begun(producer, b"x").prepare()
    if is_kept:
        producer = small(world, two_phase_commit=True)
        found = producer.recover()
        assert found is not None
        prepared = found
    for _ in range(3):
        with pytest.raises(Rejected, match="a transaction is prepared; commit it or abort it first"):
            producer.transaction().__enter__()
    prepared.commit()
    assert world.server.visible() == [b"x"]


def test_an_interrupted_recovery_names_the_transaction_the_next_time() -> None:
    def run(at: tuple[int, ...]) -> Interrupter:
        world = a_world()
        begun(small(world, two_phase_commit=True), b"x").prepare()
        producer = small(world, two_phase_commit=True)
        interrupter = Interrupter(at)
        try:
            with interrupter:
                kept = producer.recover()
        except Interruption:
            kept = producer.recover()
        assert kept is not None, interrupter.raised
        kept.commit()
        assert world.server.visible() == [b"x"]
        return interrupter

    at_each_line(run)


def test_a_preparation_that_was_interrupted_is_aborted_by_the_exit_or_the_next_transaction() -> None:
    def run(at: tuple[int, ...]) -> Interrupter:
        world = a_world()
        producer = small(world, two_phase_commit=True)
        txn = begun(producer, b"x")
        interrupter = Interrupter(at)
        try:
            with interrupter:
                txn.prepare()
        except Interruption as error:
            txn.__exit__(type(error), error, None)
            commit(producer, b"y")
            assert world.server.visible() == [b"y"], interrupter.raised
        return interrupter

    at_each_line(run)


def test_a_preparation_that_was_interrupted_can_be_aborted_by_hand() -> None:
    def run(at: tuple[int, ...]) -> Interrupter:
        world = a_world()
        producer = small(world, two_phase_commit=True)
        txn = begun(producer, *[b"%d" % number + bytes(SIZE) for number in range(3)])
        interrupter = Interrupter(at)
        try:
            with interrupter:
                txn.prepare()
        except Interruption:
            try:
                txn.abort()
            except Rejected:
                return interrupter
            assert world.server.ids["p"].state != "Ongoing", interrupter.raised
        return interrupter

    for at in one_of_each(run(()).places, last=True):
        run((at,))


# Outcomes.


@pytest.mark.parametrize(
    "transact_bytes",
    [pytest.param(0, marks=[pytest.mark.slow, pytest.mark.long]), 500_000],
    ids=["in parts", "whole"],
)
def test_a_commit_that_was_carried_out_is_never_told_as_aborted(transact_bytes: int) -> None:
    """Even where the server that is asked once more cannot say anything until the deadline."""
    method = Method.TRANSACT if transact_bytes else Method.END_TXN

    def run(at: tuple[int, ...], *, waits: bool = False) -> Interrupter:
        world = a_world()
        producer = small(world, delivery_timeout_ms=5_000, transact_bytes=transact_bytes)
        txn = begun(producer, b"x")
        if waits:
            world.interrupts[method] = KeyboardInterrupt()
        interrupter = Interrupter(at)
        try:
            with interrupter:
                txn.__exit__(None, None, None)
        except (Interruption, KeyboardInterrupt):
            world.interrupts.clear()
            world._pending_interrupt = None
            world.settle()
            busy(world, method)
            told = outcome_of(producer)
            assert told is None or told == bool(world.server.visible()), interrupter.raised
        return interrupter

    at_each_line(run)
    at_each_line(lambda at: run(at, waits=True))


def test_a_question_that_was_interrupted_is_answered_the_next_time() -> None:
    def run(at: tuple[int, ...]) -> Interrupter:
        world = a_world()
        producer = small(world, delivery_timeout_ms=1_000)
        txn = begun(producer, b"x")
        world.fault(Method.END_TXN, *[Fault.LOST_REPLY] * 100)
        with pytest.raises(OutcomeUnknown):
            txn.__exit__(None, None, None)
        world.faults.clear()
        with pytest.raises(OutcomeUnknown):
            producer.transaction().__enter__()
        interrupter = Interrupter(at)
        try:
            with interrupter:
                assert producer.resolve_outcome()
        except Interruption:
            assert producer.resolve_outcome(), interrupter.raised
        return interrupter

    for at in one_of_each(run(()).places):
        run((at,))


# Sends and repairs.


def interrupted_send(world: World, producer: Producer) -> Any:
    """Open a transaction in which a send was interrupted while it waited."""
    world.interrupts[Method.PRODUCE] = KeyboardInterrupt()
    txn = producer.transaction().__enter__()
    with pytest.raises(KeyboardInterrupt):
        txn.send("t", b"x" + bytes(2 * SIZE), partition=0)
    return txn


class Offsets:
    """A consumer, as far as a transaction needs one."""

    def transaction_offsets(self, _batch: object) -> TransactionOffsets:
        place = TopicPartition("t", 0)
        return TransactionOffsets(GroupMetadata(group_id="g"), {place: OffsetAndMetadata(1)}, {place: b""})


def test_nothing_that_follows_an_interrupted_send_makes_its_transaction_whole(world: World) -> None:
    world.server.handle(Method.TXN_OFFSET_COMMIT, lambda _: group.TxnOffsetCommitResponse())

    def send(txn: Any) -> None:
        txn.send("t", b"y", partition=1)

    for then in (send, lambda txn: txn.commit_offsets(Offsets(), None), lambda txn: txn.flush(), lambda _txn: None):
        producer = producer_in(world, batch_bytes=4_096, buffer_bytes=4_096)
        txn = interrupted_send(world, producer)
        with suppress(Abortable):
            then(txn)
        with pytest.raises(Abortable, match="a call in the transaction was interrupted"):
            txn.__exit__(None, None, None)
        assert world.server.visible() == []


def test_a_send_that_was_interrupted_in_a_later_wait_makes_its_transaction_abort_only(world: World) -> None:
    producer = producer_in(world, batch_bytes=4_096, buffer_bytes=4_096)
    world.answer(Method.PRODUCE, produce_refused(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    attempts = 0

    def weather(method: Method) -> Fault:
        nonlocal attempts
        attempts += method is Method.PRODUCE
        if method is Method.PRODUCE and attempts == 2:
            world._pending_interrupt = KeyboardInterrupt()
        return Fault.NONE

    world.weather = weather
    txn = producer.transaction().__enter__()
    with pytest.raises(KeyboardInterrupt):
        txn.send("t", b"x" + bytes(2 * SIZE), partition=0)
    assert attempts == 2
    with pytest.raises(Abortable):
        txn.__exit__(None, None, None)
    assert world.server.visible() == []


def test_a_repair_that_is_interrupted_is_done_by_the_next_call() -> None:
    def run(at: tuple[int, ...]) -> Interrupter:
        world = a_world()
        producer = small(world)
        txn = begun(producer, *[b"%d" % number + bytes(SIZE) for number in range(3)])
        producer._step = STEP
        interrupter = Interrupter(at)
        try:
            with interrupter:
                txn.flush()
        except (Interruption, Abortable):
            pass
        with pytest.raises(Abortable):
            txn.__exit__(None, None, None)
        assert world.server.visible() == [], interrupter.raised
        return interrupter

    at_each_line(run)


def test_a_late_answer_to_a_call_before_a_repair_is_none_of_a_later_call(world: World) -> None:
    producer = small(world)
    world.fault(Method.PRODUCE, Fault.SILENT)
    txn = begun(producer, b"0" + bytes(SIZE), b"", b"1" + bytes(SIZE))
    assert len(world.late) == 1
    producer._step = STEP
    txn.abort()
    for _ in range(4):
        world.fault(Method.PRODUCE, Fault.SILENT)
        with producer.transaction() as later:
            for number in range(2):
                later.send("t", b"%d" % number + bytes(SIZE), partition=0)
            world.late[0](produce_refused(ErrorCode.INVALID_RECORD))
            later.flush()


def test_a_plain_producer_that_is_repaired_goes_on_under_a_new_identity(world: World) -> None:
    producer = producer_in(world, None)
    producer.send("t", b"a", partition=0)
    producer.flush()
    before = producer.identity
    producer._step = STEP
    with pytest.raises(OutcomeUnknown, match="records sent since the last flush may be in the log or not"):
        producer.flush()
    producer.send("t", b"b", partition=0)
    producer.flush()
    assert producer.identity != before
    assert world.server.visible() == [b"a", b"b"]


def test_a_failure_that_an_interrupted_flush_did_not_tell_is_told_once() -> None:
    def run(at: tuple[int, ...]) -> Interrupter:
        world = a_world()
        producer = producer_in(world, None)
        producer.send("t", b"x", partition=0)
        world.answer(Method.PRODUCE, *[produce_refused(ErrorCode.INVALID_RECORD) for _ in range(9)])
        interrupter, told = Interrupter(at), 0
        for number in range(3):
            try:
                if number:
                    producer.flush()
                else:
                    with interrupter:
                        producer.flush()
            except Interruption:
                pass
            except TransactionError:
                told += 1
        assert told == 1, interrupter.raised
        return interrupter

    at_each_line(run)


def test_a_flush_after_an_interrupted_one_does_not_wait_for_the_answer_that_was_given_up(world: World) -> None:
    producer = producer_in(world, None)
    producer.send("t", b"x", partition=0)
    producer.init()
    world.interrupts[Method.PRODUCE] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        producer.flush()
    began_ms = world.now_ms
    producer.flush()
    assert world.now_ms - began_ms < 3_000
    assert world.server.visible() == [b"x"]


# Tasks beside each other.


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def until_done(world: World, task: asyncio.Task[Any]) -> None:
    """Let time pass until a task is done, or nothing more can happen."""
    for _ in range(2_000):
        await turns()
        if task.done():
            return
        if world._events:
            world._next_event()


def async_producer(world: World, transactional_id: str | None = "p", **options: Any) -> AsyncProducer:
    return AsyncProducer(
        world.connection(), transactional_id=transactional_id, batch_bytes=4_096, buffer_bytes=8_192, **options
    )


async def filled(world: World, producer: AsyncProducer) -> Any:
    """Open a transaction that holds as much as the buffer does, while the server is silent."""
    txn = await producer.transaction().__aenter__()
    world.fault(Method.PRODUCE, *[Fault.SILENT] * 2)
    for number in range(2):
        await txn.send("t", b"%d" % number + bytes(SIZE), partition=number)
    return txn


@pytest.mark.parametrize("sends_again", [False, True])
def test_a_cancelled_send_makes_its_transaction_abort_only(world: World, *, sends_again: bool) -> None:
    async def play() -> None:
        producer = async_producer(world, transact_bytes=0)
        txn = await filled(world, producer)
        task = asyncio.create_task(txn.send("t", b"2" + bytes(SIZE), partition=0))
        await turns()
        assert not task.done()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        if sends_again:
            with pytest.raises(Abortable):
                await txn.send("t", b"2" + bytes(SIZE), partition=0)
        for answer in world.late:
            answer(Loss("UNAVAILABLE", "reset"))
        with pytest.raises(Abortable):
            await txn.__aexit__(None, None, None)
        await producer.close()

    world.run(play())
    assert world.server.visible() == []


@pytest.mark.parametrize("beside", ["send", "flush", "commit"])
def test_a_cancelled_send_leaves_no_other_task_waiting(world: World, beside: str) -> None:
    async def play() -> None:
        producer = async_producer(world, transact_bytes=0)
        txn = await filled(world, producer)
        cancelled = asyncio.create_task(txn.send("t", b"a" + bytes(SIZE), partition=0))
        await turns()
        calls = {
            "send": lambda: txn.send("t", b"b" + bytes(SIZE), partition=1),
            "flush": txn.flush,
            "commit": lambda: txn.__aexit__(None, None, None),
        }
        other = asyncio.create_task(calls[beside]())
        await turns()
        assert not cancelled.done()
        assert not other.done()
        cancelled.cancel()
        await until_done(world, other)
        assert other.done(), "it waits for ever"
        if beside != "send":
            assert isinstance(other.exception(), Abortable)

    world.run(play())
    assert world.server.visible() == []


def test_a_send_beside_the_preparation_of_another_task_is_refused_or_kept(world: World) -> None:
    async def play() -> list[bytes]:
        producer = async_producer(world, transact_bytes=0, two_phase_commit=True)
        txn = await producer.transaction().__aenter__()
        await txn.send("t", b"a", partition=0)
        preparing = asyncio.create_task(txn.prepare())
        await turns(3)
        sent = [b"a"]
        try:
            await txn.send("t", b"b", partition=1)
            sent.append(b"b")
        except Rejected:
            pass
        await (await preparing).commit()
        await producer.close()
        return sent

    sent = world.run(play())
    assert sorted(value or b"" for value in world.server.visible()) == sent


def test_a_close_without_patience_ends_what_other_tasks_wait_for(world: World) -> None:
    async def play() -> None:
        producer = async_producer(world, None)
        await producer.init()
        world.weather = lambda method: Fault.LOST_REQUEST if method is Method.PRODUCE else Fault.NONE
        for number in range(2):
            await producer.send("t", b"%d" % number + bytes(SIZE), partition=number)
        task = asyncio.create_task(producer.send("t", b"2" + bytes(SIZE), partition=0))
        await turns()
        while len(world.requests(Method.PRODUCE)) < 12 or any(producer._calls):
            world._next_event()
        await turns()
        assert not task.done()
        await producer.__aexit__(KeyboardInterrupt, KeyboardInterrupt(), None)
        await turns()
        assert task.done()

    world.run(play())
