"""Quotas of Kafka's clients, with the metering that servers have: served, told of the pause, and not read meanwhile.

Source: KIP-219.
"""

from __future__ import annotations

import dataclasses
import importlib
from typing import Any

import pytest

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.pending import Pending, settled
from coordinator_runtime.ports import Level
from coordinator_server.kafka_front.apis import APIS, ApiKey
from coordinator_server.kafka_front.endpoints import codec_of
from coordinator_server.kafka_front.errors import code_for
from coordinator_server.kafka_front.exchange import ApiHandler, KafkaExchange
from coordinator_server.kafka_front.messages.heartbeat_response import HeartbeatResponse
from coordinator_server.kafka_front.messages.list_groups_response import ListGroupsResponse
from coordinator_server.kafka_front.messages.tables import API_DEFINITIONS
from coordinator_server.traffic.gatekeeper import Gatekeeper
from coordinator_server.traffic.metering import Keeper, Metering
from coordinator_server.traffic.quotas.budgets import Budgets
from coordinator_server.traffic.quotas.rules import QuotaRow, QuotaRules, Rate
from tests.harness.kafka_line import Line, frame, heartbeat
from tests.harness.kio_messages import kio_class
from tests.harness.manual_clock import ManualClock

KNOWING_QUOTAS = {ApiKey.CREATE_TOPICS: 6, ApiKey.DELETE_TOPICS: 5, ApiKey.CREATE_PARTITIONS: 3}
"""APIs whose clients know THROTTLING_QUOTA_EXCEEDED, from which version on (KIP-599)."""


class Quotas:
    """Quotas of every principal, and the line behind them."""

    def __init__(
        self,
        rates: dict[Rate, int] | None = None,
        levels: dict[Level, int] | None = None,
        handler: ApiHandler | None = None,
    ) -> None:
        clock = ManualClock()
        rules = QuotaRules([QuotaRow(principal="User:*", rates=rates or {}, levels=levels or {})])
        self.budgets = Budgets(clock, lambda: rules)

        def metered(gatekeeper: Gatekeeper, clock: ManualClock) -> Keeper:
            return Metering(gatekeeper, self.budgets, clock, lambda _ms, act: act())

        handlers = None if handler is None else {ApiKey.HEARTBEAT: handler, ApiKey.LIST_GROUPS: handler}
        self.line = Line(keeper=metered, clock=clock, levels=self.budgets, handlers=handlers)

    def held(self, level: Level) -> int:
        return self.budgets.of("User:ANONYMOUS").held[level]


def alive(_request: Any, _exchange: KafkaExchange) -> Any:
    return settled(HeartbeatResponse())


def refused(_request: Any, exchange: KafkaExchange, error: Any) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=exchange.code(error))


def exhaust(line: Line, *, version: int) -> tuple[int, int]:
    """Send requests until the connection is paused. Return the pause in the last answer, and its error code."""
    for number in range(1_000):
        line.send(heartbeat(number, version=version))
        if not line.transport.is_reading:
            body = line.bodies()[-1][4:]
            told = int.from_bytes(body[:4], "big") if version else 0
            return told, int.from_bytes(body[-2:], "big")
    raise AssertionError("never paused")


async def test_a_request_over_the_rate_is_served_and_told_the_pause_and_nothing_is_read_meanwhile() -> None:
    line = Quotas({Rate.REQUESTS: 1}, handler=ApiHandler(alive, refused)).line
    told_ms, code = exhaust(line, version=1)
    assert told_ms > 0
    assert code == 0
    answered = len(line.answered())
    line.send(heartbeat(5_000, version=1))
    line.advance(told_ms - 1)
    assert not line.transport.is_reading
    assert len(line.answered()) == answered, "not begun before the pause is over"
    line.advance(1)
    assert line.answered()[-1] == 5_000, "begun then, whether the client has waited or not"


async def test_a_version_without_a_word_for_the_pause_is_paused_all_the_same() -> None:
    line = Quotas({Rate.REQUESTS: 1}, handler=ApiHandler(alive, refused)).line
    assert exhaust(line, version=0) == (0, 0)


