"""DescribeCluster and FindCoordinator: this server, and with a lease the one that waits.

Source: Kafka's `KafkaApis.handleDescribeCluster` and `handleFindCoordinatorRequest`; KIP-699 (several keys), KIP-919
(endpoint types).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

from coordinator_core.assembly import Core
from coordinator_protocol.errors import CoordinatorError, ErrorCode, Refused
from coordinator_runtime.pending import Pending, settled
from coordinator_server.addresses import NodeAddress
from coordinator_server.kafka_front.access_bits import NOT_ASKED, AccessBits
from coordinator_server.kafka_front.apis import ApiKey
from coordinator_server.kafka_front.errors import MISMATCHED_ENDPOINT_TYPE, UNSUPPORTED_ENDPOINT_TYPE, FrontRefused
from coordinator_server.kafka_front.exchange import ApiHandler, KafkaExchange
from coordinator_server.kafka_front.front_settings import FrontSettings
from coordinator_server.kafka_front.messages.describe_cluster_request import DescribeClusterRequest
from coordinator_server.kafka_front.messages.describe_cluster_response import (
    DescribeClusterBroker,
    DescribeClusterResponse,
)
from coordinator_server.kafka_front.messages.find_coordinator_request import FindCoordinatorRequest
from coordinator_server.kafka_front.messages.find_coordinator_response import Coordinator, FindCoordinatorResponse
from txn_coordinator.requests import KeyType, Located

_BROKERS: Final = 1
_CONTROLLERS: Final = 2
_NO_NODE: Final = -1
_SEVERAL_SINCE: Final = 4
"""First version of FindCoordinator with several keys."""
_UNKNOWN_TYPE: Final = -1
_SHARE: Final = 2
_KEY_TYPES: Final[Mapping[int, int]] = MappingProxyType({0: KeyType.GROUP, 1: KeyType.TRANSACTION})
"""The core's numbers of Kafka's types of keys."""
_SHARE_KEY: Final = re.compile(r"(.+):[A-Za-z0-9_-]{22}:\d{1,10}", re.DOTALL | re.ASCII)
"""Key of a share partition: group, topic id and partition."""


class ClusterApis:
    """Serves DescribeCluster and FindCoordinator."""

    def __init__(self, core: Core, settings: FrontSettings) -> None:
        self._reader = core.transactions.reader
        self._access = AccessBits(core.admin.acls)
        self._settings = settings

    def describe(self, request: DescribeClusterRequest, exchange: KafkaExchange) -> Pending[DescribeClusterResponse]:
        """Return this server as broker and controller, and the one that waits as another broker. Raises FrontRefused
        for the endpoints of controllers."""
        if request.endpoint_type != _BROKERS:
            known = request.endpoint_type == _CONTROLLERS
            number = MISMATCHED_ENDPOINT_TYPE if known else UNSUPPORTED_ENDPOINT_TYPE
            raise FrontRefused(
                number, f"endpoint type {request.endpoint_type} is asked of a broker; ask for {_BROKERS}"
            )
        node, with_operations = exchange.node, request.include_cluster_authorized_operations
        return settled(
            DescribeClusterResponse(
                cluster_id=self._settings.cluster_id,
                controller_id=node.node_id,
                brokers=tuple(
                    DescribeClusterBroker(broker_id=each.node_id, host=each.host, port=each.port)
                    for each in (node, *self._settings.others(node))
                ),
                cluster_authorized_operations=(
                    self._access.of_cluster(exchange.context) if with_operations else NOT_ASKED
                ),
            )
        )

    def describe_refused(
        self, _request: DescribeClusterRequest, exchange: KafkaExchange, error: CoordinatorError
    ) -> DescribeClusterResponse:
        return DescribeClusterResponse(error_code=exchange.code(error), error_message=error.message)

    def find(self, request: FindCoordinatorRequest, exchange: KafkaExchange) -> Pending[FindCoordinatorResponse]:
        """Return this server for every key that the caller may describe."""
        keys = keys_of(request, exchange.version)
        key_type = _KEY_TYPES.get(request.key_type, _UNKNOWN_TYPE)
        if request.key_type == _SHARE:
            located = [self._share_partition(key, exchange) for key in keys]
        else:
            located = self._reader.locate(key_type, keys, exchange.context)
        if key_type == KeyType.TRANSACTION:
            located = [_servers_of_any_id(each) for each in located]
        return settled(coordinators_found([_coordinator(each, exchange) for each in located], exchange.version))

    def _share_partition(self, key: str, exchange: KafkaExchange) -> Located:
        """Return this server for a share partition whose group the caller may describe."""
        found = _SHARE_KEY.fullmatch(key)
        if found is None:
            text = (
                f"{key!a:.300} names no share partition: give group, topic id and partition, with colons between them"
            )
            return Located(key, error=Refused(ErrorCode.INVALID_REQUEST, text))
        (located,) = self._reader.locate(KeyType.GROUP, (found[1],), exchange.context)
        return Located(key, error=located.error)

    def find_refused(
        self, request: FindCoordinatorRequest, exchange: KafkaExchange, error: CoordinatorError
    ) -> FindCoordinatorResponse:
        located = [Located(key, error=error) for key in keys_of(request, exchange.version)]
        return coordinators_found([_coordinator(each, exchange) for each in located], exchange.version)


def keys_of(request: FindCoordinatorRequest, version: int) -> tuple[str, ...]:
    """Return the keys that a request of any version asks for."""
    return request.coordinator_keys if version >= _SEVERAL_SINCE else (request.key,)


def _servers_of_any_id(located: Located) -> Located:
    """Return this server also for an id that is not permitted. InitProducerId then refuses it, which ends a producer.
    Some clients (librdkafka) repeat FindCoordinator without end."""
    is_no_id = located.error is not None and located.error.code is ErrorCode.INVALID_REQUEST
    return Located(located.key) if is_no_id else located


def _coordinator(located: Located, exchange: KafkaExchange) -> Coordinator:
    if located.error is not None:
        return Coordinator(
            key=located.key,
            node_id=_NO_NODE,
            port=_NO_NODE,
            error_code=exchange.code(located.error),
            error_message=located.error.message,
        )
    return coordinator_at(located.key, exchange.node)


def coordinator_at(key: str, node: NodeAddress) -> Coordinator:
    """Return the answer for a key of which a server is the coordinator."""
    return Coordinator(key=key, node_id=node.node_id, host=node.host, port=node.port, error_message=None)


def coordinators_found(coordinators: list[Coordinator], version: int) -> FindCoordinatorResponse:
    """Return the response of any version."""
    if version >= _SEVERAL_SINCE:
        return FindCoordinatorResponse(coordinators=coordinators)
    (only,) = coordinators
    return FindCoordinatorResponse(
        error_code=only.error_code,
        error_message=only.error_message,
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )


def cluster_handlers(core: Core, settings: FrontSettings) -> Iterator[tuple[ApiKey, ApiHandler]]:
    """Yield the handlers of DescribeCluster and FindCoordinator."""
    cluster = ClusterApis(core, settings)
    yield ApiKey.DESCRIBE_CLUSTER, ApiHandler(cluster.describe, cluster.describe_refused)
    yield ApiKey.FIND_COORDINATOR, ApiHandler(cluster.find, cluster.find_refused)
