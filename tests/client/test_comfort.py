"""Comfort of producers: begin and commit without `with`, repeated work, results of sends, reprs and messages."""

# Under test is the exit of a `with`, so the block that raises has the length of a transaction.
# ruff: noqa: PT012

from __future__ import annotations

import datetime
import gc
import platform
import threading
import warnings
from collections.abc import Callable
from typing import Any

import pytest

from coordinator_client import (
    Abortable,
    AsyncProducer,
    Consumer,
    Misconfigured,
    OutcomeUnknown,
    Producer,
    Rejected,
    Transaction,
    loops,
    stable_id,
)
from coordinator_client.producer.async_producer import AsyncTransaction
from coordinator_client.producer.dropped import DROPPED
from coordinator_protocol.errors import ErrorCode
from coordinator_protocol.methods import Method
from tests.client.producers import commit, ended, produce_refused, producer_in
from tests.client.world import Fault, World
from tests.harness.patience import DEADLINE_SECONDS

# Begin, commit, abort.


def test_a_transaction_is_begun_and_committed_without_with(world: World) -> None:
    producer = producer_in(world)
    txn = producer.begin()
    txn.send("t", b"a", partition=0)
    assert txn.commit() == txn.csn == 1
    with pytest.raises(Rejected, match="the transaction is over"):
        txn.commit()
    producer.begin().abort()
    with producer.begin() as txn:
        txn.send("t", b"b", partition=0)
    assert world.server.visible() == [b"a", b"b"]


def test_a_commit_within_with_leaves_nothing_to_its_end(world: World) -> None:
    producer = producer_in(world)
    with pytest.raises(KeyError), producer.transaction() as txn:
        txn.send("t", b"a", partition=0)
        txn.commit()
        raise KeyError("too late")
    assert ended(world) == [True]


def test_the_asyncio_one_is_begun_and_committed_as_well(world: World) -> None:
    async def use() -> None:
        producer = AsyncProducer(world.connection(), transactional_id="p")
        txn = await producer.begin()
        await txn.send("t", b"a", partition=0)
        assert await txn.commit() == 1
        await (await producer.begin()).abort()
        async with await producer.begin() as txn:
            await txn.send("t", b"b", partition=0)

    world.run(use())
    assert world.server.visible() == [b"a", b"b"]


# Repeated work.


def test_work_is_repeated_while_its_transaction_is_rolled_back(world: World) -> None:
    producer, seen = producer_in(world), []
    world.answer(Method.PRODUCE, produce_refused(ErrorCode.TRANSACTION_ABORTABLE))

    def work(txn: Transaction) -> int:
        txn.send("t", b"%d" % len(seen), partition=0)
        seen.append(txn)
        return len(seen)

    assert producer.run(work) == 2
    assert world.server.visible() == [b"1"]
    assert ended(world) == [False, True]


def test_the_last_failure_of_repeated_work_is_raised(world: World) -> None:
    producer = producer_in(world)
    for _ in range(2):
        world.answer(Method.PRODUCE, produce_refused(ErrorCode.TRANSACTION_ABORTABLE))
    with pytest.raises(Abortable):
        producer.run(lambda txn: txn.send("t", b"a", partition=0), attempts=2)
    with pytest.raises(ValueError, match="attempts is 0"):
        producer.run(lambda txn: None, attempts=0)


def test_an_error_of_the_work_is_not_repeated(world: World) -> None:
    producer = producer_in(world)

    def work(txn: Transaction) -> None:
        txn.send("t", b"a", partition=0)
        txn.flush()
        raise KeyError("of the application")

    with pytest.raises(KeyError):
        producer.run(work)
    assert ended(world) == [False]


def test_the_outcome_of_a_lost_commit_is_asked_for(world: World) -> None:
    producer = producer_in(world, delivery_timeout_ms=1_000)
    producer.init()
    world.weather = lambda method: Fault.LOST_REPLY if method is Method.END_TXN and world.now_ms < 800 else Fault.NONE
    assert producer.run(lambda txn: txn.send("t", b"a", partition=0)).partition == 0
    assert world.server.visible() == [b"a"]


def test_repeated_work_ends_while_the_outcome_is_unknown(world: World) -> None:
    producer = producer_in(world, delivery_timeout_ms=1_000)
    producer.init()
    world.weather = lambda method: Fault.LOST_REPLY if method is Method.END_TXN else Fault.NONE
    with pytest.raises(OutcomeUnknown):
        producer.run(lambda txn: txn.send("t", b"a", partition=0))


def test_asyncio_work_is_repeated(world: World) -> None:
    async def use() -> str:
        producer, seen = AsyncProducer(world.connection(), transactional_id="p", transact_bytes=0), []
        world.answer(Method.PRODUCE, produce_refused(ErrorCode.TRANSACTION_ABORTABLE))

        async def work(txn: AsyncTransaction) -> str:
            seen.append(txn)
            await txn.send("t", b"a", partition=0)
            return f"attempt {len(seen)}"

        return await producer.run(work)

    assert world.run(use()) == "attempt 2"
    assert world.server.visible() == [b"a"]


