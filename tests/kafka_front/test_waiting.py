"""Kafka's protocol at a server that waits for the lease of its store."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest

from coordinator_protocol.errors import CoordinatorError, ErrorCode
from coordinator_runtime.ports import CallContext
from coordinator_server.kafka_front.apis import APIS, ApiKey
from coordinator_server.kafka_front.errors import NOT_CONTROLLER
from coordinator_server.kafka_front.exchange import KafkaExchange
from coordinator_server.kafka_front.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from coordinator_server.kafka_front.messages.describe_cluster_request import DescribeClusterRequest
from coordinator_server.kafka_front.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from coordinator_server.kafka_front.messages.find_coordinator_request import FindCoordinatorRequest
from coordinator_server.kafka_front.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from coordinator_server.kafka_front.messages.tables import API_DEFINITIONS
from tests.harness.kafka_line import Line, frame
from tests.harness.manual_clock import ManualClock
from tests.harness.waiting import OWNER, TTL_MS, WAITS, waiting_server

BOTH = [(1, OWNER.host, OWNER.port), (2, WAITS.host, WAITS.port)]
NAMED = MetadataRequest(topics=(MetadataRequestTopic(name="t"),))
CLOSED = "the connection ends"


class Caller:
    """A client of the server that waits."""

    def __init__(self, *, is_held: bool = True, api_versions_version: int | None = None) -> None:
        self.clock = ManualClock()
        self.endpoints = waiting_server(self.clock, is_held=is_held).kafka_endpoints()
        self._api_versions_version = api_versions_version
        self.exchange = self._exchange(ApiKey.METADATA, 0)

    def _exchange(self, key: int, version: int) -> KafkaExchange:
        return KafkaExchange(APIS[key], version, CallContext(), WAITS, self._api_versions_version)

    def call(self, key: int, request: Any, version: int | None = None) -> Any:
        """Return the response of a version, by default the highest; None if the connection ends without one."""
        version = APIS[key].highest if version is None else version
        self.exchange = exchange = self._exchange(key, version)
        handler = self.endpoints[key].handler
        try:
            response = handler.serve(request, exchange).result()
        except CoordinatorError as error:
            response = handler.refused(request, exchange, error)
        if response is not None:
            # This version can hold every value.
            API_DEFINITIONS[key].encoder()(response, version)
        return response


def nodes(response: Any) -> list[tuple[int, str, int]]:
    return [(getattr(each, "node_id", None) or each.broker_id, each.host, each.port) for each in response.brokers]


async def test_metadata_names_both_servers_and_the_owner_as_the_controller() -> None:
    caller = Caller()
    response = caller.call(ApiKey.METADATA, MetadataRequest(topics=()))
    assert nodes(response) == BOTH
    assert (response.controller_id, response.cluster_id, response.topics) == (1, "id-of-the-store", ())
    assert not caller.exchange.is_last


async def test_topics_have_no_leader_here_and_the_client_goes_on_to_another_server() -> None:
    caller = Caller()
    response = caller.call(ApiKey.METADATA, NAMED)
    assert nodes(response) == BOTH
    assert [(each.name, each.error_code) for each in response.topics] == [("t", ErrorCode.LEADER_NOT_AVAILABLE)]
    assert caller.exchange.is_last


@pytest.mark.parametrize(("topics", "version"), [(None, 12), (None, 1), ((), 0)])
async def test_a_list_of_all_topics_is_not_answered(topics: tuple[()] | None, version: int) -> None:
    caller = Caller()
    assert caller.call(ApiKey.METADATA, MetadataRequest(topics=topics), version) is None
    assert caller.exchange.codes, "so the connection ends"


async def test_every_coordinator_is_the_owner() -> None:
    caller = Caller()
    found = caller.call(ApiKey.FIND_COORDINATOR, FindCoordinatorRequest(key_type=1, coordinator_keys=("a", "b")))
    assert [(each.key, each.node_id, each.host, each.error_code) for each in found.coordinators] == [
        ("a", 1, OWNER.host, 0),
        ("b", 1, OWNER.host, 0),
    ]
    old = caller.call(ApiKey.FIND_COORDINATOR, FindCoordinatorRequest(key="a"), 2)
    assert (old.node_id, old.host, old.port) == BOTH[0]


async def test_the_cluster_is_both_servers() -> None:
    response = Caller().call(ApiKey.DESCRIBE_CLUSTER, DescribeClusterRequest())
    assert nodes(response) == BOTH
    assert (response.controller_id, response.cluster_id) == (1, "id-of-the-store")


@pytest.mark.parametrize("is_held", [True, False])
async def test_no_owner_is_named_without_a_valid_lease(*, is_held: bool) -> None:
    caller = Caller(is_held=is_held)
    caller.clock.advance(TTL_MS)
    response = caller.call(ApiKey.METADATA, NAMED)
    assert (nodes(response), response.controller_id) == (BOTH if is_held else [BOTH[1]], -1)
    assert caller.call(ApiKey.DESCRIBE_CLUSTER, DescribeClusterRequest()).controller_id == -1
    (found,) = caller.call(ApiKey.FIND_COORDINATOR, FindCoordinatorRequest(coordinator_keys=("a",))).coordinators
    assert (found.error_code, found.node_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)


COORDINATED = {int(ErrorCode.NOT_COORDINATOR)}
LED = {int(ErrorCode.NOT_LEADER_OR_FOLLOWER)}
ELSEWHERE = {
    ApiKey.INIT_PRODUCER_ID: COORDINATED,
    ApiKey.JOIN_GROUP: COORDINATED,
    ApiKey.SYNC_GROUP: COORDINATED,
    ApiKey.HEARTBEAT: COORDINATED,
    ApiKey.LEAVE_GROUP: COORDINATED,
    ApiKey.ADD_OFFSETS_TO_TXN: COORDINATED,
    ApiKey.END_TXN: COORDINATED,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: COORDINATED,
    ApiKey.SHARE_GROUP_HEARTBEAT: COORDINATED,
    ApiKey.SHARE_FETCH: LED,
    ApiKey.SHARE_ACKNOWLEDGE: LED,
    ApiKey.LIST_GROUPS: set(),
    ApiKey.LIST_TRANSACTIONS: set(),
    ApiKey.DESCRIBE_ACLS: CLOSED,
    ApiKey.CREATE_ACLS: CLOSED,
    ApiKey.DELETE_ACLS: CLOSED,
    ApiKey.DESCRIBE_CONFIGS: CLOSED,
    ApiKey.ALTER_CONFIGS: CLOSED,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: CLOSED,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: CLOSED,
}
"""Code of the whole answer by API."""


@pytest.mark.parametrize("key", ELSEWHERE, ids=lambda key: key.name)
async def test_everything_else_is_for_the_owner(key: ApiKey) -> None:
    caller = Caller()
    response = caller.call(key, _request(key))
    expected = ELSEWHERE[key]
    if expected is CLOSED:
        assert response is None
    else:
        assert caller.exchange.codes == expected


def _request(key: ApiKey) -> Any:
    """Return a request of an API with its defaults."""
    name = f"{key.name.lower()}_request"
    module = import_module(f"coordinator_server.kafka_front.messages.{name}")
    return getattr(module, "".join(part.capitalize() for part in name.split("_")))()


async def test_partitions_that_are_named_have_another_leader() -> None:
    caller = Caller()
    request = FetchRequest(topics=(FetchTopic(topic="t", partitions=(FetchPartition(partition=3),)),))
    caller.call(ApiKey.FETCH, request, 12)
    assert caller.exchange.codes == LED


async def test_topics_are_created_at_the_controller() -> None:
    caller = Caller()
    caller.call(ApiKey.CREATE_TOPICS, CreateTopicsRequest(topics=(CreatableTopic(name="t"),)))
    assert caller.exchange.codes == {NOT_CONTROLLER}


async def test_the_connection_ends_after_the_answer_that_has_no_leader() -> None:
    line = Line()
    line.service.endpoints = waiting_server(line.clock).kafka_endpoints()
    named = (1).to_bytes(4, "big") + b"\0\1t"
    line.send(frame(ApiKey.METADATA, 1, 7, named), frame(ApiKey.METADATA, 1, 8, named))
    assert line.answered()[:1] == [7]
    assert line.transport.is_closed


async def test_versions_are_answered_as_by_the_owner() -> None:
    line = Line()
    line.service.endpoints = waiting_server(line.clock).kafka_endpoints()
    line.send(frame(ApiKey.API_VERSIONS, 0, 5))
    assert line.answered() == [5]
    assert not line.transport.is_closed


ALL = b"\xff\xff\xff\xff\1"
"""All topics, as kafkajs asks for them."""


async def test_kafkajs_learns_the_servers_on_its_first_connection() -> None:
    line = Line()
    line.service.endpoints = waiting_server(line.clock).kafka_endpoints()
    line.send(frame(ApiKey.API_VERSIONS, 2, 5), frame(ApiKey.METADATA, 6, 6, ALL))
    assert line.answered() == [5, 6]
    assert line.transport.is_closed, "so that it asks the owner for topics"


async def test_kafkajs_gets_no_list_of_topics_on_later_connections() -> None:
    line = Line()
    line.service.endpoints = waiting_server(line.clock).kafka_endpoints()
    line.send(frame(ApiKey.METADATA, 6, 6, ALL))
    assert line.answered() == []
    assert line.transport.is_closed


@pytest.mark.parametrize("topics", [None, NAMED.topics])
async def test_the_first_answer_to_kafkajs_has_no_error(topics: tuple[MetadataRequestTopic, ...] | None) -> None:
    caller = Caller(api_versions_version=2)
    response = caller.call(ApiKey.METADATA, MetadataRequest(topics=topics), 6)
    assert nodes(response) == BOTH
    assert response.controller_id == 1
    assert [(each.name, each.error_code, each.partitions) for each in response.topics] == [
        (each.name, 0, ()) for each in topics or ()
    ]
    assert (caller.exchange.is_last, caller.exchange.codes) == (True, set())
