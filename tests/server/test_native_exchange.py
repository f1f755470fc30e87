"""The loop's side of the compiled transport, without a network."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator_protocol.wire import Pieces
from coordinator_runtime.clock import SystemClock
from coordinator_runtime.pending import Pending, settled
from coordinator_runtime.ports import CallContext
from coordinator_server.grpc_front.native_streams import LoopStream, StreamHandle
from coordinator_server.security.authentication import Presented
from coordinator_server.traffic.answer_bytes import AnswerBytes, AnswerLimits
from tests.harness.one_by_one import OneByOne

native = pytest.importorskip("txn_native_transport", reason="the compiled transport is not installed (make native)")


class Network:
    """Stands for `native.Server`: a test says what came, and looks at what was given."""

    def __init__(self) -> None:
        self.came: list[tuple[Any, ...]] = []
        self.given: list[tuple[object, ...]] = []

    def take(self, _count: int) -> list[tuple[Any, ...]]:
        came, self.came = self.came, []
        return came

    def give(self, given: list[tuple[object, ...]]) -> None:
        self.given += given


def no_streams(_method: str, _call: CallContext, _shown: Presented, _handle: StreamHandle) -> LoopStream:
    raise AssertionError("no stream was opened")


async def test_answers_that_are_there_go_before_new_work_begins() -> None:
    from coordinator_server.grpc_front.native_exchange import Exchange

    network = Network()
    begun: list[Pending[bytes]] = []
    given_when_begun: list[int] = []

    def handler(_method: str, _body: bytes, _call: CallContext) -> Pending[bytes]:
        given_when_begun.append(len(network.given))
        begun.append(Pending())
        return begun[-1]

    exchange = Exchange(network, SystemClock(), OneByOne(handler), no_streams)
    network.came = [(native.CALL, 1, "/a.B/C", b"", "host", 7, None, None)]
    exchange.on_arrivals()
    begun[0].succeed(b"first")
    network.came = [(native.CALL, 2, "/a.B/C", b"", "host", 7, None, None)]
    exchange.on_arrivals()
    assert given_when_begun == [0, 1]
    assert network.given == [(native.REPLY, 1, b"first", False)]


async def test_pieces_are_handed_over_as_they_are_and_counted_as_a_whole() -> None:
    from coordinator_server.grpc_front.native_exchange import Exchange

    network, room = Network(), AnswerBytes(AnswerLimits())
    stored = bytes(3_000)
    pieces = [b"a", memoryview(stored)[1:], stored]

    def handler(_method: str, _body: bytes, _call: CallContext) -> Pending[Any]:
        return settled(Pieces(pieces, 6_000) + b"tag")

    exchange = Exchange(network, SystemClock(), OneByOne(handler), no_streams, room)
    network.came = [(native.CALL, 1, "/a.B/C", b"", "host", 7, None, None)]
    exchange.on_arrivals()
    ((kind, token, given, wants_taken),) = network.given
    assert (kind, token, wants_taken) == (native.REPLY, 1, True)
    assert given == [*pieces, b"tag"]
    assert given[1].obj is stored
    assert room.held_bytes == 6_003
    network.came = [(native.TAKEN, 1)]
    exchange.on_arrivals()
    assert room.held_bytes == 0