# Results of sends.


def test_a_send_returns_the_place_of_its_record(world: World) -> None:
    producer = producer_in(world)
    commit(producer, b"before")
    with producer.transaction() as txn:
        sent = [txn.send("t", b"%d" % number, partition=0) for number in range(3)]
        other = txn.send("t", b"x", key=b"k")
        assert [each.offset for each in sent] == [None] * 3
    assert [(each.topic, each.partition) for each in sent] == [("t", 0)] * 3
    first = sent[0].offset
    assert first is not None
    assert [each.offset for each in sent] == [first, first + 1, first + 2]
    assert other.offset is not None
    assert repr(sent[0]) == f"SentRecord(topic='t', partition=0, offset={first})"


def test_a_record_that_was_refused_has_no_offset(world: World) -> None:
    producer = producer_in(world)
    world.answer(Method.PRODUCE, produce_refused(ErrorCode.TRANSACTION_ABORTABLE))
    with pytest.raises(Abortable), producer.transaction() as txn:
        sent = txn.send("t", b"a", partition=0)
    assert sent.offset is None


def test_records_of_several_batches_have_the_offsets_of_theirs(world: World) -> None:
    producer = producer_in(world, None, batch_bytes=4_096)
    sent = [producer.send("t", bytes(1_000), partition=0) for _ in range(10)]
    producer.flush()
    assert [each.offset for each in sent] == list(range(10))


# Forgotten awaits, and forgotten producers.


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
def test_a_send_that_was_not_awaited_is_noticed_at_the_commit(world: World) -> None:
    async def use() -> None:
        producer = AsyncProducer(world.connection(), transactional_id="p")
        with pytest.raises(Rejected, match=r"a send was not awaited.*write `await txn\.send"):
            async with producer.transaction() as txn:
                await txn.send("t", b"a", partition=0)
                txn.send("t", b"b", partition=0)
        async with producer.transaction() as txn:
            await txn.send("t", b"c", partition=0)
        del txn
        gc.collect()

    world.run(use())
    assert world.server.visible() == [b"c"]


# Dropped producers.


def left_unsent(world: World, transactional_id: str | None) -> Producer:
    producer = producer_in(world, transactional_id)
    producer.init()
    if transactional_id is None:
        producer.send("t", b"a", partition=0)
    else:
        producer.begin().send("t", b"a", partition=0)
    return producer


@pytest.mark.parametrize("transactional_id", ["p", None])
def test_a_producer_dropped_with_unsent_records_warns_at_the_next_look(
    world: World, caplog: pytest.LogCaptureFixture, transactional_id: str | None
) -> None:
    lost = left_unsent(world, transactional_id)
    DROPPED.look()
    with warnings.catch_warnings(record=True) as none:
        del lost
        gc.collect()
    assert (none, caplog.text) == ([], ""), "the collector runs no code of the SDK"
    with pytest.warns(ResourceWarning, match="was dropped with 1 record not sent: close it, or use it in a `with`"):
        producer_in(world, "another")
    assert [record.name for record in caplog.records] == ["coordinator_client.dropped"]
    with warnings.catch_warnings(record=True) as again:
        DROPPED.look()
    assert again == []


def test_a_dropped_producer_with_an_open_transaction_warns(world: World) -> None:
    producer = producer_in(world)
    producer.begin().flush()
    del producer
    gc.collect()
    with pytest.warns(ResourceWarning, match=r"Producer\('.*', transactional_id='p'\) was dropped with an open tr"):
        DROPPED.look()


class LoopOfTheApplication:
    """A loop that keeps what is due later."""

    def __init__(self) -> None:
        self.asyncio_loop = self
        self.due: list[Callable[[], None]] = []

    def call_after(self, _wait_ms: int, call: Callable[[], None]) -> None:
        self.due.append(call)


def test_a_dropped_producer_of_asyncio_warns_on_the_loop_of_the_application(world: World) -> None:
    async def use() -> None:
        producer = AsyncProducer(world.connection(), transactional_id="p")
        await (await producer.begin()).send("t", b"a", partition=0)

    world.run(use())
    # The timer of the last request is due, and the world forgets its calls, as a transport does.
    while world._events:
        world._next_event()
    world.calls.clear()
    gc.collect()
    loop: Any = LoopOfTheApplication()
    DROPPED.look_on(loop)
    DROPPED.look_on(loop)
    (look,) = loop.due
    with pytest.warns(ResourceWarning, match="AsyncProducer.* was dropped with 1 record not sent"):
        look()
    assert len(loop.due) == 1, "no producer is left to look at"
    producer = producer_in(world, "q")
    DROPPED.look_on(loop)
    loop.due.pop()()
    assert len(loop.due) == 2
    producer.close()


