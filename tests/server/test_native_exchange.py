"""The loop's side of the compiled transport, without a network."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator_runtime.clock import SystemClock
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import CallContext
from coordinator_server.authentication import Presented
from coordinator_server.native_streams import Stream, StreamHandle
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


def no_streams(_method: str, _call: CallContext, _shown: Presented, _handle: StreamHandle) -> Stream:
    raise AssertionError("no stream was opened")


async def test_answers_that_are_there_go_before_new_work_begins() -> None:
    from coordinator_server.native_exchange import Exchange

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
