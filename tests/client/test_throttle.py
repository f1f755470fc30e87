"""A server that asks for a pause in an answer: what waits, what does not, and for how long at most."""

# Under test is the exit of a `with`, so the block that raises has the length of a transaction.
# ruff: noqa: PT012

from __future__ import annotations

import asyncio
import logging
from itertools import pairwise

import pytest

from coordinator_api.v1 import log_pb2, transaction_pb2
from coordinator_client import Abortable, Admin, BatchReader, read
from coordinator_client.calls import CREATE_TOPICS, DESCRIBE_TOPICS, END_TXN, LAST_TRY_MS, Deadlines, RetryingCall
from coordinator_client.errors import TransactionError
from coordinator_client.flights import Flights
from coordinator_client.log import LOGGER
from coordinator_client.producer.state import ProducerStatus
from coordinator_client.reading.reader import ReadPlan, plan_ranges
from coordinator_client.throttle import Throttle
from coordinator_protocol.errors import ErrorCode
from coordinator_protocol.methods import METHODS, Method
from coordinator_protocol.throttling import PAUSE_MS_MAX
from tests.client.consumers import T0, T1, FakeCluster, poll_all, values
from tests.client.fake_log import FakeLog
from tests.client.producers import commit, ended, produce_refused, producer_in
from tests.client.test_async_producer import commit as commit_async
from tests.client.test_async_producer import producer_in as async_producer_in
from tests.client.test_async_producer import until
from tests.client.world import World

LONG_MS = 5_000


def gaps(world: World, method: Method) -> list[int]:
    times = world.times(method)
    return [later - earlier for earlier, later in pairwise(times)]


# Producers.


def test_a_producer_that_was_served_sends_no_more_records_until_the_pause_is_over(world: World) -> None:
    producer = producer_in(world)
    world.throttle(Method.PRODUCE, LONG_MS, 0)
    for value in (b"a", b"b", b"c"):
        commit(producer, value)
    first, second = gaps(world, Method.PRODUCE)
    assert LONG_MS <= first <= LONG_MS + 10
    assert second <= 10, "the pause is over"
    assert world.server.visible() == [b"a", b"b", b"c"]


def test_a_pause_does_not_hold_up_the_end_of_a_transaction(world: World) -> None:
    producer = producer_in(world)
    world.throttle(Method.PRODUCE, LONG_MS)
    commit(producer, b"a")
    assert ended(world) == [True]
    assert world.now_ms < 100


def test_records_that_wait_for_the_end_of_a_pause_are_given_up_at_once_with_an_abort(world: World) -> None:
    producer = producer_in(world)
    world.throttle(Method.PRODUCE, LONG_MS)
    with pytest.raises(KeyError), producer.transaction() as txn:
        txn.send("t", b"a", partition=0)
        txn.flush()
        txn.send("t", b"b", partition=0)
        raise KeyError("changed its mind")
    assert ended(world) == [False]
    assert world.now_ms < 100
    assert len(world.requests(Method.PRODUCE)) == 1


def test_whole_transactions_wait_for_the_pause_that_records_were_asked_for(world: World) -> None:
    producer = producer_in(world, transact_bytes=100_000)
    world.throttle(Method.TRANSACT, LONG_MS)
    commit(producer, b"a")
    assert world.now_ms < 100, "what was served is answered at once"
    commit(producer, b"b")
    assert gaps(world, Method.TRANSACT)[0] >= LONG_MS
    assert world.server.visible() == [b"a", b"b"]


def test_what_the_end_of_a_transaction_took_too_much_is_waited_for_by_the_next_one(world: World) -> None:
    """EndTxn is never refused, so its answer asks others to pause."""
    producer = producer_in(world)
    world.throttle(Method.END_TXN, LONG_MS)
    commit(producer, b"a")
    commit(producer, b"b")
    assert gaps(world, Method.PRODUCE)[0] >= LONG_MS
    assert ended(world) == [True, True]


def test_all_producers_of_a_connection_obey_and_those_of_another_do_not(world: World) -> None:
    connection = world.connection()
    mine, beside = (producer_in(world, name, connection=connection) for name in ("p", "q"))
    other = producer_in(world, "r")
    for producer in (mine, beside, other):
        producer.init()
    world.throttle(Method.PRODUCE, LONG_MS)
    commit(mine, b"a")
    commit(other, b"b")
    assert world.now_ms < 100
    commit(beside, b"c")
    assert world.now_ms >= LONG_MS


