"""Offsets of share groups over Kafka's protocol: DescribeShareGroupOffsets, AlterShareGroupOffsets and
DeleteShareGroupOffsets.

Source: KIP-932, KIP-1226 (lag); Kafka's `KafkaApis`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from coordinator_protocol.errors import CoordinatorError, Refused
from coordinator_runtime.pending import Pending, all_of, settled
from coordinator_runtime.ports import PartitionName
from coordinator_server.kafka_front.apis import ApiKey
from coordinator_server.kafka_front.exchange import ApiHandler, KafkaExchange
from coordinator_server.kafka_front.messages import alter_share_group_offsets_response as altered
from coordinator_server.kafka_front.messages import delete_share_group_offsets_response as deleted
from coordinator_server.kafka_front.messages import describe_share_group_offsets_response as described
from coordinator_server.kafka_front.messages.alter_share_group_offsets_request import AlterShareGroupOffsetsRequest
from coordinator_server.kafka_front.messages.delete_share_group_offsets_request import DeleteShareGroupOffsetsRequest
from coordinator_server.kafka_front.messages.describe_share_group_offsets_request import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from coordinator_server.kafka_front.partition_names import by_topic, named
from coordinator_server.kafka_front.uuids import ZERO_UUID
from group_coordinator.share_partitions.offset_admin import DescribedOffset, OffsetAdmin, WantedOffset


def share_offset_handlers(offsets: OffsetAdmin) -> Iterator[tuple[ApiKey, ApiHandler]]:
    """Yield the handlers of this family."""
    calls = ShareOffsets(offsets)
    yield ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, ApiHandler(calls.describe, _describe_refused)
    yield ApiKey.ALTER_SHARE_GROUP_OFFSETS, ApiHandler(calls.alter, _alter_refused)
    yield ApiKey.DELETE_SHARE_GROUP_OFFSETS, ApiHandler(calls.delete, _delete_refused)


class ShareOffsets:
    """One method per API."""

    def __init__(self, offsets: OffsetAdmin) -> None:
        self._offsets = offsets

    def describe(
        self, request: DescribeShareGroupOffsetsRequest, exchange: KafkaExchange
    ) -> Pending[described.DescribeShareGroupOffsetsResponse]:
        groups = [self._described(group, exchange) for group in request.groups]
        return all_of(groups).map(lambda found: described.DescribeShareGroupOffsetsResponse(groups=found))

    def _described(
        self, group: DescribeShareGroupOffsetsRequestGroup, exchange: KafkaExchange
    ) -> Pending[described.DescribeShareGroupOffsetsResponseGroup]:
        names = (
            None
            if group.topics is None
            else [name for topic in group.topics for name in named(topic.topic_name, topic.partitions)]
        )

        def refused(error: CoordinatorError) -> described.DescribeShareGroupOffsetsResponseGroup:
            return _refused_group(group.group_id, exchange, error)

        try:
            found = self._offsets.describe(group.group_id, names, exchange.context)
        except Refused as refusal:
            return settled(refused(refusal))
        return found.map(lambda offsets: _described_group(group.group_id, offsets, exchange)).answer_error(refused)

    def alter(
        self, request: AlterShareGroupOffsetsRequest, exchange: KafkaExchange
    ) -> Pending[altered.AlterShareGroupOffsetsResponse]:
        wanted = [
            WantedOffset(PartitionName(topic.topic_name, b"", each.partition_index), each.start_offset)
            for topic in request.topics
            for each in topic.partitions
        ]

        def response(errors: Sequence[CoordinatorError | None]) -> altered.AlterShareGroupOffsetsResponse:
            results = [
                (
                    each.name,
                    altered.AlterShareGroupOffsetsResponsePartition(
                        each.name.partition, exchange.code(error), None if error is None else error.message
                    ),
                )
                for each, error in zip(wanted, errors, strict=True)
            ]
            topics = [
                altered.AlterShareGroupOffsetsResponseTopic(topic, ZERO_UUID, [data for _number, data in partitions])
                for (topic, _topic_id), partitions in by_topic(results).items()
            ]
            return altered.AlterShareGroupOffsetsResponse(responses=topics)

        return self._offsets.alter(request.group_id, wanted, exchange.context).map(response)

    def delete(
        self, request: DeleteShareGroupOffsetsRequest, exchange: KafkaExchange
    ) -> Pending[deleted.DeleteShareGroupOffsetsResponse]:
        topics = [topic.topic_name for topic in request.topics]

        def response(errors: Sequence[CoordinatorError | None]) -> deleted.DeleteShareGroupOffsetsResponse:
            results = [
                deleted.DeleteShareGroupOffsetsResponseTopic(
                    topic, ZERO_UUID, exchange.code(error), None if error is None else error.message
                )
                for topic, error in zip(topics, errors, strict=True)
            ]
            return deleted.DeleteShareGroupOffsetsResponse(responses=results)

        return self._offsets.delete(request.group_id, topics, exchange.context).map(response)


def _described_group(
    group_id: str, offsets: Sequence[DescribedOffset], exchange: KafkaExchange
) -> described.DescribeShareGroupOffsetsResponseGroup:
    topics = [
        described.DescribeShareGroupOffsetsResponseTopic(
            topic,
            topic_id or ZERO_UUID,
            [
                described.DescribeShareGroupOffsetsResponsePartition(
                    partition,
                    each.start_offset,
                    each.leader_epoch,
                    each.lag,
                    exchange.code(each.error),
                    None if each.error is None else each.error.message,
                )
                for partition, each in partitions
            ],
        )
        for (topic, topic_id), partitions in by_topic((each.name, each) for each in offsets).items()
    ]
    return described.DescribeShareGroupOffsetsResponseGroup(group_id, topics)


def _refused_group(
    group_id: str, exchange: KafkaExchange, error: CoordinatorError
) -> described.DescribeShareGroupOffsetsResponseGroup:
    return described.DescribeShareGroupOffsetsResponseGroup(
        group_id, error_code=exchange.code(error), error_message=error.message
    )


def _describe_refused(
    request: DescribeShareGroupOffsetsRequest, exchange: KafkaExchange, error: CoordinatorError
) -> described.DescribeShareGroupOffsetsResponse:
    groups = [_refused_group(group.group_id, exchange, error) for group in request.groups]
    return described.DescribeShareGroupOffsetsResponse(groups=groups)


def _alter_refused(
    _request: AlterShareGroupOffsetsRequest, exchange: KafkaExchange, error: CoordinatorError
) -> altered.AlterShareGroupOffsetsResponse:
    return altered.AlterShareGroupOffsetsResponse(error_code=exchange.code(error), error_message=error.message)


def _delete_refused(
    _request: DeleteShareGroupOffsetsRequest, exchange: KafkaExchange, error: CoordinatorError
) -> deleted.DeleteShareGroupOffsetsResponse:
    return deleted.DeleteShareGroupOffsetsResponse(error_code=exchange.code(error), error_message=error.message)
