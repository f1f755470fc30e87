"""Translation between the bytes that classic members exchange and the values of a consumer group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from coordinator_protocol.assignors.values import Share
from coordinator_protocol.consumer_protocol import (
    Assignment,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    version_of,
)
from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.names import check_topic_name
from coordinator_runtime.ports import TopicMetadata
from group_coordinator.classic.state import ClassicProtocol
from group_coordinator.consumer.state import ClassicMetadata, Owned


def subscription_of(protocols: tuple[ClassicProtocol, ...]) -> Subscription:
    """Return the member's subscription under its preferred protocol. Raises Refused if it is unreadable, or names an
    impossible topic."""
    subscription = decode_subscription(protocols[0].metadata)
    for topic in subscription.topics:
        check_topic_name(topic, reserved_allowed=True)
    return subscription


def owned_by(subscription: Subscription, topics: TopicMetadata) -> Owned:
    """Return the partitions that the member claims to own, without deleted topics. An eager member revokes everything
    before it joins, so it claims none."""
    return {
        shape.topic_id: frozenset(partitions)
        for topic, partitions in subscription.owned.items()
        if (shape := topics.shape(topic)) is not None
    }


def decoded_share(assignment: bytes, topics: TopicMetadata) -> Share[bytes]:
    """Return the existing partitions of a leader's assignment.

    Raises Refused if it is unreadable or has user data. An assignor that sends its own data to members cannot be
    replaced by one of the server's.
    """
    if not assignment:
        return {}
    decoded = decode_assignment(assignment)
    if decoded.user_data:
        raise Refused(ErrorCode.INVALID_REQUEST, "the assignor gives the members data of its own")
    share: dict[bytes, tuple[int, ...]] = {}
    for topic, partitions in decoded.partitions.items():
        shape = topics.shape(topic)
        if shape is not None:
            existing = tuple(number for number in partitions if 0 <= number < shape.partition_count)
            if existing:
                share[shape.topic_id] = existing
    return share


def encoded_share(share: Mapping[bytes, Iterable[int]], classic: ClassicMetadata, topics: TopicMetadata) -> bytes:
    """Encode an assignment in the member's own version of the protocol."""
    named = {
        shape.topic: tuple(sorted(partitions))
        for topic_id, partitions in share.items()
        if (shape := topics.shape_of_id(topic_id)) is not None
    }
    return encode_assignment(Assignment(partitions=named), version_of(classic.protocols[0].metadata))
