"""The paths of a session and of bulk reads, and the compiled path with a server that misbehaves."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import ModuleType

import grpc
import pytest
from grpc import aio

import coordinator_client
from coordinator_api.v1 import log_pb2 as log
from coordinator_client.calls import FETCH
from coordinator_client.errors import Loss
from coordinator_client.fetch_reply import FetchReply
from coordinator_client.loops import AsyncioLoop
from coordinator_client.transport import connection
from coordinator_client.transport.connection import open_best_channel, open_grpc_channel
from coordinator_client.transport.grpc_transport import SESSION_PATH, GrpcChannel
from coordinator_client.transport.session_transport import Channel, OpenChannel
from coordinator_client.transport.transport import MESSAGE_BYTES_MAX, Attempt
from tests.harness.patience import until

needs_compiled = pytest.mark.skipif(
    importlib.util.find_spec("txn_native_transport") is None,
    reason="the compiled transport is not installed (make native)",
)

_Context = aio.ServicerContext[bytes, bytes]
Behaviour = Callable[[AsyncIterator[bytes], _Context], Awaitable[None]]


class User:
    """Sends messages one at a time on request, and remembers those that come."""

    def __init__(self, *messages: bytes) -> None:
        self._unsent = list(messages)
        self.came: list[bytes] = []
        self.end: asyncio.Future[Loss] = asyncio.get_running_loop().create_future()
        self.waits_for = 0
        self.has_all = asyncio.Event()

    def take(self) -> bytes | None:
        return self._unsent.pop(0) if self._unsent else None

    def on_message(self, body: bytes) -> None:
        if body == b"rubbish":
            raise ValueError("7 bytes came that are no SessionResponse")
        self.came.append(body)
        if len(self.came) == self.waits_for:
            self.has_all.set()

    def on_end(self, loss: Loss) -> None:
        self.end.set_result(loss)

    async def ended(self) -> Loss:
        return await self.end


@asynccontextmanager
async def server(behaviour: Behaviour) -> AsyncIterator[str]:
    """A gRPC server whose session method behaves so; yields its endpoint."""
    options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    running = aio.server(options=options)
    handler = grpc.stream_stream_rpc_method_handler(behaviour)
    service, method = SESSION_PATH[1:].split("/")
    running.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: handler}),))
    port = running.add_insecure_port("127.0.0.1:0")
    await running.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await running.stop(0)


@pytest.fixture(params=[open_grpc_channel, pytest.param(open_best_channel, marks=needs_compiled)])
def open_channel(request: pytest.FixtureRequest) -> OpenChannel:
    """Every way there is."""
    chosen: OpenChannel = request.param
    return chosen


def opened(open_channel: OpenChannel, endpoint: str) -> Channel:
    return open_channel(endpoint, AsyncioLoop())


async def echo(requests: AsyncIterator[bytes], context: _Context) -> None:
    async for body in requests:
        await context.write(body)


async def test_many_messages_go_and_come_in_order(open_channel: OpenChannel) -> None:
    said = [b"%d" % number for number in range(200)]
    user = User(*said)
    user.waits_for = len(said)
    async with server(echo) as endpoint:
        channel = opened(open_channel, endpoint)
        stream = channel.open_stream(user)
        await user.has_all.wait()
        stream.close()
        channel.close()
    assert user.came == said
    assert not user.end.done(), "who ends a stream himself is told nothing"


async def test_a_server_that_ends_the_stream_well_has_ended_the_session(open_channel: OpenChannel) -> None:
    async def leave(_requests: AsyncIterator[bytes], context: _Context) -> None:
        await context.write(b"hello")

    user = User(b"hi")
    async with server(leave) as endpoint:
        channel = opened(open_channel, endpoint)
        channel.open_stream(user)
        # gRPC's C core sometimes takes it ill that the server was the first to end: INTERNAL.
        assert (await user.ended()).status in {"UNAVAILABLE", "INTERNAL"}
        assert user.came == [b"hello"]
        channel.close()


async def test_the_status_of_a_refusal_is_told(open_channel: OpenChannel) -> None:
    async def refuse(_requests: AsyncIterator[bytes], context: _Context) -> None:
        await context.abort(grpc.StatusCode.PERMISSION_DENIED, "not you")

    user = User(b"hi")
    async with server(refuse) as endpoint:
        channel = opened(open_channel, endpoint)
        channel.open_stream(user)
        assert await user.ended() == Loss("PERMISSION_DENIED", "not you")
        channel.close()


async def test_a_server_without_sessions_is_recognised(open_channel: OpenChannel) -> None:
    running = aio.server()
    port = running.add_insecure_port("127.0.0.1:0")
    await running.start()
    user = User(b"hi")
    channel = opened(open_channel, f"127.0.0.1:{port}")
    channel.open_stream(user)
    assert (await user.ended()).status == "UNIMPLEMENTED"
    channel.close()
    await running.stop(0)


async def test_without_a_listener_the_stream_ends_at_once_and_a_later_one_finds_the_server(
    open_channel: OpenChannel,
) -> None:
    async with server(echo) as endpoint:
        pass
    channel = opened(open_channel, endpoint)
    user = User(b"hi")
    channel.open_stream(user)
    assert (await user.ended()).status == "UNAVAILABLE"
    channel.close()


async def test_bytes_that_are_no_message_end_the_stream(open_channel: OpenChannel) -> None:
    was_cut = asyncio.Event()

    async def talk_rubbish(requests: AsyncIterator[bytes], context: _Context) -> None:
        try:
            await context.write(b"rubbish")
            async for _ in requests:
                pass
        finally:
            was_cut.set()

    user = User(b"hi")
    async with server(talk_rubbish) as endpoint:
        channel = opened(open_channel, endpoint)
        channel.open_stream(user)
        assert (await user.ended()).status == "INTERNAL"
        await was_cut.wait()
        channel.close()


async def test_a_message_beyond_the_limit_ends_the_stream(open_channel: OpenChannel) -> None:
    async def say_too_much(requests: AsyncIterator[bytes], context: _Context) -> None:
        await context.write(bytes(MESSAGE_BYTES_MAX + 1))
        # The client ends it: where the server does so first, its end may overtake the refusal (see above).
        async for _ in requests:
            pass

    user = User(b"hi")
    async with server(say_too_much) as endpoint:
        channel = opened(open_channel, endpoint)
        channel.open_stream(user)
        assert (await user.ended()).status == "RESOURCE_EXHAUSTED"
        channel.close()


async def test_a_closed_line_cuts_its_streams(open_channel: OpenChannel) -> None:
    has_begun, was_cut = asyncio.Event(), asyncio.Event()

    async def listen(requests: AsyncIterator[bytes], _context: _Context) -> None:
        try:
            async for _ in requests:
                has_begun.set()
        finally:
            was_cut.set()

    user = User(b"hi")
    async with server(listen) as endpoint:
        channel = opened(open_channel, endpoint)
        stream = channel.open_stream(user)
        await has_begun.wait()
        stream.close()
        channel.close()
        await was_cut.wait()
    assert not user.end.done()


@needs_compiled
async def test_a_line_whose_thread_broke_goes_on_over_grpc_aio() -> None:
    from coordinator_client.transport.native_channel import NativeChannel

    lost, user = User(b"hi"), User(b"again")
    user.waits_for = 1
    async with server(echo) as endpoint:
        channel = NativeChannel(endpoint, AsyncioLoop())
        channel.open_stream(lost)
        channel.on_stopped("a defect")
        assert await lost.ended() == Loss("UNAVAILABLE", "the compiled transport stopped: a defect")
        channel.open_stream(user)
        await user.has_all.wait()
        channel.close()
    assert user.came == [b"again"]


Serve = Callable[[bytes, _Context], Awaitable[bytes]]


@asynccontextmanager
async def log_server(serve: Serve) -> AsyncIterator[str]:
    """A gRPC server whose Fetch behaves so; yields its endpoint."""
    running = aio.server(options=[("grpc.max_send_message_length", -1)])
    handler = grpc.unary_unary_rpc_method_handler(serve)
    service, method = FETCH.path[1:].split("/")
    running.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: handler}),))
    port = running.add_insecure_port("127.0.0.1:0")
    await running.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await running.stop(0)


class Bulk:
    """A Fetch, and everything that is reported of it."""

    def __init__(self, channel: Channel, *, timeout_ms: int = 60_000) -> None:
        self.reported: list[FetchReply | Loss] = []
        self._is_reported = asyncio.Event()
        request = log.FetchRequest(max_bytes=7)
        self.call: Attempt = channel.call(FETCH, request, timeout_ms=timeout_ms, on_done=self._report)

    def _report(self, answer: FetchReply | Loss) -> None:
        self.reported.append(answer)
        self._is_reported.set()

    async def ended(self) -> FetchReply | Loss:
        await self._is_reported.wait()
        return self.reported[0]


PAYLOADS = [b"", b"a", b"b" * 70_000, b"c" * 5_000_000]


async def test_a_bulk_read_is_answered_with_what_the_server_said(open_channel: OpenChannel) -> None:
    asked: list[bytes] = []

    async def serve(request: bytes, _context: _Context) -> bytes:
        asked.append(request)
        response = log.FetchResponse(throttle_ms=3)
        result = response.results.add(topic="t", next_offset=40)
        for number, payload in enumerate(PAYLOADS):
            result.batches.add(base_offset=10 * number, payload=payload)
        return response.SerializeToString()

    async with log_server(serve) as endpoint:
        channel = opened(open_channel, endpoint)
        bulks = [Bulk(channel) for _ in range(3)]
        replies = [await bulk.ended() for bulk in bulks]
        channel.close()
    for reply in replies:
        assert isinstance(reply, FetchReply)
        assert reply.throttle_ms == 3
        assert [bytes(batch.payload) for batch in reply.results[0].batches] == PAYLOADS
    assert asked == [log.FetchRequest(max_bytes=7).SerializeToString()] * 3
    assert [len(bulk.reported) for bulk in bulks] == [1, 1, 1]


async def test_a_refused_bulk_read_is_told_the_status(open_channel: OpenChannel) -> None:
    async def refuse(_request: bytes, context: _Context) -> bytes:
        await context.abort(grpc.StatusCode.PERMISSION_DENIED, "not you")

    async with log_server(refuse) as endpoint:
        channel = opened(open_channel, endpoint)
        assert await Bulk(channel).ended() == Loss("PERMISSION_DENIED", "not you")
        channel.close()


async def test_a_bulk_read_without_a_listener_is_lost(open_channel: OpenChannel) -> None:
    async with server(echo) as endpoint:
        pass
    channel = opened(open_channel, endpoint)
    loss = await Bulk(channel).ended()
    assert isinstance(loss, Loss)
    assert loss.status == "UNAVAILABLE"
    channel.close()


@pytest.mark.parametrize(
    ("said", "status"), [(b"\xff", "INTERNAL"), (bytes(MESSAGE_BYTES_MAX + 1), "RESOURCE_EXHAUSTED")]
)
async def test_a_bulk_answer_that_cannot_be_used_is_lost(open_channel: OpenChannel, said: bytes, status: str) -> None:
    async def serve(_request: bytes, _context: _Context) -> bytes:
        return said

    async with log_server(serve) as endpoint:
        channel = opened(open_channel, endpoint)
        loss = await Bulk(channel).ended()
        assert isinstance(loss, Loss)
        assert loss.status == status
        channel.close()


class Hanging:
    """A server that never answers, and counts the calls that wait."""

    def __init__(self) -> None:
        self.waiting = 0

    async def serve(self, _request: bytes, _context: _Context) -> bytes:
        self.waiting += 1
        try:
            await asyncio.Event().wait()
        finally:
            self.waiting -= 1
        raise AssertionError("it is never set")


async def test_a_bulk_read_that_is_not_answered_in_time_is_lost(open_channel: OpenChannel) -> None:
    async with log_server(Hanging().serve) as endpoint:
        channel = opened(open_channel, endpoint)
        loss = await Bulk(channel, timeout_ms=50).ended()
        assert isinstance(loss, Loss)
        assert loss.status == "DEADLINE_EXCEEDED"
        channel.close()


async def test_a_bulk_read_that_is_given_up_is_reported_once_and_the_server_hears_of_it(
    open_channel: OpenChannel,
) -> None:
    hanging = Hanging()
    async with log_server(hanging.serve) as endpoint:
        channel = opened(open_channel, endpoint)
        bulk = Bulk(channel)
        await until(lambda: hanging.waiting == 1)
        bulk.call.cancel()
        bulk.call.cancel()
        assert await bulk.ended() == Loss("CANCELLED", "cancelled by the client")
        await until(lambda: hanging.waiting == 0)
        channel.close()
    assert len(bulk.reported) == 1


async def test_a_channel_that_is_closed_reports_its_bulk_reads_as_lost(open_channel: OpenChannel) -> None:
    hanging = Hanging()
    async with log_server(hanging.serve) as endpoint:
        channel = opened(open_channel, endpoint)
        bulk = Bulk(channel)
        await until(lambda: hanging.waiting == 1)
        channel.close()
        loss = await bulk.ended()
        assert isinstance(loss, Loss)
        assert loss.status == "CANCELLED"


@needs_compiled
async def test_a_bulk_read_whose_thread_broke_is_lost_and_the_next_goes_over_grpc_aio() -> None:
    from coordinator_client.transport.native_channel import NativeChannel

    hanging = Hanging()
    async with log_server(hanging.serve) as endpoint:
        channel = NativeChannel(endpoint, AsyncioLoop())
        lost = Bulk(channel)
        channel.on_stopped("a defect")
        assert await lost.ended() == Loss("UNAVAILABLE", "the compiled transport stopped: a defect")
        Bulk(channel)
        await until(lambda: hanging.waiting > 0)
        channel.close()


@pytest.mark.parametrize("endpoint", ["unix:/run/x.sock", "dns:///h:1", "[fe80::1%eth0]:7070"])
async def test_what_only_grpc_can_reach_is_left_to_it(endpoint: str) -> None:
    channel = open_best_channel(endpoint, AsyncioLoop())
    assert isinstance(channel, GrpcChannel)
    channel.close()


async def test_a_module_of_another_interface_is_as_good_as_none(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    old = ModuleType("txn_native_transport")
    monkeypatch.setattr(old, "INTERFACE", 99, raising=False)
    monkeypatch.setitem(sys.modules, old.__name__, old)
    monkeypatch.delitem(sys.modules, "coordinator_client.transport.native_channel", raising=False)
    monkeypatch.delattr(coordinator_client.transport, "native_channel", raising=False)
    connection._compiled.cache_clear()
    channel = open_best_channel("127.0.0.1:1", AsyncioLoop())
    connection._compiled.cache_clear()
    assert isinstance(channel, GrpcChannel)
    channel.close()
    assert "has interface 99" in caplog.text


@needs_compiled
async def test_the_compiled_way_is_taken_where_it_is_installed() -> None:
    channel = open_best_channel("127.0.0.1:1", AsyncioLoop())
    assert not isinstance(channel, GrpcChannel)
    channel.close()