def test_what_is_repeated_waits_for_a_pause_that_came_meanwhile(world: World) -> None:
    producer = producer_in(world)
    world.answer(Method.PRODUCE, produce_refused(*[ErrorCode.NOT_ENOUGH_REPLICAS] * 2))
    world.throttle(Method.PRODUCE, LONG_MS)
    with producer.transaction() as txn:
        for partition in range(2):
            txn.send("t", b"x", partition=partition)
        txn.flush()
    assert gaps(world, Method.PRODUCE)[0] >= LONG_MS


def test_a_pause_up_to_the_deadline_leaves_time_for_one_attempt_and_is_no_error(world: World) -> None:
    producer = producer_in(world, delivery_timeout_ms=3_000)
    world.throttle(Method.PRODUCE, LONG_MS)
    commit(producer, b"a")
    begun_ms = world.now_ms
    commit(producer, b"b")
    assert world.times(Method.PRODUCE)[1] - begun_ms == pytest.approx(3_000 - LAST_TRY_MS, abs=5)
    assert world.server.visible() == [b"a", b"b"]


def test_a_call_shorter_than_one_attempt_is_made_at_once(world: World) -> None:
    connection = world.connection()
    with Admin(connection, deadline_ms=LAST_TRY_MS) as admin:
        world.throttle(Method.DESCRIBE_TOPICS, LONG_MS)
        for _ in range(2):
            admin.describe_topics(["t"])
    assert world.now_ms < 100


def test_who_is_refused_all_the_same_is_told_so_at_the_deadline(world: World) -> None:
    producer = producer_in(world, delivery_timeout_ms=3_000)
    world.throttle(Method.PRODUCE, LONG_MS, LONG_MS)
    commit(producer, b"a")
    world.answer(Method.PRODUCE, produce_refused(ErrorCode.THROTTLING_QUOTA_EXCEEDED))
    with pytest.raises(Abortable, match="THROTTLING_QUOTA_EXCEEDED"):
        commit(producer, b"b")
    assert world.now_ms <= 3_100


def test_an_asyncio_producer_waits_and_leaves_the_loop_to_others(world: World) -> None:
    async def body() -> None:
        async with async_producer_in(world, transact_bytes=0) as producer:
            await commit_async(producer, b"a")
            await commit_async(producer, b"b")

    world.throttle(Method.PRODUCE, LONG_MS)
    world.run(body())
    assert gaps(world, Method.PRODUCE)[0] >= LONG_MS
    assert world.server.visible() == [b"a", b"b"]


@pytest.mark.parametrize("is_begun", [False, True], ids=["whole", "the rest"])
def test_a_commit_that_is_interrupted_before_it_was_sent_is_no_unknown_outcome(world: World, is_begun: bool) -> None:
    async def body() -> None:
        async with async_producer_in(world) as producer:
            await commit_async(producer, b"a")

            async def interrupted() -> None:
                async with producer.transaction() as txn:
                    if is_begun:
                        await txn.send("t", b"early", partition=0)
                        await txn.flush()
                    await txn.send("t", b"b", partition=0)

            commit_task = asyncio.create_task(interrupted())
            await until(lambda: producer.status is ProducerStatus.COMMITTING)
            commit_task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await commit_task
            assert producer.status is ProducerStatus.READY
            await commit_async(producer, b"c")

    world.throttle(Method.PRODUCE if is_begun else Method.TRANSACT, LONG_MS)
    world.run(body())
    assert world.server.visible() == [b"a", b"c"]
    assert ended(world) == ([False] if is_begun else [])
    assert len(world.requests(Method.TRANSACT)) == 2


# Readers and consumers.


def test_a_reader_asks_for_no_more_until_the_pause_is_over(world: World) -> None:
    topic = FakeLog(world)
    for number in range(4):
        topic.append(0, b"%d" % number)
    world.throttle(Method.FETCH, LONG_MS)
    assert [record.value for record in read("t", world.connection())] == [b"0", b"1", b"2", b"3"]
    assert [gap >= LONG_MS for gap in gaps(world, Method.FETCH)] == [True]


def test_the_pause_that_an_answer_to_a_fetch_sent_ahead_asks_for_counts(world: World) -> None:
    topic = FakeLog(world)
    for number in range(6):
        topic.append(0, b"%d" % number)
    world.throttle(Method.FETCH, 0, LONG_MS)
    connection = world.connection()
    batches = list(BatchReader(connection, plan_ranges(connection, "t", ReadPlan())))
    assert len(batches) == 6
    assert [gap >= LONG_MS for gap in gaps(world, Method.FETCH)] == [False, True]


