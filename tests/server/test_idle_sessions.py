"""Sessions on which nothing happens: they end, over both transports, without a loss."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
import pytest
from grpc import aio

from coordinator_api.v1 import session_pb2, session_pb2_grpc, transaction_pb2
from coordinator_client import Admin, AsyncProducer, Connection, read
from coordinator_client.transport.transport import SESSION
from coordinator_server.grpc_front.transports import TransportOptions
from coordinator_server.idle_sessions import IdleSessions
from coordinator_server.listeners import UNAUTHENTICATED, Listener, Listeners
from tests.harness.in_process import in_process_server
from tests.harness.manual_clock import ManualClock
from tests.server.asking_server import HOST, serving
from tests.server.fake_servicer import FakeTransactionServicer

IDLE_MS = 60_000

Stream = aio.StreamStreamCall[session_pb2.SessionRequest, session_pb2.SessionResponse]


@asynccontextmanager
async def a_server(clock: ManualClock) -> AsyncIterator[tuple[Listeners, FakeTransactionServicer, aio.Channel]]:
    options = TransportOptions(1 << 20, idle=IdleSessions(clock, IDLE_MS))
    listener = Listener(listen=f"{HOST}:0")
    async with (
        serving(listener, UNAUTHENTICATED, clock=clock, options=options) as (listeners, servicer),
        aio.insecure_channel(str(listeners.first.address)) as channel,
    ):
        yield listeners, servicer, channel


async def opened(channel: aio.Channel) -> Stream:
    """A session that was greeted."""
    stream = session_pb2_grpc.SessionServiceStub(channel).Session()
    assert (await stream.read()).HasField("hello")
    return stream


def request(*methods: str) -> session_pb2.SessionRequest:
    body = transaction_pb2.EndTxnRequest(transactional_id="a").SerializeToString()
    calls = [session_pb2.SessionCall(correlation_id=1, method=method, body=body) for method in methods]
    return session_pb2.SessionRequest(calls=calls)


def let_pass(time_ms: int, listeners: Listeners, clock: ManualClock) -> None:
    """All that the server does of itself in that time, every five seconds."""
    for _ in range(0, time_ms, 5_000):
        clock.advance(5_000)
        listeners.end_idle_sessions()


async def has_ended(stream: Stream) -> bool:
    """Return whether the stream announced the end of the session, and ended with nothing amiss."""
    told = await stream.read()
    return told.is_draining and await stream.read() is aio.EOF and await stream.code() is grpc.StatusCode.OK


async def test_a_session_on_which_nothing_happens_is_told_and_ends() -> None:
    clock = ManualClock()
    async with a_server(clock) as (listeners, _servicer, channel):
        first = await opened(channel)
        let_pass(IDLE_MS // 2, listeners, clock)
        second = await opened(channel)
        let_pass(IDLE_MS // 2 - 5_000, listeners, clock)
        # Neither was idle for long enough: both answer still.
        for stream in (first, second):
            await stream.write(request("FindCoordinator"))
            assert (await stream.read()).answers
        let_pass(IDLE_MS // 2, listeners, clock)
        await second.write(request())
        await second.write(request("FindCoordinator"))
        assert (await second.read()).answers
        let_pass(IDLE_MS // 2 + 10_000, listeners, clock)
        assert await has_ended(first)
        assert not second.done()


async def test_a_session_that_waits_for_an_answer_is_not_idle() -> None:
    clock = ManualClock()
    async with a_server(clock) as (listeners, servicer, channel):
        stream = await opened(channel)
        await stream.write(request("EndTxn"))
        await servicer.arrived.wait()
        let_pass(IDLE_MS * 3, listeners, clock)
        servicer.waiting[0].succeed(transaction_pb2.EndTxnResponse(csn=7))
        (answer,) = (await stream.read()).answers
        assert transaction_pb2.EndTxnResponse.FromString(answer.body).csn == 7
        let_pass(10_000, listeners, clock)
        assert await has_ended(stream)


@pytest.mark.parametrize("pause_ms", [IDLE_MS // 2, IDLE_MS * 3])
async def test_a_producer_that_pauses_goes_on_with_its_transaction(pause_ms: int) -> None:
    """Its session ends meanwhile; its transaction and its identity do not."""
    clock = ManualClock()
    async with in_process_server(None, clock, session_idle_ms_max=IDLE_MS) as server:
        connection = Connection(str(server.address), transport=SESSION)
        await asyncio.to_thread(Admin(connection).create_topic, "t")
        async with AsyncProducer(connection, transactional_id="p", transaction_timeout_ms=900_000) as producer:
            async with producer.transaction() as txn:
                await txn.send("t", b"before")
                await txn.flush()
                let_pass(pause_ms, server.listeners, clock)
                await txn.send("t", b"after")
            let_pass(pause_ms, server.listeners, clock)
            async with producer.transaction() as txn:
                await txn.send("t", b"in the next one")
        found = await asyncio.to_thread(lambda: [record.value for record in read("t", connection)])
        await asyncio.to_thread(connection.close)
        assert found == [b"before", b"after", b"in the next one"]
