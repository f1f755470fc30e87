"""DescribeCluster and FindCoordinator: this server is everything."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator_protocol.acls import CLUSTER_NAME, Permission, ResourceType
from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_server.kafka_front.access_bits import NOT_ASKED
from coordinator_server.kafka_front.apis import ApiKey
from coordinator_server.kafka_front.errors import MISMATCHED_ENDPOINT_TYPE, UNSUPPORTED_ENDPOINT_TYPE
from coordinator_server.kafka_front.messages.describe_cluster_request import DescribeClusterRequest
from coordinator_server.kafka_front.messages.find_coordinator_request import FindCoordinatorRequest
from coordinator_server.kafka_front.messages.init_producer_id_request import InitProducerIdRequest
from tests.harness.guarded import Guarded
from tests.harness.kafka_caller import NODE, KafkaCaller
from tests.harness.kafka_rules import CLERK, allow
from tests.harness.world import World

GROUP, TRANSACTION, SHARE = 0, 1, 2


def describe(caller: KafkaCaller, version: int = 2, **fields: Any) -> Any:
    return caller.call(ApiKey.DESCRIBE_CLUSTER, version, DescribeClusterRequest(**fields))


def find(caller: KafkaCaller, version: int, *keys: str, key_type: int = GROUP) -> list[tuple[int, int, str, int]]:
    """Return code, node, host and port for each key."""
    if version >= 4:
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=keys)
        found = caller.call(ApiKey.FIND_COORDINATOR, version, request).coordinators
        assert [each.key for each in found] == list(keys)
    else:
        (key,) = keys
        found = [caller.call(ApiKey.FIND_COORDINATOR, version, FindCoordinatorRequest(key=key, key_type=key_type))]
    return [(each.error_code, each.node_id, each.host, each.port) for each in found]


THIS_SERVER = (0, NODE.node_id, NODE.host, NODE.port)


def refused(code: ErrorCode) -> tuple[int, int, str, int]:
    return int(code), -1, "", -1


def test_the_cluster_is_this_server() -> None:
    response = describe(KafkaCaller(World()))
    assert (response.error_code, response.cluster_id, response.controller_id) == (0, "cluster-of-tests", NODE.node_id)
    (broker,) = response.brokers
    assert (broker.broker_id, broker.host, broker.port, broker.is_fenced) == (NODE.node_id, NODE.host, NODE.port, False)
    assert response.cluster_authorized_operations == NOT_ASKED


@pytest.mark.parametrize(("endpoint_type", "expected"), [(2, MISMATCHED_ENDPOINT_TYPE), (7, UNSUPPORTED_ENDPOINT_TYPE)])
def test_there_are_no_endpoints_of_controllers(endpoint_type: int, expected: int) -> None:
    response = describe(KafkaCaller(World()), endpoint_type=endpoint_type)
    assert (response.error_code, response.brokers) == (expected, ())
    assert "broker" in response.error_message


def test_operations_on_the_cluster_are_told_to_those_who_may_describe_it() -> None:
    world = World(Guarded())
    caller = KafkaCaller(world, CLERK)
    assert describe(caller, include_cluster_authorized_operations=True).cluster_authorized_operations == 0
    allow(world, (Permission.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME))
    assert describe(caller, include_cluster_authorized_operations=True).cluster_authorized_operations == 1 << 8


@pytest.mark.parametrize("version", range(7))
@pytest.mark.parametrize("key_type", [GROUP, TRANSACTION])
def test_this_server_coordinates_every_group_and_transaction(version: int, key_type: int) -> None:
    assert find(KafkaCaller(World()), version, "a-key", key_type=key_type) == [THIS_SERVER]


def test_several_keys_are_answered_each_by_itself() -> None:
    found = find(KafkaCaller(World()), 4, "first", "", "third")
    assert found == [THIS_SERVER, refused(ErrorCode.INVALID_GROUP_ID), THIS_SERVER]


@pytest.mark.parametrize("key_type", [3, 9])
def test_other_kinds_of_keys_have_no_coordinator(key_type: int) -> None:
    caller = KafkaCaller(World())
    assert find(caller, 6, "a-key", key_type=key_type) == [refused(ErrorCode.INVALID_REQUEST)]
    assert find(caller, 3, "a-key", key_type=key_type) == [refused(ErrorCode.INVALID_REQUEST)]


def test_a_share_partition_is_where_its_group_is() -> None:
    world = World(Guarded())
    allow(world, (Permission.READ, ResourceType.GROUP, "mine:too"))
    caller = KafkaCaller(world, CLERK)
    place = "AAAAAAAAQACAAAAAAAAAAA:7"
    found = find(caller, 6, f"mine:too:{place}", f"yours:{place}", "mine", f":{place}", key_type=SHARE)
    invalid = refused(ErrorCode.INVALID_REQUEST)
    assert found == [THIS_SERVER, refused(ErrorCode.GROUP_AUTHORIZATION_FAILED), invalid, invalid]


def test_a_key_that_a_caller_may_not_describe_is_refused_by_its_kind() -> None:
    world = World(Guarded())
    allow(world, (Permission.READ, ResourceType.GROUP, "mine"))
    caller = KafkaCaller(world, CLERK)
    assert find(caller, 4, "mine", "yours") == [THIS_SERVER, refused(ErrorCode.GROUP_AUTHORIZATION_FAILED)]
    expected = [refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)]
    assert find(caller, 2, "yours", key_type=TRANSACTION) == expected


@pytest.mark.parametrize("version", [1, 5])
def test_a_refused_call_has_its_error_for_each_key(version: int) -> None:
    request = FindCoordinatorRequest(key="g", coordinator_keys=("g", "h") if version >= 4 else ())
    refusal = Refused(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "no room")
    response = KafkaCaller(World()).refused(ApiKey.FIND_COORDINATOR, version, request, refusal)
    found = response.coordinators if version >= 4 else [response]
    assert [each.error_code for each in found] == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * (2 if version >= 4 else 1)


@pytest.mark.parametrize("key", ["__reserved", "", "n\0l"])
def test_an_id_without_rights_is_refused_by_init_producer_id_alone(key: str) -> None:
    caller = KafkaCaller(World())
    assert find(caller, 2, key, key_type=TRANSACTION) == [THIS_SERVER]
    request = InitProducerIdRequest(transactional_id=key, transaction_timeout_ms=1_000)
    assert caller.call(ApiKey.INIT_PRODUCER_ID, 4, request).error_code == ErrorCode.INVALID_REQUEST
