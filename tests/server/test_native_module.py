"""The compiled module by itself: what it refuses, what it holds back, how connections end, and that forks are safe."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from grpc import aio

from tests.harness.patience import until

native = pytest.importorskip("txn_native_transport", reason="the compiled transport is not installed (make native)")

HOST = "127.0.0.1"
UNARY = "/a.B/Unary"
STREAM = "/a.B/Stream"
BLOCK = bytes(256 * 1024)


class Seen:
    """A server without a handler: the test reads its events and gives what it likes."""

    def __init__(self, options: dict[str, int]) -> None:
        limits = {
            "message_bytes_max": 1 << 20,
            "stream_credit": 2,
            "waiting_calls_max": 100,
            "waiting_bytes_max": 1 << 20,
            "keepalive_ms": 30_000,
            "keepalive_timeout_ms": 10_000,
            "connection_age_ms_max": 3_600_000,
            "connection_age_grace_ms": 60_000,
            "connections_max": 100,
            "streams_max": 1_000,
            "unauthenticated_max": 100,
        }
        self.server = native.Server(streams=[STREAM], **(limits | options))
        self._came = asyncio.Event()
        self._events: list[tuple[Any, ...]] = []
        asyncio.get_running_loop().add_reader(self.server.fileno(), self._came.set)

    def start(self) -> int:
        """Serve a free port, and return it."""
        listener = socket.create_server((HOST, 0))
        listener.setblocking(False)
        self.port: int = listener.getsockname()[1]
        self.server.start([listener.detach()])
        return self.port

    async def event(self, kind: int) -> tuple[Any, ...]:
        """The next event of the kind, without the kind itself."""
        while True:
            for event in self._events:
                if event[0] == kind:
                    self._events.remove(event)
                    return event[1:]
            await self._came.wait()
            self._came.clear()
            self._events += self.server.take(100)

    async def settled_count(self, kind: int) -> int:
        """Return the number of events of the kind once calls over another connection bring no more."""
        counts: list[int] = []
        async with aio.insecure_channel(f"{HOST}:{self.port}", [("grpc.use_local_subchannel_pool", 1)]) as channel:
            while len(counts) < 20 or counts[-20] != counts[-1]:
                call = channel.unary_unary(UNARY)(b"")
                (token, *_) = await self.event(native.CALL)
                self.server.give([(native.REPLY, token, b"", False)])
                await call
                counts.append(self.waiting(kind))
        return counts[-1]

    def waiting(self, kind: int) -> int:
        self._events += self.server.take(100)
        return sum(event[0] == kind for event in self._events)


@asynccontextmanager
async def serve(**options: int) -> AsyncIterator[tuple[Seen, aio.Channel]]:
    seen = Seen(options)
    async with aio.insecure_channel(f"{HOST}:{seen.start()}") as channel:
        yield seen, channel
    seen.server.stop(0)
    await seen.event(native.STOPPED)
    asyncio.get_running_loop().remove_reader(seen.server.fileno())


async def test_calls_that_find_the_queue_full_are_told_so_and_did_not_begin() -> None:
    async with serve(waiting_calls_max=1) as (seen, channel):
        calls = [channel.unary_unary(UNARY)(b"%d" % number) for number in range(3)]
        await until(lambda: sum(call.done() for call in calls) == 2)
        token, method, body, host, _connection, ms_left, _shown = await seen.event(native.CALL)
        assert (method, host, ms_left) == (UNARY, HOST, None)
        assert seen.waiting(native.CALL) == 0
        seen.server.give([(native.REPLY, token, body, False)])
        codes = [await call.code() for call in calls]
        assert sorted(code.value[0] for code in codes) == [0, 8, 8]


COPIED_BYTES_MAX = 32 * 1024
"""From here on an answer is not copied on its way out (`pieces.rs`)."""


@pytest.mark.parametrize("size", [0, COPIED_BYTES_MAX - 1, COPIED_BYTES_MAX, COPIED_BYTES_MAX + 1, 1 << 20])
async def test_an_answer_of_any_size_arrives_whole_and_ends_well(size: int) -> None:
    said = bytes(number % 251 for number in range(size))
    async with serve() as (seen, channel):
        call = channel.unary_unary(UNARY)(b"")
        (token, *_) = await seen.event(native.CALL)
        seen.server.give([(native.REPLY, token, said, True)])
        assert await call == said
        assert await call.code() is grpc.StatusCode.OK
        assert await seen.event(native.TAKEN) == (token,)


LARGE = 3 * COPIED_BYTES_MAX


def _pieces() -> list[bytes | memoryview]:
    """Pieces of every kind, without another reference to their owners."""
    stored = [bytes([number]) * LARGE for number in (1, 2, 3)]
    changing = memoryview(bytearray(b"c" * LARGE))
    views = [memoryview(each)[57:-9] for each in stored]
    return [b"", b"a", views[0], b"b", views[1][5:9], views[1], views[2], changing, changing[1::2], stored[0], b"end"]


@pytest.mark.parametrize("pieces", [[], [b"one"], [b"x" * LARGE], [b"a", b"b"], _pieces(), _pieces()[:-1]])
async def test_an_answer_in_pieces_arrives_as_their_bytes_one_after_the_other(pieces: list[bytes]) -> None:
    said = b"".join(map(bytes, pieces))
    async with serve() as (seen, channel):
        call = channel.unary_unary(UNARY)(b"")
        (token, *_) = await seen.event(native.CALL)
        seen.server.give([(native.REPLY, token, pieces.copy(), True)])
        for piece in pieces:
            # A piece that can change is copied when it is given.
            if isinstance(piece, memoryview) and not piece.readonly:
                piece[:] = bytes(len(piece))
        pieces.clear()
        gc.collect()
        assert await call == said
        assert await call.code() is grpc.StatusCode.OK
        assert await seen.event(native.TAKEN) == (token,)


async def test_a_large_piece_leaves_from_where_it_lies_and_is_let_go() -> None:
    stored = bytes(LARGE)
    references = sys.getrefcount(stored)
    async with serve() as (seen, channel):
        call = channel.unary_unary(UNARY)(b"")
        (token, *_) = await seen.event(native.CALL)
        seen.server.give([(native.REPLY, token, [b"a", memoryview(stored)[57:], b"b"], True)])
        assert sys.getrefcount(stored) == references + 1
        assert len(await call) == len(stored) - 57 + 2
        await seen.event(native.TAKEN)
        seen.server.take(1)
        assert sys.getrefcount(stored) == references


async def test_answers_in_pieces_are_bounded_as_a_whole() -> None:
    async with serve(message_bytes_max=2 * LARGE) as (seen, channel):
        call = channel.unary_unary(UNARY)(b"")
        (token, *_) = await seen.event(native.CALL)
        seen.server.give([(native.REPLY, token, [bytes(LARGE), bytes(LARGE), b"a"], True)])
        assert await call.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert await seen.event(native.TAKEN) == (token,)


async def test_a_caller_that_reads_nothing_is_not_sent_more_than_buffers_hold() -> None:
    async with serve() as (seen, channel):
        stream = channel.stream_stream(STREAM)()
        await stream.write(b"begin")
        (token, *_) = await seen.event(native.STREAM)
        blocks = 60
        seen.server.give([(native.SEND, token, BLOCK, True) for _ in range(blocks)])
        taken = await seen.settled_count(native.SENT)
        assert 0 < taken < blocks - 20, "what the network did not take waits, and Python can see it"
        seen.server.give([(native.END, token, 0, "")])
        received = [len(body) async for body in stream]
        assert received == [len(BLOCK)] * blocks
        assert await stream.code() is grpc.StatusCode.OK


async def test_a_stream_is_not_read_beyond_its_credit() -> None:
    async with serve() as (seen, channel):
        stream = channel.stream_stream(STREAM)()
        for number in range(5):
            await stream.write(b"%d" % number)
        (token, *_) = await seen.event(native.STREAM)
        assert [(await seen.event(native.MESSAGE))[1] for _ in range(2)] == [b"0", b"1"]
        # A whole round trip of another call: what was to come would be there.
        other = channel.unary_unary(UNARY)(b"")
        (call, *_) = await seen.event(native.CALL)
        assert seen.waiting(native.MESSAGE) == 0
        seen.server.give([(native.REPLY, call, b"", False), (native.CREDIT, token, 3)])
        await other
        assert [(await seen.event(native.MESSAGE))[1] for _ in range(3)] == [b"2", b"3", b"4"]
        stream.cancel()
        assert await seen.event(native.GONE) == (token,)


@pytest.mark.parametrize("method", [UNARY, STREAM])
async def test_a_message_that_is_too_large_ends_its_call_alone(method: str) -> None:
    async with serve(message_bytes_max=1000) as (seen, channel):
        if method == UNARY:
            call = channel.unary_unary(UNARY)(bytes(1001))
        else:
            call = channel.stream_stream(STREAM)()
            await call.write(bytes(1001))
            (token, *_) = await seen.event(native.STREAM)
            assert await seen.event(native.GONE) == (token,)
        assert await call.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "1000" in await call.details()
        neighbour = channel.unary_unary(UNARY)(bytes(1000))
        (token, *_) = await seen.event(native.CALL)
        seen.server.give([(native.REPLY, token, bytes(1001), False)])
        assert await neighbour.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "1001" in await neighbour.details()


@pytest.mark.slow
async def test_an_old_connection_is_asked_to_end_and_then_cut() -> None:
    async with serve(connection_age_ms_max=300, connection_age_grace_ms=300) as (seen, channel):
        stream = channel.stream_stream(STREAM)()
        await stream.write(b"stays")
        (token, *_) = await seen.event(native.STREAM)
        began = asyncio.get_running_loop().time()
        assert await seen.event(native.GONE) == (token,)
        assert 0.2 < asyncio.get_running_loop().time() - began < 5
        # The channel finds its way back by itself.
        call = channel.unary_unary(UNARY)(b"again", wait_for_ready=True)
        (token, *_) = await seen.event(native.CALL)
        seen.server.give([(native.REPLY, token, b"there", False)])
        assert await call == b"there"


async def test_a_forked_child_is_refused_in_words_and_its_parent_goes_on() -> None:
    async with serve() as (seen, channel):
        call = channel.unary_unary(UNARY)(b"a")
        (token, *_) = await seen.event(native.CALL)
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            for use in (lambda: seen.server.take(1), lambda: seen.server.give([]), lambda: seen.server.stop(0)):
                try:
                    use()
                except RuntimeError as refusal:
                    os.write(writer, f"{refusal}\n".encode())
            os._exit(0)
        os.waitpid(child, 0)  # noqa: ASYNC222  it ends at once
        told = os.read(reader, 10_000).decode()
        assert told.count("does not work in a forked process") == 3
        os.close(writer)
        os.close(reader)
        seen.server.give([(native.REPLY, token, b"b", False)])
        assert await call == b"b"


async def test_what_cannot_be_given_is_refused() -> None:
    async with serve() as (seen, _channel):
        with pytest.raises(ValueError, match="99 is nothing that can be given"):
            seen.server.give([(99, 1)])
        with pytest.raises(TypeError):
            seen.server.give([(native.REPLY, 1, "text", False)])
        with pytest.raises(TypeError):
            seen.server.give([(native.REPLY, 1, ["text"], False)])
        with pytest.raises(RuntimeError, match="starts once"):
            seen.server.start([])


async def test_a_thread_that_cannot_serve_ends_and_says_why() -> None:
    broken = Seen({})
    broken.server.start([os.open(os.devnull, os.O_RDONLY)])
    (failure,) = await broken.event(native.STOPPED)
    assert failure
    asyncio.get_running_loop().remove_reader(broken.server.fileno())


async def test_a_deadline_of_years_is_one() -> None:
    async with serve() as (seen, channel):
        call = channel.unary_unary(UNARY)(b"", timeout=1e9)
        (token, *_, ms_left, _shown) = await seen.event(native.CALL)
        assert ms_left > 1e9
        seen.server.give([(native.REPLY, token, b"there", False)])
        assert await call == b"there"
