"""Kafka's protocol at a server that waits for the lease of its store. It knows from the lease which server serves.

Clients find the owner here, and both servers, though they know only this one. Everything else gets the error after
which clients look for the right server: NOT_COORDINATOR, NOT_LEADER_OR_FOLLOWER or NOT_CONTROLLER. This server holds no
groups and no transactions, so its lists of them are empty. It does not know the topics: those that Metadata names have
no leader here. The connection ends after such an answer, because clients ask a server again to which they are
connected. It ends without an answer where a client would take an error for the last word.

kafkajs takes the servers from no answer with an error in it, and asks for all topics before it knows which it wants.
So on its first connection it gets the servers alone. On later ones it gets what every client gets, and keeps what it
knows.

Source: decision 63; `NetworkClient.leastLoadedNode` and `KafkaAdminClient` of Kafka's Java client;
`src/cluster/brokerPool.js` and `src/broker/index.js` of kafkajs 2.2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from coordinator_core.assembly import Core
from coordinator_protocol.errors import CoordinatorError, ErrorCode, Refused
from coordinator_runtime.pending import Pending, settled
from coordinator_server.addresses import NodeAddress
from coordinator_server.kafka_front.apis import ApiKey
from coordinator_server.kafka_front.cluster import coordinator_at, coordinators_found, keys_of
from coordinator_server.kafka_front.endpoints import endpoints_of
from coordinator_server.kafka_front.errors import NOT_CONTROLLER, FrontRefused
from coordinator_server.kafka_front.exchange import ApiHandler, KafkaExchange, Serve
from coordinator_server.kafka_front.front_settings import FrontSettings
from coordinator_server.kafka_front.kafka_call import ApiEndpoint
from coordinator_server.kafka_front.messages.describe_cluster_request import DescribeClusterRequest
from coordinator_server.kafka_front.messages.describe_cluster_response import (
    DescribeClusterBroker,
    DescribeClusterResponse,
)
from coordinator_server.kafka_front.messages.find_coordinator_request import FindCoordinatorRequest
from coordinator_server.kafka_front.messages.find_coordinator_response import FindCoordinatorResponse
from coordinator_server.kafka_front.messages.list_groups_response import ListGroupsResponse
from coordinator_server.kafka_front.messages.list_transactions_response import ListTransactionsResponse
from coordinator_server.kafka_front.messages.metadata_request import MetadataRequest
from coordinator_server.kafka_front.messages.metadata_response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)
from coordinator_server.kafka_front.metadata import NO_NODE
from coordinator_server.kafka_front.older_codes import COORDINATORS, PARTITIONS

OwnerOf = Callable[[NodeAddress], NodeAddress | None]
"""Returns the owner as clients of a listener of this server know it; None if no lease is known to be valid."""
OthersOf = Callable[[NodeAddress], Sequence[NodeAddress]]
"""Returns the other servers as clients know them: the last owner, even if its lease has ended. librdkafka
hangs where Metadata lacks it."""

_CONTROLLERS: Final = (ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS, ApiKey.CREATE_PARTITIONS)
_KAFKAJS: Final = (2, 6)
"""Highest versions of ApiVersions and Metadata in kafkajs. No other client in use has this pair. It asks for versions
only on connections that it makes before it knows any server."""
_TEXT: Final = "this server waits for the lease of its store: look for the one that serves"


class WaitingApis:
    """Serves the APIs that the lease answers."""

    def __init__(self, cluster_id: str | None, owner_of: OwnerOf, others_of: OthersOf) -> None:
        self._cluster_id = cluster_id
        self._owner_of = owner_of
        self._others_of = others_of

    def metadata(self, request: MetadataRequest, exchange: KafkaExchange) -> Pending[MetadataResponse | None]:
        """Return both servers, with the owner as the controller, and no leader for the topics that are named."""
        is_new_kafkajs = (exchange.api_versions_version, exchange.version) == _KAFKAJS
        if not is_new_kafkajs and (request.topics is None or (exchange.version == 0 and not request.topics)):
            # An empty list would say that there are no topics.
            return _no_answer(exchange)
        topics = request.topics or ()
        owner, nodes = self._nodes(exchange)
        exchange.is_last = bool(topics) or is_new_kafkajs
        code = exchange.noted(ErrorCode.LEADER_NOT_AVAILABLE) if topics and not is_new_kafkajs else 0
        return settled(
            MetadataResponse(
                brokers=tuple(
                    MetadataResponseBroker(node_id=each.node_id, host=each.host, port=each.port) for each in nodes
                ),
                cluster_id=self._cluster_id,
                controller_id=NO_NODE if owner is None else owner.node_id,
                topics=tuple(
                    MetadataResponseTopic(error_code=code, name=each.name, topic_id=each.topic_id) for each in topics
                ),
            )
        )

    def describe_cluster(
        self, _request: DescribeClusterRequest, exchange: KafkaExchange
    ) -> Pending[DescribeClusterResponse]:
        """Return both servers, with the owner as the controller."""
        owner, nodes = self._nodes(exchange)
        return settled(
            DescribeClusterResponse(
                cluster_id=self._cluster_id or "",
                controller_id=NO_NODE if owner is None else owner.node_id,
                brokers=tuple(
                    DescribeClusterBroker(broker_id=each.node_id, host=each.host, port=each.port) for each in nodes
                ),
            )
        )

    def find_coordinator(
        self, request: FindCoordinatorRequest, exchange: KafkaExchange
    ) -> Pending[FindCoordinatorResponse]:
        """Return the owner for every key. It refuses those that the caller may not use. Raises Refused
        COORDINATOR_NOT_AVAILABLE if no lease is known to be valid."""
        owner = self._owner_of(exchange.node)
        if owner is None:
            raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, "no server holds the lease of the store at the moment")
        keys = keys_of(request, exchange.version)
        return settled(coordinators_found([coordinator_at(key, owner) for key in keys], exchange.version))

    def _nodes(self, exchange: KafkaExchange) -> tuple[NodeAddress | None, list[NodeAddress]]:
        """Return the owner, and all servers that are known."""
        return self._owner_of(exchange.node), [*self._others_of(exchange.node), exchange.node]


def waiting_endpoints(core: Core, settings: FrontSettings, apis: WaitingApis) -> Mapping[int, ApiEndpoint]:
    """Return the endpoints of all APIs at a server that waits. `core` has no state: only the forms of its refusals are
    used."""
    by_key: dict[int, Serve] = {
        ApiKey.METADATA: apis.metadata,
        ApiKey.DESCRIBE_CLUSTER: apis.describe_cluster,
        ApiKey.FIND_COORDINATOR: apis.find_coordinator,
        ApiKey.LIST_GROUPS: lambda _request, _exchange: settled(ListGroupsResponse()),
        ApiKey.LIST_TRANSACTIONS: lambda _request, _exchange: settled(ListTransactionsResponse()),
    }
    return {
        key: replace(each, handler=ApiHandler(by_key.get(key) or _elsewhere(key), each.handler.refused))
        for key, each in endpoints_of(core, settings).items()
    }


def _elsewhere(key: int) -> Serve:
    """Return the function that refuses the calls of an API."""
    refusal: CoordinatorError
    if key in COORDINATORS or key == ApiKey.OFFSET_FETCH:
        refusal = Refused(ErrorCode.NOT_COORDINATOR, _TEXT)
    elif key in PARTITIONS or key in (ApiKey.PRODUCE, ApiKey.DESCRIBE_PRODUCERS, ApiKey.WRITE_TXN_MARKERS):
        refusal = Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, _TEXT)
    elif key in _CONTROLLERS:
        refusal = FrontRefused(NOT_CONTROLLER, _TEXT)
    else:
        return lambda _request, exchange: _no_answer(exchange)

    def refuse(_request: object, _exchange: KafkaExchange) -> Pending[Any]:
        raise refusal

    return refuse


def _no_answer(exchange: KafkaExchange) -> Pending[Any]:
    """End the connection in place of an answer."""
    exchange.noted(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return settled(None)