def test_the_loop_thread_of_blocking_clients_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    assert DROPPED.look in loops.LOOKS
    looked = threading.Event()
    monkeypatch.setattr(loops, "LOOKS", [looked.set])
    loop = loops.BackgroundLoop()
    loop.call_soon(loop._look)
    assert looked.wait(DEADLINE_SECONDS)
    loop.stop()
    loop.close()


def test_a_producer_that_lost_nothing_is_dropped_in_silence(world: World, caplog: pytest.LogCaptureFixture) -> None:
    committed, closed, plain = producer_in(world), left_unsent(world, "q"), left_unsent(world, None)
    commit(committed, b"a")
    closed.close()
    plain.flush()
    del committed, closed, plain
    gc.collect()
    DROPPED.look()
    DROPPED.look_at_exit()
    assert caplog.text == ""


def test_the_end_of_the_program_warns_of_producers_that_are_still_there(world: World) -> None:
    producer = left_unsent(world, "p")
    with pytest.warns(ResourceWarning, match="was not closed at the end of the program with 1 record not sent"):
        DROPPED.look_at_exit()
    producer.close()


def test_a_fork_does_not_warn_of_what_its_parent_sends(world: World, caplog: pytest.LogCaptureFixture) -> None:
    used, unused = left_unsent(world, "p"), producer_in(world, "q")
    DROPPED.begin_in_child()
    DROPPED.look_at_exit()
    assert caplog.text == ""
    del used
    unused.begin().send("t", b"a", partition=0)
    DROPPED.watch(unused, unused._core, "the child's")
    with pytest.warns(ResourceWarning, match="the child's was not closed"):
        DROPPED.look_at_exit()


def test_a_warning_that_is_an_error_is_only_logged(world: World, caplog: pytest.LogCaptureFixture) -> None:
    lost = left_unsent(world, "p")
    del lost
    gc.collect()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        DROPPED.look()
    assert "was dropped with 1 record not sent" in caplog.text


# Words.


def test_clients_say_what_they_are(world: World) -> None:
    producer = producer_in(world)
    assert repr(producer) == "Producer('fake:1', transactional_id='p', status=UNINITIALISED)"
    with producer.transaction() as txn:
        assert repr(txn).startswith("Transaction(open) of Producer(")
        txn.send("t", b"a", partition=0)
    assert "committed, csn=1" in repr(txn)
    assert repr(Producer("h:1")) == "Producer('h:1', status=UNINITIALISED)"
    assert repr(world.connection()) == "Connection('fake:1')"
    assert repr(Consumer("h:1", group_id="g")) == "Consumer('h:1', group_id='g')"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"headers": {"a": b"b"}}, r"headers must be pairs.*not dict.*write list\(headers\.items\(\)\)"),
        ({"headers": ["ab"]}, "a header must be a pair, as in .*, not 'ab'"),
        (
            {"value": datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)},
            r"not datetime; .* moment\.isoformat\(\)\.encode\(\)",
        ),
        ({"value": {"a": 1}}, r"not dict; .* json\.dumps\(value\)\.encode\(\)"),
        ({"value": 5}, r"not int; .* str\(number\)\.encode\(\)"),
        ({"timestamp_ms": datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)}, r"int\(moment\.timestamp\(\) \* 1000\)"),
    ],
)
def test_what_is_no_record_is_refused_with_advice(world: World, arguments: dict, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        producer_in(world, None).send("t", **{"value": b"a", **arguments})


def test_a_time_span_as_a_setting_is_refused_with_advice() -> None:
    with pytest.raises(TypeError, match=r"span // timedelta\(milliseconds=1\)"):
        Producer("h:1", delivery_timeout_ms=datetime.timedelta(seconds=1))


# Ids.


def test_an_id_is_made_of_the_application_and_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TXN_SLOT", raising=False)
    monkeypatch.setattr(platform, "node", lambda: "billing-2")
    assert stable_id("billing", slot=3) == "billing-3"
    assert stable_id("billing", namespace="prod") == "prod.billing-billing-2"
    assert stable_id("billing", slot="a", process=1) == "billing-a-1"
    monkeypatch.setenv("TXN_SLOT", "7")
    assert stable_id("billing") == "billing-7"
    with pytest.raises(Rejected, match="transactional id"):
        stable_id("x" * 1_001)


@pytest.mark.parametrize("host", ["0f3a9b21c7de", "billing-7c9d8b5f6d-x2v9k", ""])
def test_a_host_name_that_changes_makes_no_id(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    monkeypatch.delenv("TXN_SLOT", raising=False)
    monkeypatch.setattr(platform, "node", lambda: host)
    with pytest.raises(Misconfigured, match=r"changes at each start.*TXN_SLOT"):
        stable_id("billing")


@pytest.mark.parametrize("host", ["prod-database-east1", "db-1", "deadbeef"])
def test_a_host_name_that_stays_makes_an_id(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    monkeypatch.delenv("TXN_SLOT", raising=False)
    monkeypatch.setattr(platform, "node", lambda: host)
    assert stable_id("billing") == f"billing-{host}"
