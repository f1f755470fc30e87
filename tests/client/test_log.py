"""Lines on the SDK's logger: every cause once, once more when it is over, and nothing that is raised anyway."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

import coordinator_client
from coordinator_api.v1 import group_pb2 as group
from coordinator_client import (
    Admin,
    AsyncConsumer,
    AsyncProducer,
    Consumer,
    Misconfigured,
    Producer,
    Retriable,
    Unreachable,
    read,
)
from coordinator_client.errors import Loss
from coordinator_client.log import Answers
from coordinator_client.producer.state import ProducerStatus
from coordinator_protocol.errors import ErrorCode
from coordinator_protocol.methods import Method
from tests.client.consumers import T0, ClassicCluster, FakeCluster
from tests.client.fake_server import refuse
from tests.client.producers import commit, producer_in
from tests.client.test_first_contact import FakeLook
from tests.client.world import Fault, World

NAME = "coordinator_client"
LONG_MS = 300_000


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Callable[[], list[tuple[str, str]]]:
    """Function that returns the lines since its last call: (level, text)."""
    caplog.set_level(logging.DEBUG, logger=NAME)

    def take() -> list[tuple[str, str]]:
        lines = [(record.levelname, record.getMessage()) for record in caplog.records if record.name == NAME]
        caplog.clear()
        return lines

    return take


def poll_for(world: World, consumer: Consumer, span_ms: int) -> None:
    end_ms = world.now_ms + span_ms
    while world.now_ms < end_ms:
        assert not consumer.poll(timeout_ms=10_000)


def test_the_library_adds_no_handler_but_the_one_that_does_nothing() -> None:
    assert coordinator_client.Producer
    assert [type(handler) for handler in logging.getLogger(NAME).handlers] == [logging.NullHandler]
    assert logging.getLogger(NAME).level == logging.NOTSET


@pytest.mark.parametrize("room_type", [FakeCluster, ClassicCluster])
def test_a_topic_that_was_mistyped_is_told_once_and_when_it_comes_and_goes(room_type: type[FakeCluster], said) -> None:
    cluster = room_type()
    consumer = cluster.consumer()
    consumer.subscribe(["t", "ordres"])
    assert said() == []
    poll_for(cluster.world, consumer, LONG_MS)
    ((level, text),) = said()
    assert level == "WARNING"
    assert "the group 'g' subscribes to the topic 'ordres', which does not exist" in text
    cluster.world.server.topics["ordres"] = 1
    poll_for(cluster.world, consumer, 60_000)
    assert said() == [("INFO", "the topic 'ordres' exists now")]
    del cluster.world.server.topics["ordres"]
    poll_for(cluster.world, consumer, 60_000)
    ((level, text),) = said()
    assert (level, "'ordres', which does not exist" in text) == ("WARNING", True)
    consumer.close()


def test_a_pattern_may_match_nothing(said) -> None:
    cluster = FakeCluster()
    consumer = cluster.consumer()
    consumer.subscribe(pattern="ordres-.*")
    poll_for(cluster.world, consumer, LONG_MS)
    assert said() == []
    assert not cluster.world.requests(Method.DESCRIBE_TOPICS)


def test_a_new_subscription_does_not_wait_for_the_look_at_the_one_before(said) -> None:
    cluster = FakeCluster()
    consumer = cluster.consumer()
    consumer.subscribe(["ordres"])
    cluster.world.fault(Method.DESCRIBE_TOPICS, Fault.SILENT)
    poll_for(cluster.world, consumer, 1_000)
    consumer.subscribe(["custmers"])
    poll_for(cluster.world, consumer, 1_000)
    ((_, text),) = said()
    assert "'custmers', which does not exist" in text


def test_an_asyncio_consumer_tells_it_too(said) -> None:
    cluster = FakeCluster()

    async def work() -> None:
        async with AsyncConsumer(cluster.world.connection(), group_id="g") as consumer:
            consumer.subscribe(["ordres"])
            assert not await consumer.poll(timeout_ms=5_000)

    cluster.world.run(work())
    ((_, text),) = said()
    assert "'ordres', which does not exist" in text


@pytest.mark.parametrize("room_type", [FakeCluster, ClassicCluster])
def test_a_server_that_goes_away_is_told_once_and_when_it_is_back(room_type: type[FakeCluster], said) -> None:
    cluster = room_type()
    consumer = cluster.member()
    poll_for(cluster.world, consumer, 20_000)
    assert said() == []
    for _outage in range(2):
        cluster.world.weather = lambda _: Fault.LOST_REQUEST
        # Answers that were on their way still arrive.
        poll_for(cluster.world, consumer, 20_000)
        assert said()[-1] == (
            "WARNING",
            "the server at fake:1 does not answer (UNAVAILABLE: connection reset); asking again",
        )
        poll_for(cluster.world, consumer, LONG_MS)
        assert said() == []
        cluster.world.weather = lambda _: Fault.NONE
        poll_for(cluster.world, consumer, 60_000)
        assert said() == [("INFO", "the server at fake:1 answers now")]


def produce(world: World) -> None:
    commit(producer_in(world), b"x")


def produce_plain(world: World) -> None:
    with Producer(world.connection()) as producer:
        producer.send("t", b"x")


def administer(world: World) -> None:
    Admin(world.connection()).create_topic("new")


def read_all(world: World) -> None:
    list(read("t", world.connection()))


@pytest.mark.parametrize("use", [produce, produce_plain, administer, read_all])
def test_every_client_tells_of_a_server_that_does_not_answer(world: World, use: Callable[[World], None], said) -> None:
    if use is read_all:
        from tests.client.fake_log import FakeLog

        FakeLog(world).append(0, b"x")
    world.weather = lambda _: Fault.LOST_REQUEST if world.now_ms < 10_000 else Fault.NONE
    use(world)
    assert [level for level, _ in said()] == ["WARNING", "INFO"]


@pytest.mark.parametrize("use", [produce, produce_plain, administer])
def test_a_single_retry_that_the_server_asked_for_is_not_worth_a_line(
    world: World, use: Callable[[World], None], said
) -> None:
    use(world)
    assert said() == []


def test_who_waits_for_a_first_connection_is_told(world: World, said) -> None:
    Admin(world.connection(look=FakeLook(world, up_at_ms=20_000), wait_ms=None)).create_topic("a")
    assert said() == [
        ("WARNING", "no server answers at fake:1 (Connection refused); waiting for it"),
        ("INFO", "the server at fake:1 answers now"),
    ]
    with Consumer(world.connection(look=FakeLook(world), wait_ms=None), group_id="g") as consumer:
        consumer.subscribe(["t"])
        poll_for(world, consumer, LONG_MS)
    assert [level for level, _ in said()] == ["WARNING"]


def test_what_is_raised_is_not_said_too(world: World, said) -> None:
    with pytest.raises(Unreachable):
        Admin(world.connection(look=FakeLook(world))).create_topic("a")
    assert said() == []


def test_what_is_refused_for_long_is_told_with_the_reason(said) -> None:
    cluster = FakeCluster()
    world = cluster.world
    until_ms = 60_000
    answered = world.server.answer

    def answer(method: Method, request: object) -> object:
        if method is Method.CONSUMER_GROUP_HEARTBEAT and world.now_ms < until_ms:
            reply = group.ConsumerGroupHeartbeatResponse(error_message="the shard of the group cannot be loaded")
            refused = refuse(reply, method, ErrorCode.NOT_COORDINATOR)
            refused.error_message = "the shard of the group cannot be loaded"
            return refused
        return answered(method, request)

    world.server.answer = answer  # type: ignore[assignment, method-assign]
    consumer = cluster.member()
    poll_for(world, consumer, 4_000)
    consumer.poll(timeout_ms=0)
    poll_for(world, consumer, 50_000)
    ((level, text),) = said()
    assert level == "WARNING"
    assert text.startswith("ConsumerGroupHeartbeat has been refused for 5 s by the server at fake:1: ")
    assert text.endswith("the shard of the group cannot be loaded [NOT_COORDINATOR]; asking again")
    poll_for(world, consumer, 60_000)
    assert said() == [("INFO", "ConsumerGroupHeartbeat is not refused any more by the server at fake:1")]


def test_an_offset_that_waits_for_its_transaction_is_told_by_its_partition(said) -> None:
    cluster = FakeCluster()
    cluster.group.give(0)
    cluster.group.unstable = {T0}
    consumer = cluster.member()
    poll_for(cluster.world, consumer, 60_000)
    ((level, text),) = said()
    assert level == "WARNING"
    assert text.startswith("OffsetFetch of t-0 has been refused for 5 s by the server at fake:1: ")
    assert text.endswith("[UNSTABLE_OFFSET_COMMIT]; asking again")
    cluster.group.unstable = set()
    poll_for(cluster.world, consumer, 60_000)
    assert said() == [("INFO", "OffsetFetch of t-0 is not refused any more by the server at fake:1")]


def test_what_the_client_itself_cancelled_says_nothing_of_the_server(said) -> None:
    answers = Answers("fake:1")
    answers.note(Method.FETCH, Loss("CANCELLED", "cancelled by the client"), 0)
    assert (said(), answers.is_lost, answers.is_troubled) == ([], False, False)


# Time that a close takes


@pytest.mark.parametrize("room_type", [FakeCluster, ClassicCluster])
@pytest.mark.parametrize("is_known", [True, False])
def test_a_close_takes_a_second_once_the_server_does_not_answer(room_type: type[FakeCluster], is_known: bool) -> None:
    cluster = room_type()
    cluster.topic.append(0, b"x")
    consumer = cluster.member()
    while not consumer.poll(timeout_ms=1_000) and isinstance(cluster, ClassicCluster):
        pass
    cluster.world.weather = lambda _: Fault.LOST_REQUEST
    if is_known:
        poll_for(cluster.world, consumer, 60_000)
    started_ms = cluster.world.now_ms
    consumer.close()
    assert cluster.world.now_ms - started_ms <= 1_500
    assert consumer.is_closed


@pytest.mark.parametrize("close_timeout_ms", [3_000, 30_000])
def test_a_close_that_gets_no_answer_at_all_takes_as_long_as_is_set(close_timeout_ms: int) -> None:
    cluster = FakeCluster()
    cluster.group.give(0)
    consumer = cluster.member(close_timeout_ms=close_timeout_ms)
    consumer.poll(timeout_ms=1_000)
    cluster.world.weather = lambda _: Fault.SILENT
    started_ms = cluster.world.now_ms
    consumer.close()
    assert cluster.world.now_ms - started_ms <= close_timeout_ms


def test_a_close_in_asyncio_takes_as_short() -> None:
    cluster = FakeCluster()

    async def work() -> int:
        consumer = AsyncConsumer(cluster.world.connection(), group_id="g")
        consumer.subscribe(["t"])
        await consumer.poll(timeout_ms=1_000)
        cluster.world.weather = lambda _: Fault.LOST_REQUEST
        started_ms = cluster.world.now_ms
        await consumer.close()
        return cluster.world.now_ms - started_ms

    assert cluster.world.run(work()) <= 1_500


def test_a_producer_gives_the_abort_up_that_comes_with_its_close(world: World) -> None:
    producer = producer_in(world)
    txn = producer.transaction()
    txn.__enter__()
    txn.send("t", b"x")
    txn.flush()
    world.weather = lambda _: Fault.LOST_REQUEST
    started_ms = world.now_ms
    with pytest.raises(Retriable, match="the abort did not come to an end within 1000 ms") as failed:
        producer.close()
    assert world.now_ms - started_ms <= 1_500
    assert "the server aborts the transaction at its timeout" in failed.value.action
    assert producer.status is ProducerStatus.CLOSED
    producer.close()


def test_a_producer_in_asyncio_gives_it_up_as_soon(world: World) -> None:
    async def work() -> int:
        producer = AsyncProducer(world.connection(), transactional_id="p", transact_bytes=0)
        txn = producer.transaction()
        await txn.__aenter__()
        await txn.send("t", b"x")
        await txn.flush()
        world.weather = lambda _: Fault.LOST_REQUEST
        started_ms = world.now_ms
        with pytest.raises(Retriable, match="the abort did not come to an end"):
            await producer.close()
        assert producer.status is ProducerStatus.CLOSED
        return world.now_ms - started_ms

    assert world.run(work()) <= 1_500


def test_the_abort_that_comes_with_a_close_is_tried_again_where_it_can_succeed(world: World) -> None:
    producer = producer_in(world)
    txn = producer.transaction()
    txn.__enter__()
    txn.send("t", b"x")
    txn.flush()
    world.fault(Method.END_TXN, Fault.LOST_REQUEST, Fault.LOST_REPLY)
    producer.close()
    assert world.server.ids["p"].state == "CompleteAbort"


def test_a_plain_producer_does_not_give_its_records_up_so_soon(world: World) -> None:
    producer = Producer(world.connection(), delivery_timeout_ms=60_000)
    producer.send("t", b"x")
    world.weather = lambda _: Fault.LOST_REQUEST if world.now_ms < 30_000 else Fault.NONE
    producer.close()
    assert world.server.visible() == [b"x"]


def test_no_time_to_close_is_no_setting() -> None:
    with pytest.raises(Misconfigured, match="close_timeout_ms is 0 and must be between 1 and 2147483647 milliseconds"):
        FakeCluster().consumer(close_timeout_ms=0)
