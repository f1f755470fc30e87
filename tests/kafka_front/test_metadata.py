"""Metadata and DescribeTopicPartitions: topics as Kafka's clients see them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from coordinator_protocol.acls import Permission, ResourceType
from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_server.addresses import NodeAddress
from coordinator_server.kafka_front.access_bits import NOT_ASKED, OPERATION_NUMBERS
from coordinator_server.kafka_front.apis import ApiKey
from coordinator_server.kafka_front.front_settings import FrontSettings
from coordinator_server.kafka_front.messages.describe_topic_partitions_request import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from coordinator_server.kafka_front.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from coordinator_server.kafka_front.messages.metadata_response import MetadataResponse, MetadataResponsePartition
from coordinator_server.kafka_front.uuids import ZERO_UUID
from tests.harness.guarded import SUPER_USER, Guarded
from tests.harness.kafka_caller import NODE, KafkaCaller
from tests.harness.kafka_rules import CLERK, allow, create_topics
from tests.harness.world import World

NEWEST = 13
AUTO_CREATING = FrontSettings(cluster_id="cluster-of-tests", auto_create_topics=True, auto_create_partitions=3)


@pytest.fixture
def world() -> World:
    world = World()
    for name, partitions in (("orders", 2), ("payments", 1)):
        world.create_topic(name, partitions)
    return world


def asked(*names: str | None, topic_id: bytes = ZERO_UUID) -> tuple[MetadataRequestTopic, ...]:
    return tuple([MetadataRequestTopic(name=name, topic_id=topic_id) for name in names])


def metadata(caller: KafkaCaller, version: int = NEWEST, **fields: Any) -> MetadataResponse:
    response: MetadataResponse = caller.call(ApiKey.METADATA, version, MetadataRequest(**fields))
    return response


def names(response: MetadataResponse) -> list[str | None]:
    return [topic.name for topic in response.topics]


def codes(response: MetadataResponse) -> list[int]:
    return [topic.error_code for topic in response.topics]


def test_this_server_is_the_only_broker_and_leads_every_partition(world: World) -> None:
    response = metadata(KafkaCaller(world), topics=asked("orders"))
    (broker,) = response.brokers
    assert (broker.node_id, broker.host, broker.port) == (NODE.node_id, NODE.host, NODE.port)
    assert (response.cluster_id, response.controller_id) == ("cluster-of-tests", NODE.node_id)
    (topic,) = response.topics
    assert (topic.error_code, topic.name, topic.is_internal) == (0, "orders", False)
    node = (NODE.node_id,)
    assert topic.partitions == tuple(
        MetadataResponsePartition(
            partition_index=number, leader_id=NODE.node_id, leader_epoch=0, replica_nodes=node, isr_nodes=node
        )
        for number in range(2)
    )


def test_a_server_that_waits_is_another_broker_that_leads_nothing(world: World) -> None:
    waits = NodeAddress(2, "other.test", 9092)
    settings = FrontSettings(cluster_id="c", others=lambda _node: (waits,))
    response = metadata(KafkaCaller(world, settings=settings), topics=asked("orders"))
    assert [(each.node_id, each.host, each.port) for each in response.brokers] == [
        (NODE.node_id, NODE.host, NODE.port),
        (2, "other.test", 9092),
    ]
    assert {partition.leader_id for partition in response.topics[0].partitions} == {NODE.node_id}
    assert response.controller_id == NODE.node_id


def test_null_means_all_topics_and_an_empty_list_means_none(world: World) -> None:
    caller = KafkaCaller(world)
    assert names(metadata(caller, topics=None)) == ["orders", "payments"]
    assert names(metadata(caller, topics=())) == []


def test_an_empty_list_of_version_0_means_all_topics(world: World) -> None:
    caller = KafkaCaller(world)
    assert names(metadata(caller, version=0, topics=())) == ["orders", "payments"]
    assert names(metadata(caller, version=1, topics=())) == []


def test_topics_are_found_by_id(world: World) -> None:
    caller = KafkaCaller(world)
    (named,) = metadata(caller, topics=asked("orders")).topics
    (found,) = metadata(caller, topics=asked(None, topic_id=named.topic_id)).topics
    assert found == named


def test_an_unknown_id_is_answered_with_the_id_and_no_name(world: World) -> None:
    (topic,) = metadata(KafkaCaller(world), topics=asked(None, topic_id=b"u" * 16)).topics
    assert (topic.error_code, topic.name, topic.topic_id) == (ErrorCode.UNKNOWN_TOPIC_ID, None, b"u" * 16)


@pytest.mark.parametrize("version", [10, 11])
def test_versions_that_answer_with_ids_do_not_yet_take_them(world: World, version: int) -> None:
    caller = KafkaCaller(world)
    by_id = metadata(caller, version=version, topics=asked("orders", topic_id=b"u" * 16))
    assert codes(by_id) == [ErrorCode.INVALID_REQUEST]
    assert codes(metadata(caller, version=version, topics=asked(None))) == [ErrorCode.INVALID_REQUEST]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("topic abc", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("..", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("x" * 250, ErrorCode.INVALID_TOPIC_EXCEPTION),
    ],
)
def test_a_name_that_no_topic_can_have_has_its_own_error(world: World, name: str, expected: ErrorCode) -> None:
    (topic,) = metadata(KafkaCaller(world), version=9, topics=asked(name)).topics
    assert (topic.error_code, topic.name, topic.topic_id, topic.partitions) == (expected, name, ZERO_UUID, ())


def test_a_topic_that_is_named_twice_is_answered_once(world: World) -> None:
    assert names(metadata(KafkaCaller(world), topics=asked("orders", "orders"))) == ["orders"]


def test_a_partition_whose_shard_does_not_serve_has_no_leader(world: World) -> None:
    world.unload("payments-0")
    world.flush()
    (topic,) = metadata(KafkaCaller(world), topics=asked("payments")).topics
    (partition,) = topic.partitions
    assert topic.error_code == 0
    assert partition.error_code == ErrorCode.LEADER_NOT_AVAILABLE
    assert (partition.leader_id, partition.leader_epoch) == (-1, -1)
    assert partition.replica_nodes == (NODE.node_id,)


# Creation of missing topics


def test_topics_are_not_created_unless_the_server_is_set_to_it(world: World) -> None:
    assert codes(metadata(KafkaCaller(world), topics=asked("missing"))) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


@pytest.mark.parametrize("version", [0, 3, 4, NEWEST])
def test_a_missing_topic_is_created_and_answered_with_its_partitions(world: World, version: int) -> None:
    caller = KafkaCaller(world, settings=AUTO_CREATING)
    response = metadata(caller, version=version, topics=asked("orders", "missing"))
    assert [(topic.error_code, len(topic.partitions)) for topic in response.topics] == [(0, 2), (0, 3)]
    world.restart()
    assert "missing" in names(metadata(KafkaCaller(world), topics=None))


def test_a_client_may_forbid_the_creation(world: World) -> None:
    caller = KafkaCaller(world, settings=AUTO_CREATING)
    response = metadata(caller, topics=asked("missing"), allow_auto_topic_creation=False)
    assert codes(response) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert names(metadata(caller, topics=None)) == ["orders", "payments"]


@pytest.mark.parametrize("name", ["topic abc", "__consumer_offsets", ""])
def test_names_that_no_topic_can_have_are_never_created(world: World, name: str) -> None:
    caller = KafkaCaller(world, settings=AUTO_CREATING)
    assert codes(metadata(caller, version=9, topics=asked(name))) == [ErrorCode.INVALID_TOPIC_EXCEPTION]
    assert names(metadata(caller, topics=None)) == ["orders", "payments"]


def test_an_unknown_id_creates_nothing(world: World) -> None:
    caller = KafkaCaller(world, settings=AUTO_CREATING)
    assert codes(metadata(caller, topics=asked(None, topic_id=b"u" * 16))) == [ErrorCode.UNKNOWN_TOPIC_ID]
    assert names(metadata(caller, topics=None)) == ["orders", "payments"]


def test_two_clients_that_create_the_same_topic_both_get_it(world: World) -> None:
    caller = KafkaCaller(world, settings=AUTO_CREATING)
    both = [caller.begin(ApiKey.METADATA, NEWEST, MetadataRequest(topics=asked("missing"))) for _ in range(2)]
    world.settle()
    first, second = [pending.result().topics[0] for pending in both]
    assert (first.error_code, first.name, len(first.partitions)) == (0, "missing", 3)
    assert first == second


# Permissions


def guarded(*allowed: tuple[Permission, ResourceType, str]) -> World:
    world = World(Guarded())
    create_topics(world, "orders", "payments")
    allow(world, *allowed)
    return world


def test_topics_that_a_caller_may_not_describe_look_like_unknown_ones() -> None:
    world = guarded((Permission.DESCRIBE, ResourceType.TOPIC, "orders"))
    caller, boss = KafkaCaller(world, CLERK), KafkaCaller(world)
    response = metadata(caller, topics=asked("orders", "payments", "missing"))
    assert codes(response) == [0, *[ErrorCode.TOPIC_AUTHORIZATION_FAILED] * 2]
    assert [topic.topic_id for topic in response.topics[1:]] == [ZERO_UUID, ZERO_UUID]
    assert names(metadata(caller, topics=None)) == ["orders"]
    request = MetadataRequest(topics=asked("payments"))
    (hidden,) = boss.call(ApiKey.METADATA, NEWEST, request, principal=SUPER_USER).topics
    (by_id,) = metadata(caller, topics=asked(None, topic_id=hidden.topic_id)).topics
    assert (by_id.error_code, by_id.name) == (ErrorCode.UNKNOWN_TOPIC_ID, None)


def test_creation_needs_the_permission_to_create() -> None:
    world = guarded((Permission.DESCRIBE, ResourceType.TOPIC, "*"), (Permission.CREATE, ResourceType.TOPIC, "mine"))
    response = metadata(KafkaCaller(world, CLERK, AUTO_CREATING), topics=asked("mine", "yours"))
    assert codes(response) == [0, ErrorCode.TOPIC_AUTHORIZATION_FAILED]


def bits(*permissions: Permission) -> int:
    return sum(1 << OPERATION_NUMBERS[permission] for permission in permissions)


def test_authorized_operations_are_told_on_request_only() -> None:
    world = guarded(
        (Permission.READ, ResourceType.TOPIC, "orders"), (Permission.CREATE, ResourceType.CLUSTER, "cluster")
    )
    caller = KafkaCaller(world, CLERK)
    (silent,) = metadata(caller, topics=asked("orders")).topics
    assert silent.topic_authorized_operations == NOT_ASKED
    response = metadata(
        caller,
        version=8,
        topics=asked("orders"),
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    )
    assert response.topics[0].topic_authorized_operations == bits(Permission.READ, Permission.DESCRIBE)
    # Who may not describe the cluster does not learn what else it may do.
    assert response.cluster_authorized_operations == 0


def test_without_access_rules_everything_is_authorized(world: World) -> None:
    response = metadata(
        KafkaCaller(world),
        version=8,
        topics=asked("orders"),
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    )
    # READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS: 3 to 8, 10, 11.
    assert response.topics[0].topic_authorized_operations == 0b1101_1111_1000
    assert response.cluster_authorized_operations == bits(
        Permission.CREATE,
        Permission.ALTER,
        Permission.DESCRIBE,
        Permission.CLUSTER_ACTION,
        Permission.DESCRIBE_CONFIGS,
        Permission.ALTER_CONFIGS,
        Permission.IDEMPOTENT_WRITE,
    )


def test_a_refused_call_has_its_error_at_every_topic(world: World) -> None:
    refusal = Refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "loading")
    response = KafkaCaller(world).refused(ApiKey.METADATA, NEWEST, MetadataRequest(topics=asked("a", None)), refusal)
    assert response.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert [(topic.name, topic.error_code) for topic in response.topics] == [("a", 14), ("", 14)]


# Pages of partitions


def pages(caller: KafkaCaller, topics: Sequence[str], limit: int, cursor: Cursor | None = None) -> Any:
    request = DescribeTopicPartitionsRequest(
        topics=tuple([TopicRequest(name=name) for name in topics]), response_partition_limit=limit, cursor=cursor
    )
    return caller.call(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, request)


def shown(response: Any) -> list[tuple[str, list[int]]]:
    return [(topic.name, [each.partition_index for each in topic.partitions]) for topic in response.topics]


def next_page(response: Any) -> Cursor | None:
    cursor = response.next_cursor
    return None if cursor is None else Cursor(topic_name=cursor.topic_name, partition_index=cursor.partition_index)


def test_all_partitions_are_read_page_by_page(world: World) -> None:
    world.create_topic("zeta", 5)
    caller = KafkaCaller(world)
    first = pages(caller, (), 3)
    assert shown(first) == [("orders", [0, 1]), ("payments", [0])]
    second = pages(caller, (), 3, next_page(first))
    assert shown(second) == [("zeta", [0, 1, 2])]
    third = pages(caller, (), 3, next_page(second))
    assert shown(third) == [("zeta", [3, 4])]
    assert third.next_cursor is None


def test_topics_that_are_named_are_answered_by_name_with_their_errors(world: World) -> None:
    response = pages(KafkaCaller(world), ("payments", "missing", "orders"), 2000)
    assert [(topic.name, topic.error_code) for topic in response.topics] == [
        ("missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("orders", 0),
        ("payments", 0),
    ]
    assert response.next_cursor is None


def test_a_cursor_must_name_a_topic_that_is_asked_for(world: World) -> None:
    response = pages(KafkaCaller(world), ("orders",), 1, Cursor(topic_name="payments"))
    assert [topic.error_code for topic in response.topics] == [ErrorCode.INVALID_REQUEST]


def test_lists_of_replicas_that_the_java_client_measures_are_empty_and_not_null(world: World) -> None:
    response = pages(KafkaCaller(world), ("payments",), 1)
    (partition,) = response.topics[0].partitions
    assert (partition.leader_id, partition.leader_epoch) == (NODE.node_id, 0)
    assert (partition.eligible_leader_replicas, partition.last_known_elr) == ((), ())
    assert response.topics[0].topic_authorized_operations == 0b1101_1111_1000
