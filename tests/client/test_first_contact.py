"""A client that was never connected to its server: it says so within two seconds, or waits if asked to, and in no case
has sent anything. On a manual clock; `test_server_look` shows that sockets agree with the fake look."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from coordinator_api.v1 import log_pb2 as log
from coordinator_client import (
    Admin,
    AsyncConsumer,
    AsyncProducer,
    Connection,
    Consumer,
    OutcomeUnknown,
    Producer,
    Retriable,
    TransactionError,
    Unreachable,
    read,
)
from coordinator_client.calls import DESCRIBE_TOPICS
from coordinator_client.errors import Loss
from coordinator_client.loops import Loop
from coordinator_protocol.errors import ErrorCode
from coordinator_protocol.methods import Method
from tests.client.consumers import FakeCluster
from tests.client.world import Fault, World

REFUSED = "Connection refused"
SILENT = "something accepts connections there and says nothing"


class FakeLook:
    """A server that comes up at a time. Until then a look fails after so long, or takes all the time it is given."""

    def __init__(self, world: World, *, up_at_ms: int | None = None, problem: str = REFUSED) -> None:
        self.world = world
        self.up_at_ms = up_at_ms
        self.problem = problem
        self.looks_ms: list[int] = []

    def now(self, timeout_ms: int) -> str | None:
        self.looks_ms.append(self.world.now_ms)
        self.world.pause(self._takes_ms(timeout_ms))
        return self._found()

    def soon(self, loop: Loop, timeout_ms: int, on_done: Callable[[str | None], None]) -> None:
        self.looks_ms.append(self.world.now_ms)
        loop.call_after(self._takes_ms(timeout_ms), lambda: on_done(self._found()))

    def _takes_ms(self, timeout_ms: int) -> int:
        return timeout_ms if self.problem is SILENT and self._found() else 1

    def _found(self) -> str | None:
        return None if self.up_at_ms is not None and self.world.now_ms >= self.up_at_ms else self.problem


def connection_in(world: World, look: FakeLook, **options: Any) -> Connection:
    return world.connection(look=look, **options)


def administer(connection: Connection) -> object:
    return Admin(connection).create_topic("new")


def produce(connection: Connection) -> object:
    with Producer(connection) as producer:
        producer.send("t", b"x")
        producer.flush()
    return producer


def commit(connection: Connection) -> object:
    with Producer(connection, transactional_id="p") as producer, producer.transaction() as txn:
        txn.send("t", b"x")
    return txn.csn


def produce_in_asyncio(connection: Connection) -> object:
    async def work() -> int:
        async with AsyncProducer(connection, transactional_id="p") as producer:
            async with producer.transaction() as txn:
                await txn.send("t", b"x")
            return txn.csn

    return connection.clock.run(work())  # type: ignore[attr-defined]


def read_all(connection: Connection) -> object:
    return list(read("t", connection))


def poll(connection: Connection) -> object:
    with Consumer(connection, group_id="g") as consumer:
        consumer.subscribe(["t"])
        return consumer.poll(timeout_ms=10_000)


def poll_in_asyncio(connection: Connection) -> object:
    async def work() -> object:
        async with AsyncConsumer(connection, group_id="g") as consumer:
            consumer.subscribe(["t"])
            return await consumer.poll(timeout_ms=10_000)

    return connection.clock.run(work())  # type: ignore[attr-defined]


CLIENTS = [administer, produce, commit, produce_in_asyncio, read_all, poll, poll_in_asyncio]
SENDING = [administer, produce, commit, produce_in_asyncio]


@pytest.mark.parametrize("problem", [REFUSED, SILENT])
@pytest.mark.parametrize("client", CLIENTS)
def test_it_fails_within_two_seconds_and_has_sent_nothing(
    world: World, client: Callable[[Connection], object], problem: str
) -> None:
    look = FakeLook(world, problem=problem)
    failed_ms: list[int] = []

    def noting(connection: Connection) -> None:
        try:
            client(connection)
        except TransactionError:
            failed_ms.append(world.now_ms)
            raise

    with pytest.raises(Unreachable, match=f"no server answers at fake:1 \\({problem}\\)") as failed:
        noting(connection_in(world, look))
    assert failed_ms[0] <= 2_000 + (2_000 if client in (poll, poll_in_asyncio) else 0), "a consumer closes first"
    assert world.sent == []
    assert failed.value.code == ErrorCode.NETWORK_EXCEPTION
    assert "wait_ms=" in failed.value.action
    assert len(look.looks_ms) < 20


@pytest.mark.parametrize("client", SENDING)
def test_told_to_wait_it_waits_until_its_deadline(world: World, client: Callable[[Connection], object]) -> None:
    look = FakeLook(world, up_at_ms=25_000)
    assert client(connection_in(world, look, wait_ms=None))
    assert 25_000 <= world.now_ms < 26_000
    assert len(look.looks_ms) < 25_000 // 250, "the pauses grow"


def test_waiting_ends_with_the_deadline_of_the_call(world: World) -> None:
    admin = Admin(connection_in(world, FakeLook(world), wait_ms=None), deadline_ms=5_000)
    with pytest.raises(Unreachable):
        admin.create_topic("new")
    assert 4_000 <= world.now_ms <= 5_000


@pytest.mark.parametrize("client", SENDING)
def test_it_waits_as_long_as_it_is_told(world: World, client: Callable[[Connection], object]) -> None:
    with pytest.raises(Unreachable):
        client(connection_in(world, FakeLook(world), wait_ms=5_000))
    assert 4_000 <= world.now_ms <= 5_000
    assert client(connection_in(world, FakeLook(world, up_at_ms=world.now_ms + 4_000), wait_ms=5_500))


@pytest.mark.parametrize("client", [produce, commit, produce_in_asyncio])
def test_it_waits_for_longer_than_an_attempt_takes(world: World, client: Callable[[Connection], object]) -> None:
    """The time is counted from the first attempt, of which the call may make several."""
    with pytest.raises(Unreachable):
        client(connection_in(world, FakeLook(world), wait_ms=45_000))
    assert 44_000 <= world.now_ms <= 46_000
    assert client(connection_in(world, FakeLook(world, up_at_ms=world.now_ms + 44_000), wait_ms=45_500))


@pytest.mark.parametrize("wait_ms", [5_000, 45_000])
def test_a_consumer_is_told_after_that_time(world: World, wait_ms: int) -> None:
    consumer = Consumer(connection_in(world, FakeLook(world), wait_ms=wait_ms), group_id="g")
    consumer.subscribe(["t"])
    with pytest.raises(Unreachable):
        consumer.poll(timeout_ms=60_000)
    assert wait_ms - 1_000 <= world.now_ms <= wait_ms + 1_000


def test_a_search_that_was_given_up_or_long_ago_does_not_count_for_the_next_call(world: World) -> None:
    connection = connection_in(world, FakeLook(world), wait_ms=20_000)
    for deadline_ms, pause_ms in ((15_000, 10_000), (60_000, 0), (60_000, 0)):
        began_ms = world.now_ms
        with pytest.raises(Unreachable):
            Admin(connection, deadline_ms=deadline_ms).create_topic("new")
        assert min(deadline_ms, 20_000) - 1_000 <= world.now_ms - began_ms <= min(deadline_ms, 20_000)
        world.pause(pause_ms)


def test_a_server_that_came_at_the_last_moment_is_given_the_whole_time_of_the_call(world: World) -> None:
    connection = connection_in(world, FakeLook(world, up_at_ms=44_000), wait_ms=45_000)
    world.weather = lambda _: Fault.LOST_REQUEST if world.now_ms < 60_000 else Fault.NONE
    assert produce(connection)
    assert 60_000 <= world.now_ms < 62_000


@pytest.mark.parametrize("client", SENDING)
def test_with_no_time_to_wait_it_looks_once_and_gives_a_silent_program_its_time(
    world: World, client: Callable[[Connection], object]
) -> None:
    look = FakeLook(world)
    with pytest.raises(Unreachable):
        client(connection_in(world, look, wait_ms=0))
    assert (len(look.looks_ms), world.now_ms) == (1, 1)
    with pytest.raises(Unreachable, match="says nothing"):
        client(connection_in(world, FakeLook(world, problem=SILENT), wait_ms=0))
    assert 1_000 < world.now_ms < 2_000


def test_a_consumer_polls_on_while_it_waits(world: World) -> None:
    FakeCluster(world).group.give(0)
    look = FakeLook(world, up_at_ms=60_000)
    consumer = Consumer(connection_in(world, look, wait_ms=None), group_id="g")
    consumer.subscribe(["t"])
    while not consumer.assignment():
        assert not consumer.poll(timeout_ms=1_000)
    assert 60_000 <= world.now_ms < 64_000


def test_a_consumer_that_was_told_may_poll_again(world: World) -> None:
    FakeCluster(world).group.give(0)
    consumer = Consumer(connection_in(world, FakeLook(world, up_at_ms=5_000)), group_id="g")
    consumer.subscribe(["t"])
    told = 0
    while not consumer.assignment():
        try:
            consumer.poll(timeout_ms=1_000)
        except Unreachable:
            told += 1
    assert 2 <= told <= 4


def test_the_contact_is_made_once_for_all_that_share_a_connection(world: World) -> None:
    look = FakeLook(world, up_at_ms=0)
    connection = connection_in(world, look)
    for client in SENDING:
        assert client(connection)
        world.sent.clear()
        if client is administer:
            Admin(connection).delete_topic("new")
    assert len(look.looks_ms) == 1
    assert connection.transport is world, "nothing stands in the way of later requests"


@pytest.mark.parametrize("client", [produce, commit])
def test_once_connected_it_tries_until_its_deadline(world: World, client: Callable[[Connection], object]) -> None:
    look = FakeLook(world, up_at_ms=0)
    connection = connection_in(world, look)
    Admin(connection).describe_topic("t")
    world.weather = lambda _: Fault.LOST_REQUEST if world.now_ms < 30_000 else Fault.NONE
    world.sent.clear()
    client(connection)
    assert world.now_ms >= 30_000
    assert len(world.sent) < 30 + 30 * 2, "a dead server is asked about once in a second"
    assert len(look.looks_ms) == 1


def test_what_was_never_sent_is_not_unknown_however_long_it_was_tried(world: World) -> None:
    connection = connection_in(world, FakeLook(world, up_at_ms=0))
    admin = Admin(connection, deadline_ms=30_000)
    admin.describe_topic("t")
    world.sent.clear()
    world.answer(Method.CREATE_TOPICS, *[Loss("UNAVAILABLE", "failed to connect", is_without_effect=True)] * 100)
    with pytest.raises(Retriable, match="failed to connect") as failed:
        admin.create_topic("new")
    assert (type(failed.value), failed.value.lost_attempts) == (Retriable, 0)
    assert 20 < len(world.sent) < 60
    world.scripted.clear()
    world.answer(Method.CREATE_TOPICS, *[Loss("UNAVAILABLE", "connection reset")] * 100)
    with pytest.raises(OutcomeUnknown):
        admin.create_topic("new")


def test_a_request_that_is_taken_back_meanwhile_is_not_sent(world: World) -> None:
    connection = connection_in(world, FakeLook(world, up_at_ms=1_000), wait_ms=None)
    answers: list[Any] = []
    request = log.DescribeTopicsRequest()
    calls = [
        connection.transport.start(DESCRIBE_TOPICS, request, timeout_ms=9_000, on_done=answers.append) for _ in range(2)
    ]
    calls[0].cancel()
    world.pause(5_000)
    (cancelled, found) = answers
    assert (cancelled.status, cancelled.is_without_effect) == ("CANCELLED", True)
    assert not found.error_code
    assert len(world.sent) == 1


def test_what_is_left_of_its_time_is_the_time_it_gets(world: World) -> None:
    connection = connection_in(world, FakeLook(world, up_at_ms=4_000), wait_ms=None)
    given_ms: list[int] = []
    start = world.start

    def noting(rpc: Any, request: Any, *, timeout_ms: int, on_done: Callable[[Any], None]) -> Any:
        given_ms.append(timeout_ms)
        return start(rpc, request, timeout_ms=timeout_ms, on_done=on_done)

    world.start = noting  # type: ignore[method-assign]
    connection.transport.start(DESCRIBE_TOPICS, log.DescribeTopicsRequest(), timeout_ms=9_000, on_done=lambda _: None)
    world.pause(8_000)
    assert 4_000 <= given_ms[0] <= 5_000


def test_an_attempt_that_ended_before_the_first_contact_was_certainly_not_sent(world: World) -> None:
    connection = connection_in(world, FakeLook(world), wait_ms=None)
    answers: list[Any] = [
        connection.transport.ask(DESCRIBE_TOPICS, log.DescribeTopicsRequest(), timeout_ms=3_000),
    ]
    connection.transport.start(DESCRIBE_TOPICS, log.DescribeTopicsRequest(), timeout_ms=3_000, on_done=answers.append)
    world.pause(4_000)
    for loss in answers:
        assert (loss.status, loss.is_without_effect, loss.is_final) == ("UNAVAILABLE", True, False)


def test_closing_reports_what_still_waits(world: World) -> None:
    connection = connection_in(world, FakeLook(world), wait_ms=None)
    answers: list[Any] = []
    connection.transport.start(DESCRIBE_TOPICS, log.DescribeTopicsRequest(), timeout_ms=90_000, on_done=answers.append)
    world.pause(2_000)
    connection.close()
    world.settle()
    assert [answer.status for answer in answers] == ["CANCELLED"]
    assert world.is_closed
    assert world.now_ms < 4_000, "no look comes later"
