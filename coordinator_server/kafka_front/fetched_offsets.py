"""OffsetFetch: the committed offsets of one group, or from version 8 on of several.

A partition that does not exist has no offset, which is no error. Only an unknown topic id is one.

Source: KIP-447 (stable offsets); KIP-709 (several groups); KIP-848 (topic ids).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeVar

from coordinator_protocol.errors import CoordinatorError, ErrorCode, Refused
from coordinator_protocol.names import check_partition, check_topic_name
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import Committer, PartitionName
from coordinator_server.kafka_front.exchange import ApiHandler, KafkaExchange
from coordinator_server.kafka_front.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from coordinator_server.kafka_front.messages.offset_fetch_response import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from coordinator_server.kafka_front.partition_names import by_topic, topic_id_of, without_repetitions
from coordinator_server.kafka_front.uuids import ZERO_UUID
from group_coordinator.committed.requests import FetchedGroup, OffsetFetch
from group_coordinator.committed.service import OffsetService
from group_coordinator.committed.state import Offset

_WHOLE_ERROR_SINCE: Final = 2
"""First version with an error of the whole answer. Before, every partition repeats it."""
_SEVERAL_GROUPS_SINCE: Final = 8
_NO_OFFSET: Final = -1
_NO_LEADER_EPOCH: Final = -1
_UNKNOWN: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION})
"""Refusals of a partition that does not exist."""
_TOPIC_REFUSED: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.TOPIC_AUTHORIZATION_FAILED})
"""Refusals of a topic, of which the group is not asked."""

Found = tuple[Offset | None, CoordinatorError | None]
"""Offset of a partition, or the refusal; neither if nothing is committed."""
PartitionT = TypeVar("PartitionT", OffsetFetchResponsePartition, OffsetFetchResponsePartitions)


def fetch_handler(service: OffsetService) -> ApiHandler:
    """Return the handler of OffsetFetch."""

    def serve(request: OffsetFetchRequest, exchange: KafkaExchange) -> Pending[OffsetFetchResponse]:
        groups = _groups(request, exchange)
        commands = [_command(group, exchange) for group in groups if group.group_id]
        fetched = service.fetch(commands, exchange.context, require_stable=request.require_stable)
        return fetched.map(lambda found: _answer(exchange, groups, _in_order(groups, found)))

    return ApiHandler(serve, _refused)


def _in_order(asked: Iterable[OffsetFetchRequestGroup], fetched: Iterable[FetchedGroup]) -> list[FetchedGroup]:
    """Return what was found for each group asked for. To Kafka a group without a name is one without offsets."""
    found = iter(fetched)
    return [next(found) if group.group_id else FetchedGroup(group.group_id) for group in asked]


def _groups(request: OffsetFetchRequest, exchange: KafkaExchange) -> Sequence[OffsetFetchRequestGroup]:
    """Return the groups of a request, which is about one before version 8."""
    if exchange.version >= _SEVERAL_GROUPS_SINCE:
        return request.groups
    topics = None
    if request.topics is not None:
        topics = tuple(
            [
                OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
                for topic in request.topics
            ]
        )
    return (OffsetFetchRequestGroup(group_id=request.group_id, topics=topics),)


def _command(group: OffsetFetchRequestGroup, exchange: KafkaExchange) -> OffsetFetch:
    names = None
    if group.topics is not None:
        names = _asked_for(group.topics, exchange)
    return OffsetFetch(group.group_id, Committer(group.member_id or "", group.member_epoch), names)


def _names(topics: Iterable[OffsetFetchRequestTopics], exchange: KafkaExchange) -> list[PartitionName]:
    return [
        PartitionName(topic.name, topic_id_of(topic.topic_id, exchange), partition)
        for topic in topics
        for partition in topic.partition_indexes
    ]


def _asked_for(topics: Iterable[OffsetFetchRequestTopics], exchange: KafkaExchange) -> tuple[PartitionName, ...]:
    """Return the names that the core is asked for: without impossible ones, and each once."""
    return without_repetitions(filter(_may_exist, _names(topics, exchange)))


def _may_exist(name: PartitionName) -> bool:
    try:
        check_partition(*name)
        if name.topic:
            check_topic_name(name.topic, reserved_allowed=True)
    except Refused:
        return False
    return True


def _refused(request: OffsetFetchRequest, exchange: KafkaExchange, error: CoordinatorError) -> OffsetFetchResponse:
    groups = _groups(request, exchange)
    return _answer(exchange, groups, [FetchedGroup(group.group_id, refusal=error) for group in groups])


def _answer(
    exchange: KafkaExchange, asked: Sequence[OffsetFetchRequestGroup], fetched: Sequence[FetchedGroup]
) -> OffsetFetchResponse:
    if exchange.version >= _SEVERAL_GROUPS_SINCE:
        groups = [_group(exchange, *each) for each in zip(asked, fetched, strict=True)]
        return OffsetFetchResponse(groups=groups)
    (group,), (found,) = asked, fetched
    if found.refusal is not None and exchange.version >= _WHOLE_ERROR_SINCE:
        return OffsetFetchResponse(error_code=exchange.code(found.refusal))
    topics = [
        OffsetFetchResponseTopic(
            name=topic,
            partitions=[
                _partition(OffsetFetchResponsePartition, exchange, partition, offset)
                for partition, offset in partitions
            ],
        )
        for (topic, _id), partitions in _offsets(exchange, group, found).items()
    ]
    return OffsetFetchResponse(topics=topics)


def _group(exchange: KafkaExchange, asked: OffsetFetchRequestGroup, found: FetchedGroup) -> OffsetFetchResponseGroup:
    if found.refusal is not None:
        return OffsetFetchResponseGroup(group_id=found.group_id, error_code=exchange.code(found.refusal))
    topics = [
        OffsetFetchResponseTopics(
            name=topic,
            topic_id=topic_id or ZERO_UUID,
            partitions=[
                _partition(OffsetFetchResponsePartitions, exchange, partition, offset)
                for partition, offset in partitions
            ],
        )
        for (topic, topic_id), partitions in _offsets(exchange, asked, found).items()
    ]
    return OffsetFetchResponseGroup(group_id=found.group_id, topics=topics)


def _offsets(
    exchange: KafkaExchange, asked: OffsetFetchRequestGroup, found: FetchedGroup
) -> Mapping[tuple[str, bytes], list[tuple[int, Found]]]:
    """Return the offset of each partition asked for, or all offsets of the group, by topic."""
    if asked.topics is None:
        return by_topic((each.name, (each.offset, each.refusal)) for each in found.offsets)
    values: list[Found] = [(each.offset, each.refusal) for each in found.offsets]
    # A refused group has no offsets, and neither has one without a name.
    known = dict(zip(_asked_for(asked.topics, exchange), values, strict=True)) if values else {}
    none: Found = (None, found.refusal)
    topics = by_topic((name, known.get(name, none)) for name in _names(asked.topics, exchange))
    # As in Kafka, topics of which it asks no group are the last.
    return dict(sorted(topics.items(), key=lambda each: _is_unasked(each[1])))


def _is_unasked(partitions: Iterable[tuple[int, Found]]) -> bool:
    return all(error is not None and error.code in _TOPIC_REFUSED for _partition, (_offset, error) in partitions)


def _partition(kind: type[PartitionT], exchange: KafkaExchange, partition: int, found: Found) -> PartitionT:
    offset, error = found
    if error is not None or offset is None:
        code = 0 if error is None or error.code in _UNKNOWN else exchange.code(error)
        return kind(partition_index=partition, committed_offset=_NO_OFFSET, error_code=code)
    return kind(
        partition_index=partition,
        committed_offset=offset.committed_offset,
        committed_leader_epoch=_NO_LEADER_EPOCH if offset.leader_epoch is None else offset.leader_epoch,
        metadata=offset.metadata,
    )
