"""CreateTopics, DeleteTopics and CreatePartitions."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator_protocol.acls import Permission, ResourceType
from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_server.kafka_front.apis import ApiKey
from coordinator_server.kafka_front.errors import INVALID_REPLICA_ASSIGNMENT, INVALID_REPLICATION_FACTOR
from coordinator_server.kafka_front.front_settings import FrontSettings
from coordinator_server.kafka_front.messages.create_partitions_request import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from coordinator_server.kafka_front.messages.create_topics_request import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from coordinator_server.kafka_front.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from coordinator_server.kafka_front.uuids import ZERO_UUID
from partition_log.requests import LookUpTopics
from tests.harness.guarded import Guarded
from tests.harness.kafka_caller import NODE, KafkaCaller
from tests.harness.kafka_rules import CLERK, allow, create_topics
from tests.harness.world import World

NEWEST = 7


def wanted(name: str, partitions: int = 1, replicas: int = 1, **settings: str | None) -> CreatableTopic:
    configs = [CreatableTopicConfig(name=each.replace("_", "."), value=value) for each, value in settings.items()]
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas, configs=tuple(configs))


def assigned(name: str, *nodes: tuple[int, ...], numbers: tuple[int, ...] = (-1, -1)) -> CreatableTopic:
    assignments = [CreatableReplicaAssignment(partition_index=at, broker_ids=each) for at, each in enumerate(nodes)]
    partitions, replicas = numbers
    return CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=replicas, assignments=tuple(assignments)
    )


def create(caller: KafkaCaller, *topics: CreatableTopic, version: int = NEWEST, validate_only: bool = False) -> Any:
    request = CreateTopicsRequest(topics=topics, validate_only=validate_only)
    return caller.call(ApiKey.CREATE_TOPICS, version, request).topics


def partition_counts(world: World) -> dict[str, int]:
    found = world.inside.topics.look_up_topics(LookUpTopics(), CLERK)
    return {each.name: len(each.leader_epochs) for each in found}


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def caller(world: World) -> KafkaCaller:
    return KafkaCaller(world)


# CreateTopics


def test_a_topic_is_created_and_survives_a_crash(world: World, caller: KafkaCaller) -> None:
    (topic,) = create(caller, wanted("orders", 3))
    assert (topic.error_code, topic.error_message, topic.name) == (0, None, "orders")
    assert (topic.num_partitions, topic.replication_factor, topic.topic_config_error_code) == (3, 1, 0)
    assert topic.topic_id != ZERO_UUID
    world.crash()
    assert partition_counts(world) == {"orders": 3}


def test_the_answer_has_the_settings_and_where_they_come_from(caller: KafkaCaller) -> None:
    (topic,) = create(caller, wanted("orders", retention_ms="60000"))
    settings = {each.name: (each.value, each.config_source, each.read_only) for each in topic.configs}
    assert settings["retention.ms"] == ("60000", 1, False)
    assert settings["retention.bytes"] == ("-1", 5, False)
    assert settings["message.timestamp.type"] == ("CreateTime", 5, True)


def test_each_topic_succeeds_or_fails_by_itself(world: World, caller: KafkaCaller) -> None:
    world.create_topic("orders", 1)
    topics = create(caller, wanted("orders"), wanted("payments"), wanted("too many", 1), wanted("none", 0))
    assert [topic.error_code for topic in topics] == [
        ErrorCode.TOPIC_ALREADY_EXISTS,
        0,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_PARTITIONS,
    ]
    assert "orders already" in topics[0].error_message
    assert partition_counts(world) == {"orders": 1, "payments": 1}


def test_a_topic_that_is_named_twice_is_not_created(world: World, caller: KafkaCaller) -> None:
    topics = create(caller, wanted("orders", 1), wanted("orders", 2, replicas=3))
    assert [topic.error_code for topic in topics] == [ErrorCode.INVALID_REQUEST] * 2
    assert partition_counts(world) == {}


@pytest.mark.parametrize("name", ["__consumer_offsets", "__mine"])
def test_names_of_the_system_are_no_topics_of_clients(caller: KafkaCaller, name: str) -> None:
    (topic,) = create(caller, wanted(name))
    assert topic.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_numbers_that_are_left_out_are_the_servers(world: World) -> None:
    caller = KafkaCaller(world, settings=FrontSettings(cluster_id="c", auto_create_partitions=4))
    (topic,) = create(caller, wanted("orders", -1, -1))
    assert (topic.num_partitions, topic.replication_factor) == (4, 1)
    assert partition_counts(world) == {"orders": 4}


@pytest.mark.parametrize("replicas", [0, 2, 3, -2])
def test_every_partition_has_exactly_one_replica(world: World, caller: KafkaCaller, replicas: int) -> None:
    (topic,) = create(caller, wanted("orders", 1, replicas))
    assert topic.error_code == INVALID_REPLICATION_FACTOR
    assert "only node" in topic.error_message
    assert partition_counts(world) == {}


def test_validation_creates_nothing_and_answers_as_creation_does(world: World, caller: KafkaCaller) -> None:
    topics = create(caller, wanted("orders", 2, retention_ms="1"), wanted("bad", 1, 9), validate_only=True)
    assert [topic.error_code for topic in topics] == [0, INVALID_REPLICATION_FACTOR]
    assert (topics[0].topic_id, topics[0].num_partitions) == (ZERO_UUID, 2)
    assert {each.name: each.value for each in topics[0].configs}["retention.ms"] == "1"
    assert partition_counts(world) == {}


def test_an_assignment_may_name_this_server_only(world: World, caller: KafkaCaller) -> None:
    here, other = (NODE.node_id,), (NODE.node_id + 1,)
    topics = create(
        caller, assigned("mine", here, here), assigned("far", here, other), assigned("both", (*here, *other))
    )
    assert [topic.error_code for topic in topics] == [0, INVALID_REPLICA_ASSIGNMENT, INVALID_REPLICA_ASSIGNMENT]
    assert partition_counts(world) == {"mine": 2}


@pytest.mark.parametrize("numbers", [(1, -1), (-1, 1)])
def test_an_assignment_comes_without_numbers(caller: KafkaCaller, numbers: tuple[int, int]) -> None:
    (topic,) = create(caller, assigned("mine", (NODE.node_id,), numbers=numbers))
    assert topic.error_code == ErrorCode.INVALID_REQUEST


def test_an_assignment_numbers_partitions_from_0(caller: KafkaCaller) -> None:
    gap = CreatableReplicaAssignment(partition_index=1, broker_ids=(NODE.node_id,))
    topic = CreatableTopic(name="mine", num_partitions=-1, replication_factor=-1, assignments=(gap,))
    (answer,) = create(caller, topic)
    assert answer.error_code == INVALID_REPLICA_ASSIGNMENT


@pytest.mark.parametrize("value", [None, "soon"])
def test_a_setting_needs_a_value_that_means_something(caller: KafkaCaller, value: str | None) -> None:
    (topic,) = create(caller, wanted("orders", retention_ms=value))
    assert topic.error_code == ErrorCode.INVALID_CONFIG
    assert "retention" in topic.error_message


def test_who_may_create_but_not_describe_settings_does_not_see_them() -> None:
    world = World(Guarded())
    allow(
        world,
        (Permission.CREATE, ResourceType.TOPIC, "mine"),
        (Permission.DESCRIBE, ResourceType.TOPIC, "mine"),
    )
    topics = create(KafkaCaller(world, CLERK), wanted("mine"), wanted("yours"))
    assert [topic.error_code for topic in topics] == [0, ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    assert topics[0].topic_config_error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert (topics[0].num_partitions, topics[0].replication_factor, topics[0].configs) == (-1, -1, ())


@pytest.mark.parametrize(("version", "expected"), [(5, ErrorCode.COORDINATOR_NOT_AVAILABLE), (6, 89)])
def test_a_refused_call_has_its_error_at_every_topic(caller: KafkaCaller, version: int, expected: int) -> None:
    request = CreateTopicsRequest(topics=(wanted("a"), wanted("b")))
    refusal = Refused(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "too many topics")
    topics = caller.refused(ApiKey.CREATE_TOPICS, version, request, refusal).topics
    assert [(each.name, each.error_code) for each in topics] == [("a", expected), ("b", expected)]


# DeleteTopics


def delete(caller: KafkaCaller, *topics: str | bytes, version: int = 6) -> list[tuple[int, str | None, bytes]]:
    states = [
        DeleteTopicState(name=each) if isinstance(each, str) else DeleteTopicState(topic_id=each) for each in topics
    ]
    names = tuple([each for each in topics if isinstance(each, str)])
    request = DeleteTopicsRequest(topics=tuple(states)) if version >= 6 else DeleteTopicsRequest(topic_names=names)
    responses = caller.call(ApiKey.DELETE_TOPICS, version, request).responses
    return [(each.error_code, each.name, each.topic_id) for each in responses]


@pytest.mark.parametrize("version", [1, 5, 6])
def test_topics_are_deleted_by_name(world: World, caller: KafkaCaller, version: int) -> None:
    topic_id = world.create_topic("orders", 1).topic_id
    assert delete(caller, "orders", "missing", version=version) == [
        (0, "orders", topic_id),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "missing", ZERO_UUID),
    ]
    world.crash()
    assert partition_counts(world) == {}


def test_topics_are_deleted_by_id(world: World, caller: KafkaCaller) -> None:
    topic_id = world.create_topic("orders", 1).topic_id
    unknown = b"u" * 16
    assert delete(caller, topic_id, unknown) == [
        (0, "orders", topic_id),
        (ErrorCode.UNKNOWN_TOPIC_ID, None, unknown),
    ]


def test_a_topic_to_delete_has_a_name_or_an_id_but_not_both(world: World, caller: KafkaCaller) -> None:
    topic_id = world.create_topic("orders", 1).topic_id
    states = (DeleteTopicState(name="orders", topic_id=topic_id), DeleteTopicState())
    responses = caller.call(ApiKey.DELETE_TOPICS, 6, DeleteTopicsRequest(topics=states)).responses
    assert [each.error_code for each in responses] == [ErrorCode.INVALID_REQUEST] * 2
    assert partition_counts(world) == {"orders": 1}


def test_a_topic_that_is_named_twice_is_not_deleted(world: World, caller: KafkaCaller) -> None:
    world.create_topic("orders", 1)
    assert [code for code, *_ in delete(caller, "orders", "orders")] == [ErrorCode.INVALID_REQUEST] * 2
    assert partition_counts(world) == {"orders": 1}


def test_deletion_needs_its_permission() -> None:
    world = World(Guarded())
    create_topics(world, "mine", "yours")
    allow(world, (Permission.DELETE, ResourceType.TOPIC, "mine"))
    codes = [code for code, *_ in delete(KafkaCaller(world, CLERK), "mine", "yours")]
    assert codes == [0, ErrorCode.TOPIC_AUTHORIZATION_FAILED]


def test_a_refused_deletion_has_its_error_at_every_topic(caller: KafkaCaller) -> None:
    refusal = Refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "loading")
    response = caller.refused(ApiKey.DELETE_TOPICS, 5, DeleteTopicsRequest(topic_names=("a", "b")), refusal)
    assert [(each.name, each.error_code, each.error_message) for each in response.responses] == [
        ("a", 14, "loading"),
        ("b", 14, "loading"),
    ]


# CreatePartitions


def add(caller: KafkaCaller, name: str, count: int, *nodes: int, validate_only: bool = False) -> Any:
    assignments = tuple([CreatePartitionsAssignment(broker_ids=(node,)) for node in nodes]) if nodes else None
    topic = CreatePartitionsTopic(name=name, count=count, assignments=assignments)
    request = CreatePartitionsRequest(topics=(topic,), validate_only=validate_only)
    (result,) = caller.call(ApiKey.CREATE_PARTITIONS, 3, request).results
    return result


def test_partitions_are_added(world: World, caller: KafkaCaller) -> None:
    world.create_topic("orders", 1)
    result = add(caller, "orders", 3)
    assert (result.name, result.error_code, result.error_message) == ("orders", 0, None)
    assert add(caller, "orders", 4, NODE.node_id).error_code == 0
    world.crash()
    assert partition_counts(world) == {"orders": 4}


def test_validation_adds_no_partitions(world: World, caller: KafkaCaller) -> None:
    world.create_topic("orders", 1)
    assert add(caller, "orders", 3, validate_only=True).error_code == 0
    assert partition_counts(world) == {"orders": 1}


@pytest.mark.parametrize(
    ("name", "count", "expected"),
    [
        ("orders", 2, ErrorCode.INVALID_PARTITIONS),
        ("orders", 1, ErrorCode.INVALID_PARTITIONS),
        ("orders", -1, ErrorCode.INVALID_PARTITIONS),
        ("missing", 2, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("", 2, ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_topic_gets_more_partitions_or_none(
    world: World, caller: KafkaCaller, name: str, count: int, expected: ErrorCode
) -> None:
    world.create_topic("orders", 2)
    result = add(caller, name, count)
    assert (result.error_code, bool(result.error_message)) == (expected, True)
    assert partition_counts(world) == {"orders": 2}


def test_new_partitions_are_assigned_to_this_server_only(world: World, caller: KafkaCaller) -> None:
    world.create_topic("orders", 1)
    assert add(caller, "orders", 2, NODE.node_id + 1).error_code == INVALID_REPLICA_ASSIGNMENT
    assert partition_counts(world) == {"orders": 1}


def test_a_topic_that_is_named_twice_gets_no_partitions(world: World, caller: KafkaCaller) -> None:
    world.create_topic("orders", 1)
    topics = tuple([CreatePartitionsTopic(name="orders", count=count) for count in (2, 3)])
    results = caller.call(ApiKey.CREATE_PARTITIONS, 3, CreatePartitionsRequest(topics=topics)).results
    assert [each.error_code for each in results] == [ErrorCode.INVALID_REQUEST] * 2
    assert partition_counts(world) == {"orders": 1}


def test_a_refused_addition_has_its_error_at_every_topic(caller: KafkaCaller) -> None:
    request = CreatePartitionsRequest(topics=(CreatePartitionsTopic(name="orders", count=2),))
    refusal = Refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "loading")
    (result,) = caller.refused(ApiKey.CREATE_PARTITIONS, 3, request, refusal).results
    assert (result.name, result.error_code) == ("orders", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
