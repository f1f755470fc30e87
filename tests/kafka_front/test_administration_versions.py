"""Calls of administration that succeed, in every version, with what each version can carry."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator_server.kafka_front.apis import ApiKey
from coordinator_server.kafka_front.messages import incremental_alter_configs_request
from coordinator_server.kafka_front.messages.alter_configs_request import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
)
from coordinator_server.kafka_front.messages.create_acls_request import AclCreation, CreateAclsRequest
from coordinator_server.kafka_front.messages.create_partitions_request import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from coordinator_server.kafka_front.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from coordinator_server.kafka_front.messages.delete_acls_request import DeleteAclsFilter, DeleteAclsRequest
from coordinator_server.kafka_front.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from coordinator_server.kafka_front.messages.describe_acls_request import DescribeAclsRequest
from coordinator_server.kafka_front.messages.describe_cluster_request import DescribeClusterRequest
from coordinator_server.kafka_front.messages.describe_configs_request import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from coordinator_server.kafka_front.messages.describe_topic_partitions_request import DescribeTopicPartitionsRequest
from coordinator_server.kafka_front.messages.find_coordinator_request import FindCoordinatorRequest
from coordinator_server.kafka_front.messages.incremental_alter_configs_request import IncrementalAlterConfigsRequest
from coordinator_server.kafka_front.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from tests.harness.kafka_caller import KafkaCaller
from tests.harness.world import World
from tests.kafka_front.test_every_version import read, versions

TOPIC, ANY, LITERAL, READ, ALLOW = 2, 1, 3, 3, 3
RESOURCE = AlterConfigsResource(
    resource_type=TOPIC, resource_name="orders", configs=(AlterableConfig(name="retention.ms", value="1000"),)
)

CHANGED = incremental_alter_configs_request.AlterConfigsResource(
    resource_type=TOPIC,
    resource_name="orders",
    configs=(incremental_alter_configs_request.AlterableConfig(name="retention.ms", value="1000"),),
)


def request(key: ApiKey, version: int) -> Any:
    """Return a request that succeeds, with all that this version has."""
    match key:
        case ApiKey.METADATA:
            return MetadataRequest(
                topics=(MetadataRequestTopic(name="orders"),),
                include_cluster_authorized_operations=8 <= version <= 10,
                include_topic_authorized_operations=version >= 8,
            )
        case ApiKey.FIND_COORDINATOR:
            keys = ("workers", "others")
            return FindCoordinatorRequest(coordinator_keys=keys) if version >= 4 else FindCoordinatorRequest(key="w")
        case ApiKey.CREATE_TOPICS:
            return CreateTopicsRequest(topics=(CreatableTopic(name="new", num_partitions=2, replication_factor=-1),))
        case ApiKey.DELETE_TOPICS if version >= 6:
            return DeleteTopicsRequest(topics=(DeleteTopicState(name="orders"),))
        case ApiKey.DELETE_TOPICS:
            return DeleteTopicsRequest(topic_names=("orders",))
        case ApiKey.DESCRIBE_CONFIGS:
            topic = DescribeConfigsResource(resource_type=TOPIC, resource_name="orders", configuration_keys=None)
            return DescribeConfigsRequest(resources=(topic,), include_synonyms=True, include_documentation=version >= 3)
        case ApiKey.DESCRIBE_CLUSTER:
            return DescribeClusterRequest(include_cluster_authorized_operations=True)
    return SAME_IN_ALL_VERSIONS[key]


SAME_IN_ALL_VERSIONS: dict[ApiKey, Any] = {
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: DescribeTopicPartitionsRequest(response_partition_limit=1),
    ApiKey.CREATE_PARTITIONS: CreatePartitionsRequest(topics=(CreatePartitionsTopic(name="orders", count=3),)),
    ApiKey.ALTER_CONFIGS: AlterConfigsRequest(resources=(RESOURCE,)),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: IncrementalAlterConfigsRequest(resources=(CHANGED,)),
    ApiKey.CREATE_ACLS: CreateAclsRequest(
        creations=(
            AclCreation(
                resource_type=TOPIC,
                resource_name="orders",
                resource_pattern_type=LITERAL,
                principal="User:clerk",
                host="*",
                operation=READ,
                permission_type=ALLOW,
            ),
        )
    ),
    ApiKey.DESCRIBE_ACLS: DescribeAclsRequest(
        resource_type_filter=ANY,
        resource_name_filter=None,
        pattern_type_filter=ANY,
        principal_filter=None,
        host_filter=None,
        operation=ANY,
        permission_type=ANY,
    ),
    ApiKey.DELETE_ACLS: DeleteAclsRequest(
        filters=(
            DeleteAclsFilter(
                resource_type_filter=ANY,
                resource_name_filter=None,
                pattern_type_filter=ANY,
                principal_filter=None,
                host_filter=None,
                operation=ANY,
                permission_type=ANY,
            ),
        )
    ),
}
KEYS = (
    ApiKey.METADATA,
    ApiKey.FIND_COORDINATOR,
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_TOPICS,
    ApiKey.DESCRIBE_CONFIGS,
    ApiKey.DESCRIBE_CLUSTER,
    *SAME_IN_ALL_VERSIONS,
)
CASES = [(key, version) for key in KEYS for version in versions(key)]


@pytest.mark.parametrize(("key", "version"), CASES, ids=lambda value: getattr(value, "name", str(value)))
def test_a_call_succeeds_in_every_version(key: ApiKey, version: int) -> None:
    world = World()
    world.create_topic("orders", 2)
    caller = KafkaCaller(world)
    rules = SAME_IN_ALL_VERSIONS[ApiKey.CREATE_ACLS]
    if key in (ApiKey.DESCRIBE_ACLS, ApiKey.DELETE_ACLS):
        caller.call(ApiKey.CREATE_ACLS, 3, rules)
    response = caller.call(key, version, request(key, version))
    assert caller.codes == set()
    assert read(key, version, response)
