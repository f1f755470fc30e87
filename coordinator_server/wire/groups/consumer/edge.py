"""Between the messages of consumer groups and the values of this package."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from coordinator_api.v1 import common_pb2, group_pb2
from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.names import ID_BYTES_MAX, check_group_id
from coordinator_runtime.ports import TopicMetadata
from coordinator_server.wire.edge import partition_names
from group_coordinator.consumer.group import ConsumerGroup
from group_coordinator.consumer.requests import HeartbeatReply, HeartbeatRequest
from group_coordinator.consumer.state import Owned

_UNCHANGED: Final = -1
"""How Kafka's clients say that a number is as before."""


def heartbeat(message: group_pb2.ConsumerGroupHeartbeatRequest, topics: TopicMetadata) -> HeartbeatRequest:
    """Raises Refused INVALID_REQUEST for ids that could not be stored, and partitions that are none."""
    group_id = message.group_id
    if not group_id.strip():
        raise Refused(ErrorCode.INVALID_REQUEST, "the group id is empty; give the group a name")
    check_group_id(group_id)
    _check_id("member id", message.member_id)
    has_names = message.HasField("subscribed_topic_names")
    owned = _owned(message.topic_partitions, topics) if message.HasField("topic_partitions") else None
    return HeartbeatRequest(
        group_id=group_id,
        member_id=message.member_id,
        member_epoch=message.member_epoch,
        instance_id=_optional(message, "instance_id"),
        rack_id=_optional(message, "rack_id"),
        rebalance_timeout_ms=_rebalance_timeout_ms(message),
        subscribed_topic_names=frozenset(message.subscribed_topic_names.names) if has_names else None,
        subscribed_topic_regex=_optional(message, "subscribed_topic_regex"),
        server_assignor=_optional(message, "server_assignor"),
        owned=owned,
    )


def _optional(message: group_pb2.ConsumerGroupHeartbeatRequest, field: str) -> str | None:
    if not message.HasField(field):  # type: ignore[arg-type]  # the names of optional strings, all from here
        return None
    text: str = getattr(message, field)
    _check_id(field, text)
    return text


def _check_id(what: str, text: str) -> None:
    if "\0" in text or len(text.encode()) > ID_BYTES_MAX:
        raise Refused(
            ErrorCode.INVALID_REQUEST, f"the {what} contains NUL or is longer than {ID_BYTES_MAX} bytes; shorten it"
        )


def _rebalance_timeout_ms(message: group_pb2.ConsumerGroupHeartbeatRequest) -> int | None:
    if not message.HasField("rebalance_timeout_ms") or message.rebalance_timeout_ms == _UNCHANGED:
        return None
    return message.rebalance_timeout_ms


def _owned(partitions: group_pb2.PartitionSet, topics: TopicMetadata) -> Owned:
    """By topic id. A topic that is known by a name alone, and is gone, is nothing that one could own."""
    owned: dict[bytes, set[int]] = {}
    for name in partition_names(partitions.topics):
        topic_id = name.topic_id
        if not topic_id:
            shape = topics.shape(name.topic)
            if shape is None:
                continue
            topic_id = shape.topic_id
        owned.setdefault(topic_id, set()).add(name.partition)
    return {topic_id: frozenset(numbers) for topic_id, numbers in owned.items()}


def heartbeat_response(reply: HeartbeatReply, topics: TopicMetadata) -> group_pb2.ConsumerGroupHeartbeatResponse:
    response = group_pb2.ConsumerGroupHeartbeatResponse(
        member_id=reply.member_id,
        member_epoch=reply.member_epoch,
        heartbeat_interval_ms=reply.heartbeat_interval_ms,
    )
    if reply.assigned is not None:
        response.assignment.SetInParent()
        response.assignment.topics.extend(_topic_partitions(reply.assigned, topics))
    return response


def _topic_partitions(held: Mapping[bytes, Iterable[int]], topics: TopicMetadata) -> list[common_pb2.TopicPartitions]:
    """By name; a topic that is gone has none any more."""
    named = [
        common_pb2.TopicPartitions(
            topic="" if (shape := topics.shape_of_id(topic_id)) is None else shape.topic,
            topic_id=topic_id,
            partitions=sorted(partitions),
        )
        for topic_id, partitions in held.items()
    ]
    return sorted(named, key=lambda topic: (topic.topic, topic.topic_id))


def fill_description(
    description: group_pb2.ConsumerGroupDescription, group: ConsumerGroup, topics: TopicMetadata, default_assignor: str
) -> None:
    epochs = group.durable_epochs()
    description.group_state = group.state_name
    description.group_epoch = epochs.group_epoch
    description.assignment_epoch = epochs.assignment_epoch
    description.assignor_name = epochs.assignor_name or default_assignor
    for view in sorted(group.durable_members(), key=lambda view: view.member.member_id):
        member, assignment = view.member, view.assignment
        described = description.members.add(
            member_id=member.member_id,
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            member_epoch=assignment.member_epoch,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=sorted(member.subscription.names),
            subscribed_topic_regex=member.subscription.regex,
            is_classic=member.classic is not None,
        )
        described.assignment.extend(_topic_partitions(assignment.assigned, topics))
        described.target_assignment.extend(_topic_partitions(view.target, topics))