def test_a_consumer_goes_on_with_its_group_while_its_fetches_wait() -> None:
    cluster = FakeCluster()
    cluster.topic.append(0, b"a")
    cluster.group.give(0)
    cluster.world.throttle(Method.FETCH, 4 * LONG_MS)
    consumer = cluster.member(enable_auto_commit=False)
    assert poll_all(consumer, 1) == [b"a"]
    began_ms, beats = cluster.world.now_ms, len(cluster.beats())
    cluster.topic.append(0, b"b")
    consumer.commit()
    assert cluster.world.now_ms - began_ms < 100, "commits do not wait"
    assert values(consumer.poll(timeout_ms=3 * LONG_MS)) == []
    assert len(cluster.beats()) > beats
    assert len(cluster.world.requests(Method.FETCH)) == 1
    assert poll_all(consumer, 1) == [b"b"]
    assert gaps(cluster.world, Method.FETCH)[0] >= 4 * LONG_MS
    consumer.close()
    assert cluster.group.offsets[T0] == 1, "closing does not wait either, and commits nothing by itself"


def test_after_a_pause_one_fetch_asks_for_what_is_wanted_by_then() -> None:
    cluster = FakeCluster()
    cluster.world.throttle(Method.FETCH, LONG_MS)
    consumer = cluster.consumer(group_id=None)
    consumer.assign([T0])
    cluster.topic.append(0, b"a")
    assert poll_all(consumer, 1) == [b"a"]
    consumer.assign([T0, T1])
    consumer.poll(timeout_ms=2 * LONG_MS)
    after = cluster.world.requests(Method.FETCH)[1]
    assert [asked.partition for asked in after.partitions] == [0, 1]


def test_records_that_come_and_records_that_go_wait_for_themselves(world: World) -> None:
    topic = FakeLog(world)
    topic.append(0, b"a")
    connection = world.connection()
    world.throttle(Method.PRODUCE, LONG_MS)
    producer = producer_in(world, connection=connection)
    commit(producer, b"b")
    assert [record.value for record in read("t", connection)] == [b"a"]
    assert world.now_ms < 100


# Everything else.


def test_administration_waits_for_the_pause_it_was_asked_for(world: World) -> None:
    with Admin(world.connection()) as admin:
        world.throttle(Method.DESCRIBE_TOPICS, LONG_MS)
        for _ in range(2):
            admin.describe_topics(["t"])
    assert gaps(world, Method.DESCRIBE_TOPICS)[0] >= LONG_MS


def test_a_refusal_of_another_kind_of_call_is_waited_for_by_that_call_alone() -> None:
    """A principal with too many topics may produce."""
    throttle = Throttle("fake:1")
    throttle.note(Method.CREATE_TOPICS, LONG_MS, 0, is_refused=True)
    assert [throttle.until_ms(method) for method in Method if throttle.until_ms(method)] == []
    throttle.note(Method.PRODUCE, LONG_MS, 0, is_refused=True)
    assert {method for method in Method if throttle.until_ms(method)} == {Method.PRODUCE, Method.TRANSACT}


@pytest.mark.parametrize("method", Method)
def test_no_answer_holds_up_what_frees_others(method: Method) -> None:
    throttle = Throttle("fake:1")
    throttle.note(method, LONG_MS, 0, is_refused=False)
    assert not [rule for rule in METHODS.values() if not rule.may_be_refused and throttle.until_ms(rule.method)]
    assert throttle.until_ms(Method.PRODUCE) == (0 if METHODS[method].answers_records else LONG_MS)


def test_pauses_do_not_add_up_and_the_latest_end_counts() -> None:
    throttle = Throttle("fake:1")
    for pause_ms, now_ms in ((5_000, 0), (100, 1_000), (6_000, 1_000)):
        throttle.note(Method.FETCH, pause_ms, now_ms, is_refused=False)
    assert throttle.until_ms(Method.FETCH) == 7_000