async def test_requests_that_were_sent_together_share_one_pause_the_longest() -> None:
    line = Quotas({Rate.REQUESTS: 1}, handler=ApiHandler(alive, refused)).line
    line.send(*(heartbeat(number, version=1) for number in range(60)))
    assert line.answered() == list(range(60)), "all began together, and are served"
    told_ms = [int.from_bytes(body[4:8], "big") for body in line.bodies()]
    assert told_ms == sorted(told_ms)
    line.advance(max(told_ms) - 1)
    assert not line.transport.is_reading
    line.advance(1)
    assert line.transport.is_reading


async def test_the_longest_pause_counts_whichever_comes_last() -> None:
    line = Line()
    line.send(heartbeat(1), heartbeat(2), heartbeat(3))
    for (_request, _exchange, reply), pause_ms in zip(line.begun, (50, 5_000, 50), strict=True):
        refusal = Refused(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "too much")
        refusal.throttle_ms = pause_ms
        reply.fail(refusal)
    assert line.answered() == [1, 2, 3]
    line.advance(50)
    line.advance(4_949)
    assert not line.transport.is_reading
    line.advance(1)
    assert line.transport.is_reading


async def test_a_client_that_leaves_during_a_pause_leaves_no_timer() -> None:
    line = Quotas({Rate.REQUESTS: 1}, handler=ApiHandler(alive, refused)).line
    exhaust(line, version=1)
    line.connection.connection_lost(None)
    assert all(timer.is_cancelled for timer in line.timers)


async def test_a_call_beyond_a_level_is_refused_with_a_code_that_its_version_knows_and_a_pause() -> None:
    waiting: list[Pending[ListGroupsResponse]] = []

    def wait(_request: Any, _exchange: KafkaExchange) -> Pending[ListGroupsResponse]:
        waiting.append(Pending())
        return waiting[-1]

    def full(_request: Any, exchange: KafkaExchange, error: Any) -> ListGroupsResponse:
        return ListGroupsResponse(error_code=exchange.code(error))

    line = Quotas(levels={Level.CALLS: 1}, handler=ApiHandler(wait, full)).line
    line.send(frame(ApiKey.LIST_GROUPS, 1, 1), frame(ApiKey.LIST_GROUPS, 1, 2))
    (call,) = waiting
    call.succeed(ListGroupsResponse())
    assert line.answered() == [1, 2]
    told_ms = int.from_bytes(line.bodies()[1][4:8], "big")
    assert int.from_bytes(line.bodies()[1][8:10], "big") == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert told_ms > 0
    assert not line.transport.is_reading
    line.advance(told_ms)
    assert line.transport.is_reading


async def test_connections_count_for_their_principal_and_not_as_sessions() -> None:
    quotas = Quotas(levels={Level.CONNECTIONS: 2})
    line = quotas.line
    second, second_transport = line.connect()
    _third, third_transport = line.connect()
    assert third_transport.is_closed
    assert not second_transport.is_closed
    assert quotas.held(Level.CONNECTIONS) == 2
    assert quotas.held(Level.SESSIONS) == 0
    second.connection_lost(None)
    assert quotas.held(Level.CONNECTIONS) == 1


@pytest.mark.parametrize("key", [key for key, api in APIS.items() if api.method is not None], ids=lambda key: key.name)
def test_only_clients_that_know_quotas_hear_of_one(key: ApiKey) -> None:
    full = Refused(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "over the quota")
    api = APIS[key]
    for version in range(api.lowest, api.highest + 1):
        knows = version >= KNOWING_QUOTAS.get(key, version + 1)
        code = code_for(key, version, full)
        assert (code == ErrorCode.THROTTLING_QUOTA_EXCEEDED) is knows, version


@pytest.mark.parametrize("key", [key for key, api in APIS.items() if api.method is not None], ids=lambda key: key.name)
def test_every_version_can_carry_a_pause_or_leaves_it_out(key: ApiKey) -> None:
    api = APIS[key]
    _decode, encode = codec_of(api)
    definition = API_DEFINITIONS[key]
    response_class = getattr(importlib.import_module(definition.response_module), f"{definition.name}Response")
    for version in range(api.lowest, api.highest + 1):
        fields = {field.name for field in dataclasses.fields(kio_class(key, version, is_request=False))}
        if hasattr(response_class(), "throttle_time_ms"):
            plain, paused = (b"".join(encode(response_class(throttle_time_ms=ms), version)) for ms in (0, 77))
            assert (plain != paused) is ("throttle_time" in fields), version
        else:
            assert "throttle_time" not in fields
