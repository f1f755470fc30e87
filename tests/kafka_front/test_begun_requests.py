"""The capacity of a listener: requests that have begun, and connections that wait for less."""

from __future__ import annotations

import pytest

from coordinator_runtime.pending import Pending
from coordinator_server.kafka_front.apis import ApiKey
from coordinator_server.kafka_front.exchange import ApiHandler, KafkaExchange
from coordinator_server.kafka_front.messages.fetch_response import FetchResponse
from tests.harness.kafka_line import Line, frame, heartbeat


@pytest.mark.parametrize("limits", [{"begun_bytes_max": 2 * len(heartbeat(1)) - 8}, {"begun_calls_max": 2}])
async def test_beyond_the_capacity_of_the_listener_connections_wait_unread(limits: dict[str, int]) -> None:
    line = Line(**limits)  # type: ignore[arg-type]
    other, other_transport = line.connect()
    line.send(heartbeat(1), heartbeat(2), heartbeat(3))
    other.data_received(heartbeat(4))
    assert [request.group_id for request, _exchange, _reply in line.begun] == ["g", "g"]
    assert not line.transport.is_reading
    assert not other_transport.is_reading
    line.answer(0)
    line.answer(1)
    assert len(line.begun) == 2, "they go on in a turn of their own"
    line.advance(0)
    assert len(line.begun) == 4
    line.answer(2)
    line.answer(3)
    assert line.answered() == [1, 2, 3]
    assert (line.service.begun_requests.held_bytes, line.service.begun_requests.calls_in_work) == (0, 0)
    assert line.transport.is_reading


async def test_a_request_larger_than_the_capacity_begins_alone() -> None:
    line = Line(begun_bytes_max=1)
    line.send(heartbeat(1), heartbeat(2))
    assert len(line.begun) == 1
    line.answer(0)
    line.advance(0)
    assert len(line.begun) == 2


async def test_requests_that_wait_without_work_hold_the_capacity_by_their_bytes() -> None:
    waiting: list[Pending[FetchResponse]] = []

    def wait(_request: object, _exchange: KafkaExchange) -> Pending[FetchResponse]:
        waiting.append(Pending())
        return waiting[-1]

    fetch = frame(ApiKey.FETCH, 4, 1, bytes(21))
    handler = ApiHandler(wait, lambda _request, _exchange, _error: FetchResponse())
    line = Line(handlers={ApiKey.FETCH: handler}, begun_bytes_max=2 * len(fetch), begun_calls_max=1)
    line.send(*[fetch] * 3)
    assert len(waiting) == 2, "more than one, because they are no work"
    assert not line.transport.is_reading
    waiting[0].succeed(FetchResponse())
    line.advance(0)
    assert len(waiting) == 3


async def test_a_client_that_is_gone_holds_no_capacity() -> None:
    line = Line(begun_calls_max=2)
    line.send(heartbeat(1), heartbeat(2), heartbeat(3))
    line.connection.connection_lost(None)
    line.advance(0)
    assert len(line.begun) == 2, "what did not begin does not begin any more"
    assert (line.service.begun_requests.held_bytes, line.service.begun_requests.calls_in_work) == (0, 0)