def test_a_shorter_pause_ends_no_longer_one_of_its_kind_or_of_another() -> None:
    throttle = Throttle("fake:1")
    throttle.note(Method.FETCH, 5_000, 0, is_refused=False)
    throttle.note(Method.FETCH, 100, 1_000, is_refused=False)
    throttle.note(Method.PRODUCE, 100, 1_000, is_refused=False)
    assert throttle.until_ms(Method.FETCH) == 5_000
    assert throttle.ends_ms == 5_000


def test_who_blocks_its_thread_waits_for_a_pause_that_comes_meanwhile(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = world.connection()
    pause = world.pause

    def pause_while_another_call_is_answered(wait_ms: int) -> None:
        pause(wait_ms)
        if world.now_ms == LONG_MS:
            connection.throttle.note(Method.DESCRIBE_TOPICS, LONG_MS, LONG_MS - 10, is_refused=False)

    monkeypatch.setattr(world, "pause", pause_while_another_call_is_answered)
    connection.throttle.note(Method.DESCRIBE_TOPICS, LONG_MS, 0, is_refused=False)
    with Admin(connection) as admin:
        admin.describe_topics(["t"])
    assert world.times(Method.DESCRIBE_TOPICS)[0] >= 2 * LONG_MS - 10


def test_an_answer_without_a_pause_says_that_calls_cost_less(world: World) -> None:
    connection = world.connection()
    connection.throttle.note(Method.DESCRIBE_TOPICS, 100, 0, is_refused=False)
    waiting = [
        RetryingCall(DESCRIBE_TOPICS, DESCRIBE_TOPICS.request_type(), deadlines=Deadlines(total_ms=60_000), now_ms=0)
        for _ in range(3)
    ]
    for call in waiting[:2]:
        connection.throttle.hold(call, 0)
    world.answer(Method.END_TXN, transaction_pb2.EndTxnResponse())
    connection.ask(END_TXN, END_TXN.request_type(), deadlines=Deadlines(total_ms=60_000))
    connection.throttle.hold(waiting[2], world.now_ms)
    assert [call.due_ms for call in waiting] == [100, 200, 250]


def test_what_frees_others_does_not_stand_behind_those_that_wait() -> None:
    throttle = Throttle("fake:1")
    throttle.note(Method.DESCRIBE_TOPICS, LONG_MS, 0, is_refused=False)
    dues_ms = []
    for rpc in (DESCRIBE_TOPICS, END_TXN):
        call = RetryingCall(rpc, rpc.request_type(), deadlines=Deadlines(total_ms=60_000), now_ms=0)
        throttle.hold(call, 0)
        dues_ms.append(call.due_ms)
    assert dues_ms == [LONG_MS, 0]


def test_a_call_that_is_refused_for_good_asks_no_others_to_pause(world: World) -> None:
    connection, request = world.connection(), CREATE_TOPICS.request_type()
    refused = log_pb2.CreateTopicsResponse(error_code=ErrorCode.THROTTLING_QUOTA_EXCEEDED, throttle_ms=LONG_MS)
    world.answer(Method.CREATE_TOPICS, refused)
    with pytest.raises(TransactionError):
        connection.ask(CREATE_TOPICS, request, deadlines=Deadlines(total_ms=60_000, attempts_max=1))
    assert connection.throttle.until_ms(Method.CREATE_TOPICS) == 0
    flights = Flights(world)
    deadlines = Deadlines(total_ms=60_000, attempts_max=1)
    flights.start(RetryingCall(CREATE_TOPICS, request, deadlines=deadlines, now_ms=0), lambda _end, _now_ms: None)
    (sent,) = flights.transmissions(0)
    flights.on_answer(sent.flight, sent.attempt, refused, 1)
    assert flights.throttle.until_ms(Method.CREATE_TOPICS) == 0


def test_a_server_cannot_stop_a_client_for_ever() -> None:
    throttle = Throttle("fake:1")
    throttle.note(Method.FETCH, 2**31 - 1, 10, is_refused=False)
    throttle.note(Method.PRODUCE, -5, 10, is_refused=False)
    assert (throttle.until_ms(Method.FETCH), throttle.until_ms(Method.PRODUCE)) == (10 + PAUSE_MS_MAX, 0)


def test_a_pause_is_told_at_debug_level_only(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger=LOGGER.name)
    world.throttle(Method.PRODUCE, LONG_MS)
    commit(producer_in(world), b"a")
    assert [(record.levelname, record.getMessage()) for record in caplog.records if record.name == LOGGER.name] == [
        ("DEBUG", "the server at fake:1 has served Produce and asks to send no more records for 5000 ms")
    ]
