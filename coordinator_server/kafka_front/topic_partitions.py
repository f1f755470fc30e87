"""DescribeTopicPartitions: topics and their partitions in pages.

Source: Kafka's `DescribeTopicPartitionsRequestHandler`; KIP-966.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from coordinator_core.assembly import Core
from coordinator_protocol.acls import ResourceType
from coordinator_protocol.errors import CoordinatorError, ErrorCode, Refused
from coordinator_runtime.pending import Pending, settled
from coordinator_server.kafka_front.access_bits import AccessBits
from coordinator_server.kafka_front.apis import ApiKey
from coordinator_server.kafka_front.exchange import ApiHandler, KafkaExchange
from coordinator_server.kafka_front.messages.describe_topic_partitions_request import DescribeTopicPartitionsRequest
from coordinator_server.kafka_front.messages.describe_topic_partitions_response import (
    Cursor,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from partition_log.requests import FoundTopic, LookUpTopics, TopicName

PARTITIONS_MAX: Final = 2_000
"""Most partitions in one answer: Kafka's `max.request.partition.size.limit`."""


class TopicPartitionsApi:
    """Serves DescribeTopicPartitions."""

    def __init__(self, core: Core) -> None:
        self._topics = core.log.topics
        self._access = AccessBits(core.admin.acls)

    def serve(
        self, request: DescribeTopicPartitionsRequest, exchange: KafkaExchange
    ) -> Pending[DescribeTopicPartitionsResponse]:
        """Return one page of the topics asked for, or of all, by name. Raises Refused INVALID_REQUEST."""
        first = "" if request.cursor is None else request.cursor.topic_name
        names = sorted({each.name for each in request.topics})
        if names and first and first not in names:
            raise Refused(ErrorCode.INVALID_REQUEST, f"the cursor names {first!a:.300}, which is not asked for")
        wanted = LookUpTopics([TopicName(name) for name in names if name >= first] if names else None)
        found = [each for each in self._topics.look_up_topics(wanted, exchange.context) if each.name >= first]
        return settled(self._page(request, found, exchange))

    def _page(
        self, request: DescribeTopicPartitionsRequest, found: Sequence[FoundTopic], exchange: KafkaExchange
    ) -> DescribeTopicPartitionsResponse:
        cursor, left = request.cursor, max(1, min(PARTITIONS_MAX, request.response_partition_limit))
        topics: list[DescribeTopicPartitionsResponseTopic] = []
        for topic in found:
            is_first = cursor is not None and topic.name == cursor.topic_name
            start = max(0, cursor.partition_index) if cursor is not None and is_first else 0
            end = min(start + left, len(topic.leader_epochs))
            if not left:
                return DescribeTopicPartitionsResponse(topics=topics, next_cursor=Cursor(topic_name=topic.name))
            topics.append(self._topic(topic, range(start, end), exchange))
            left -= max(0, end - start)
            if end < len(topic.leader_epochs):
                following = Cursor(topic_name=topic.name, partition_index=end)
                return DescribeTopicPartitionsResponse(topics=topics, next_cursor=following)
        return DescribeTopicPartitionsResponse(topics=topics)

    def _topic(self, topic: FoundTopic, shown: range, exchange: KafkaExchange) -> DescribeTopicPartitionsResponseTopic:
        if topic.error is not None:
            return DescribeTopicPartitionsResponseTopic(error_code=exchange.code(topic.error), name=topic.name)
        return DescribeTopicPartitionsResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=[_partition(partition, topic.leader_epochs[partition], exchange) for partition in shown],
            topic_authorized_operations=self._access.of(exchange.context, ResourceType.TOPIC, topic.name),
        )

    def refused(
        self, request: DescribeTopicPartitionsRequest, exchange: KafkaExchange, error: CoordinatorError
    ) -> DescribeTopicPartitionsResponse:
        code = exchange.code(error)
        topics = [DescribeTopicPartitionsResponseTopic(error_code=code, name=each.name) for each in request.topics]
        return DescribeTopicPartitionsResponse(topics=topics)


def _partition(partition: int, epoch: int | None, exchange: KafkaExchange) -> DescribeTopicPartitionsResponsePartition:
    node_id = exchange.node.node_id
    return DescribeTopicPartitionsResponsePartition(
        error_code=exchange.noted(ErrorCode.LEADER_NOT_AVAILABLE) if epoch is None else 0,
        partition_index=partition,
        leader_id=-1 if epoch is None else node_id,
        leader_epoch=-1 if epoch is None else epoch,
        replica_nodes=(node_id,),
        isr_nodes=(node_id,),
        # Empty, not null: Kafka's Java client reads their lengths.
        eligible_leader_replicas=(),
        last_known_elr=(),
    )


def topic_partitions_handlers(core: Core) -> Iterator[tuple[ApiKey, ApiHandler]]:
    """Yield the handler of DescribeTopicPartitions."""
    pages = TopicPartitionsApi(core)
    yield ApiKey.DESCRIBE_TOPIC_PARTITIONS, ApiHandler(pages.serve, pages.refused)
