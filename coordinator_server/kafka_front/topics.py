"""CreateTopics, DeleteTopics and CreatePartitions.

Every partition has one replica, on this server, so an assignment can name no other node.

Source: Kafka's `ControllerApis`, `ReplicationControlManager`; KIP-525 (configs in the answer), KIP-516 (topic ids).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Final

from msgspec.structs import replace

from coordinator_core.assembly import Core
from coordinator_protocol.acls import Permission, ResourceType
from coordinator_protocol.errors import CoordinatorError, ErrorCode, Refused
from coordinator_runtime.pending import Pending
from coordinator_server.kafka_front.access_bits import AccessBits
from coordinator_server.kafka_front.apis import ApiKey
from coordinator_server.kafka_front.errors import (
    INVALID_REPLICA_ASSIGNMENT,
    INVALID_REPLICATION_FACTOR,
    FrontRefused,
)
from coordinator_server.kafka_front.exchange import ApiHandler, KafkaExchange
from coordinator_server.kafka_front.front_settings import FrontSettings
from coordinator_server.kafka_front.items import each_by_itself, only
from coordinator_server.kafka_front.messages.create_partitions_request import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from coordinator_server.kafka_front.messages.create_partitions_response import (
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from coordinator_server.kafka_front.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from coordinator_server.kafka_front.messages.create_topics_response import (
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsResponse,
)
from coordinator_server.kafka_front.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from coordinator_server.kafka_front.messages.delete_topics_response import DeletableTopicResult, DeleteTopicsResponse
from coordinator_server.kafka_front.topic_settings import core_settings, shown_topic_settings
from coordinator_server.kafka_front.uuids import ZERO_UUID
from partition_log.catalog.state import MorePartitions, NewTopic, Topic, repeated_names
from partition_log.requests import CreatePartitions, CreateTopics, DeleteTopics, TopicName, TopicResult

_DEFAULT: Final = -1
_REPLICAS: Final = 1
_IDS_SINCE: Final = 6
"""First version of DeleteTopics that may name a topic by id."""


class TopicApis:
    """Serves CreateTopics, DeleteTopics and CreatePartitions."""

    def __init__(self, core: Core, settings: FrontSettings) -> None:
        self._topics = core.log.topics
        self._settings_of = core.catalog.settings
        self._access = AccessBits(core.admin.acls)
        self._partitions = settings.auto_create_partitions

    # CreateTopics

    def create(self, request: CreateTopicsRequest, exchange: KafkaExchange) -> Pending[CreateTopicsResponse]:
        """Create topics, each by itself; durable when answered."""
        repeated = repeated_names(topic.name for topic in request.topics)

        def create_one(topic: CreatableTopic) -> Pending[CreatableTopicResult]:
            _check_once(topic.name, repeated)
            new = _new_topic(topic, self._partitions, exchange.node.node_id)
            created = self._topics.create_topics(CreateTopics([new], request.validate_only), exchange.context)
            return created.map(lambda results: self._created(new, only(results), exchange))

        created = each_by_itself(request.topics, create_one, partial(_not_created, exchange))
        return created.map(lambda results: CreateTopicsResponse(topics=results))

    def _created(self, new: NewTopic, result: TopicResult, exchange: KafkaExchange) -> CreatableTopicResult:
        if result.error is not None:
            raise result.error
        created = CreatableTopicResult(name=result.name, topic_id=result.topic_id or ZERO_UUID, error_message=None)
        context = exchange.context
        if not self._access.may(context, Permission.DESCRIBE_CONFIGS, ResourceType.TOPIC, new.name):
            refused = exchange.noted(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            return replace(created, topic_config_error_code=refused)
        values = self._settings_of(Topic(new.name, result.topic_id, (), 0, new.settings))
        return replace(
            created,
            num_partitions=new.partition_count,
            replication_factor=_REPLICAS,
            configs=[
                CreatableTopicConfigs(
                    name=each.name, value=each.value, read_only=each.is_read_only, config_source=each.source
                )
                for each in shown_topic_settings(values)
            ],
        )

    def create_refused(
        self, request: CreateTopicsRequest, exchange: KafkaExchange, error: CoordinatorError
    ) -> CreateTopicsResponse:
        return CreateTopicsResponse(topics=[_not_created(exchange, topic, error) for topic in request.topics])

    # DeleteTopics

    def delete(self, request: DeleteTopicsRequest, exchange: KafkaExchange) -> Pending[DeleteTopicsResponse]:
        """Delete topics, each by itself; durable when answered."""
        wanted = _to_delete(request, exchange.version)
        repeated = repeated_names(topic.name or topic.topic_id.hex() for topic in wanted)

        def delete_one(topic: DeleteTopicState) -> Pending[DeletableTopicResult]:
            _check_once(topic.name or topic.topic_id.hex(), repeated)
            deleted = self._topics.delete_topics(DeleteTopics([_topic_name(topic)]), exchange.context)
            return deleted.map(lambda results: _deleted(only(results)))

        deleted = each_by_itself(wanted, delete_one, partial(_not_deleted, exchange))
        return deleted.map(lambda results: DeleteTopicsResponse(responses=results))

    def delete_refused(
        self, request: DeleteTopicsRequest, exchange: KafkaExchange, error: CoordinatorError
    ) -> DeleteTopicsResponse:
        wanted = _to_delete(request, exchange.version)
        return DeleteTopicsResponse(responses=[_not_deleted(exchange, topic, error) for topic in wanted])

    # CreatePartitions

    def add_partitions(
        self, request: CreatePartitionsRequest, exchange: KafkaExchange
    ) -> Pending[CreatePartitionsResponse]:
        """Add partitions to topics, each by itself; durable when answered."""
        repeated = repeated_names(topic.name for topic in request.topics)

        def add_one(topic: CreatePartitionsTopic) -> Pending[CreatePartitionsTopicResult]:
            _check_once(topic.name, repeated)
            _check_nodes((each.broker_ids for each in topic.assignments or ()), exchange.node.node_id)
            wanted = MorePartitions(topic.name, b"", topic.count, request.validate_only)
            added = self._topics.create_partitions(CreatePartitions([wanted]), exchange.context)
            return added.map(lambda results: _extended(only(results)))

        added = each_by_itself(request.topics, add_one, partial(_not_extended, exchange))
        return added.map(lambda results: CreatePartitionsResponse(results=results))

    def add_partitions_refused(
        self, request: CreatePartitionsRequest, exchange: KafkaExchange, error: CoordinatorError
    ) -> CreatePartitionsResponse:
        return CreatePartitionsResponse(results=[_not_extended(exchange, topic, error) for topic in request.topics])


def _check_once(name: str, repeated: frozenset[str]) -> None:
    if name in repeated:
        raise Refused(ErrorCode.INVALID_REQUEST, f"the request names {name!a:.300} more than once; name it once")


def _new_topic(topic: CreatableTopic, default_partitions: int, node_id: int) -> NewTopic:
    """Return the topic that the core is to create. Raises Refused, FrontRefused."""
    config = core_settings(topic.name, _given(topic))
    if topic.assignments:
        return NewTopic(topic.name, _assigned_partitions(topic, node_id), config)
    if topic.replication_factor not in (_DEFAULT, _REPLICAS):
        text = (
            f"the replication factor of {topic.name!a:.300} is {topic.replication_factor}: this server is the only node"
        )
        raise FrontRefused(INVALID_REPLICATION_FACTOR, f"{text}, so write {_REPLICAS}, or {_DEFAULT}")
    count = topic.num_partitions
    return NewTopic(topic.name, default_partitions if count == _DEFAULT else count, config)


def _given(topic: CreatableTopic) -> Iterator[tuple[str, str]]:
    for config in topic.configs:
        if config.value is None:
            raise Refused(ErrorCode.INVALID_CONFIG, f"{config.name!a:.80} has no value; leave it out for the default")
        yield config.name, config.value


def _assigned_partitions(topic: CreatableTopic, node_id: int) -> int:
    if topic.num_partitions != _DEFAULT or topic.replication_factor != _DEFAULT:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"{topic.name!a:.300} has an assignment and numbers: with an assignment, both numbers are {_DEFAULT}",
        )
    count = len(topic.assignments)
    if sorted(each.partition_index for each in topic.assignments) != list(range(count)):
        raise FrontRefused(INVALID_REPLICA_ASSIGNMENT, f"partitions are numbered from 0 to {count - 1}, each once")
    _check_nodes((each.broker_ids for each in topic.assignments), node_id)
    return count


def _check_nodes(assigned: Iterable[Sequence[int]], node_id: int) -> None:
    for nodes in assigned:
        if tuple(nodes) != (node_id,):
            text = f"a partition is assigned to {list(nodes)}: this server is the only node; assign [{node_id}]"
            raise FrontRefused(INVALID_REPLICA_ASSIGNMENT, text)


def _not_created(exchange: KafkaExchange, topic: CreatableTopic, error: CoordinatorError) -> CreatableTopicResult:
    return CreatableTopicResult(name=topic.name, error_code=exchange.code(error), error_message=error.message)


def _to_delete(request: DeleteTopicsRequest, version: int) -> Sequence[DeleteTopicState]:
    return request.topics if version >= _IDS_SINCE else [DeleteTopicState(name=name) for name in request.topic_names]


def _topic_name(topic: DeleteTopicState) -> TopicName:
    """Return the name or id. Raises Refused INVALID_REQUEST for both."""
    has_id = topic.topic_id != ZERO_UUID
    if has_id and topic.name is not None:
        raise Refused(ErrorCode.INVALID_REQUEST, f"{topic.name!a:.300} is named by name and by id; send only one")
    return TopicName(topic.name or "", topic.topic_id if has_id else b"")


def _deleted(result: TopicResult) -> DeletableTopicResult:
    if result.error is not None:
        raise result.error
    return DeletableTopicResult(name=result.name, topic_id=result.topic_id)


def _not_deleted(exchange: KafkaExchange, topic: DeleteTopicState, error: CoordinatorError) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=topic.name, topic_id=topic.topic_id, error_code=exchange.code(error), error_message=error.message
    )


def _extended(result: TopicResult) -> CreatePartitionsTopicResult:
    if result.error is not None:
        raise result.error
    return CreatePartitionsTopicResult(name=result.name)


def _not_extended(
    exchange: KafkaExchange, topic: CreatePartitionsTopic, error: CoordinatorError
) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(name=topic.name, error_code=exchange.code(error), error_message=error.message)


def topic_handlers(core: Core, settings: FrontSettings) -> Iterator[tuple[ApiKey, ApiHandler]]:
    """Yield the handlers of CreateTopics, DeleteTopics and CreatePartitions."""
    topics = TopicApis(core, settings)
    yield ApiKey.CREATE_TOPICS, ApiHandler(topics.create, topics.create_refused)
    yield ApiKey.DELETE_TOPICS, ApiHandler(topics.delete, topics.delete_refused)
    yield ApiKey.CREATE_PARTITIONS, ApiHandler(topics.add_partitions, topics.add_partitions_refused)
