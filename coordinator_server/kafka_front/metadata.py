"""Metadata and DescribeTopicPartitions: topics, their partitions, and this server as the leader of all of them.

Source: Kafka's `KafkaApis.handleTopicMetadataRequest` and `DescribeTopicPartitionsRequestHandler`; KIP-516 (topic ids),
KIP-430 (authorized operations), KIP-966 (pages of partitions).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from msgspec.structs import replace

from coordinator_core.assembly import Core
from coordinator_protocol.acls import ResourceType
from coordinator_protocol.errors import CoordinatorError, ErrorCode, Refused
from coordinator_protocol.methods import Method
from coordinator_protocol.names import check_topic_name
from coordinator_runtime.pending import Pending, settled
from coordinator_server.kafka_front.access_bits import NOT_ASKED, AccessBits
from coordinator_server.kafka_front.apis import ApiKey
from coordinator_server.kafka_front.exchange import ApiHandler, KafkaExchange
from coordinator_server.kafka_front.front_settings import FrontSettings
from coordinator_server.kafka_front.messages.metadata_request import MetadataRequest
from coordinator_server.kafka_front.messages.metadata_response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from coordinator_server.kafka_front.uuids import ZERO_UUID
from partition_log.catalog.state import NewTopic
from partition_log.requests import CreateTopics, FoundTopic, LookUpTopics, TopicName, TopicResult

NO_NODE: Final = -1
NO_EPOCH: Final = -1
_IDS_SINCE: Final = 12
"""First version that may ask by topic id."""


class MetadataApi:
    """Serves Metadata."""

    def __init__(self, core: Core, settings: FrontSettings) -> None:
        self._topics = core.log.topics
        self._access = AccessBits(core.admin.acls)
        self._settings = settings

    def serve(self, request: MetadataRequest, exchange: KafkaExchange) -> Pending[MetadataResponse]:
        """Return the topics asked for, or all. Those that are missing are created first, where settings and client
        allow that. Raises Refused INVALID_REQUEST."""
        wanted = _wanted(request, exchange.version)
        found = self._found(wanted, exchange)
        missing = self._to_create(request, found)
        if not missing:
            return settled(self._response(request, found, exchange))
        created = self._topics.create_topics(CreateTopics(missing), exchange.context_of(Method.CREATE_TOPICS))
        return created.map(
            lambda results: self._response(request, _after(self._found(wanted, exchange), results), exchange)
        )

    def _found(self, wanted: Sequence[TopicName] | None, exchange: KafkaExchange) -> list[FoundTopic]:
        if wanted is None:
            return self._topics.look_up_topics(LookUpTopics(), exchange.context)
        named = self._topics.look_up_topics(
            LookUpTopics([each for each in wanted if _is_named(each)]), exchange.context
        )
        return [*named, *(FoundTopic("", error=_nameless()) for each in wanted if not _is_named(each))]

    def _to_create(self, request: MetadataRequest, found: Sequence[FoundTopic]) -> list[NewTopic]:
        if not (self._settings.auto_create_topics and request.allow_auto_topic_creation):
            return []
        partitions = self._settings.auto_create_partitions
        # A name that no topic can have has another error.
        return [NewTopic(topic.name, partitions) for topic in found if _is_missing(topic)]

    def _response(
        self, request: MetadataRequest, found: Sequence[FoundTopic], exchange: KafkaExchange
    ) -> MetadataResponse:
        node, context = exchange.node, exchange.context
        shows_cluster = request.include_cluster_authorized_operations
        topic_of = partial(self._topic, with_operations=request.include_topic_authorized_operations, exchange=exchange)
        return MetadataResponse(
            brokers=tuple(
                MetadataResponseBroker(node_id=each.node_id, host=each.host, port=each.port)
                for each in (node, *self._settings.others(node))
            ),
            cluster_id=self._settings.cluster_id,
            controller_id=node.node_id,
            topics=tuple(map(topic_of, found)),
            cluster_authorized_operations=self._access.of_cluster(context) if shows_cluster else NOT_ASKED,
        )

    def _topic(self, topic: FoundTopic, *, with_operations: bool, exchange: KafkaExchange) -> MetadataResponseTopic:
        if topic.error is not None:
            return MetadataResponseTopic(
                error_code=exchange.code(topic.error),
                name=topic.name or (None if topic.topic_id else ""),
                topic_id=topic.topic_id or ZERO_UUID,
            )
        operations = self._access.of(exchange.context, ResourceType.TOPIC, topic.name) if with_operations else NOT_ASKED
        return MetadataResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=tuple(_partitions(topic, exchange)),
            topic_authorized_operations=operations,
        )

    def refused(self, request: MetadataRequest, exchange: KafkaExchange, error: CoordinatorError) -> MetadataResponse:
        code = exchange.code(error)
        topics = [
            MetadataResponseTopic(error_code=code, name=each.name or "", topic_id=each.topic_id)
            for each in request.topics or ()
        ]
        return MetadataResponse(topics=topics, error_code=code)


def _wanted(request: MetadataRequest, version: int) -> Sequence[TopicName] | None:
    """Return the topics asked for; None for all. Ids win over names, as in Kafka. Raises Refused INVALID_REQUEST."""
    topics = request.topics
    if topics is None or (version == 0 and not topics):
        return None
    ids = [each.topic_id for each in topics if each.topic_id != ZERO_UUID]
    if version < _IDS_SINCE and (ids or any(each.name is None for each in topics)):
        raise Refused(ErrorCode.INVALID_REQUEST, f"version {version} of Metadata asks by name only, not by topic_id")
    if ids:
        return [TopicName("", topic_id) for topic_id in dict.fromkeys(ids)]
    return [TopicName(name) for name in dict.fromkeys(each.name or "" for each in topics)]


def _is_named(topic: TopicName) -> bool:
    return bool(topic.name or topic.topic_id)


def _nameless() -> Refused:
    try:
        check_topic_name("")
    except Refused as refusal:
        return refusal
    raise AssertionError("no topic has an empty name")


def _is_missing(topic: FoundTopic) -> bool:
    error = topic.error
    return error is not None and error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not topic.topic_id


def _after(found: Sequence[FoundTopic], results: Sequence[TopicResult]) -> list[FoundTopic]:
    """Return the topics after an attempt to create some. One that is still missing has the error of the attempt."""
    errors = {result.name: result.error for result in results if result.error is not None}
    return [
        replace(topic, error=errors[topic.name]) if _is_missing(topic) and topic.name in errors else topic
        for topic in found
    ]


def _partitions(topic: FoundTopic, exchange: KafkaExchange) -> Iterator[MetadataResponsePartition]:
    nodes = (exchange.node.node_id,)
    for partition, epoch in enumerate(topic.leader_epochs):
        # A partition whose shard does not serve has no leader for the moment: clients look again.
        yield MetadataResponsePartition(
            error_code=exchange.noted(ErrorCode.LEADER_NOT_AVAILABLE) if epoch is None else 0,
            partition_index=partition,
            leader_id=NO_NODE if epoch is None else exchange.node.node_id,
            leader_epoch=NO_EPOCH if epoch is None else epoch,
            replica_nodes=nodes,
            isr_nodes=nodes,
        )


def metadata_handlers(core: Core, settings: FrontSettings) -> Iterator[tuple[ApiKey, ApiHandler]]:
    """Yield the handler of Metadata."""
    metadata = MetadataApi(core, settings)
    yield ApiKey.METADATA, ApiHandler(metadata.serve, metadata.refused)
