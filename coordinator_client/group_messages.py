"""Translates between messages about groups and the values that an administrator gets."""

from __future__ import annotations

from collections.abc import Iterable

from coordinator_api.v1 import group_pb2 as group
from coordinator_api.v1.common_pb2 import TopicPartitions
from coordinator_client.consumer.state import OffsetAndMetadata, TopicPartition
from coordinator_client.group_state import (
    CLASSIC,
    CONSUMER,
    GroupDescription,
    GroupMember,
    GroupOffset,
    PendingOffset,
)
from coordinator_protocol.consumer_protocol import PROTOCOL_TYPE, decode_assignment, subscribed_topics
from coordinator_protocol.errors import Refused


def described_consumer(found: group.ConsumerGroupDescription) -> GroupDescription:
    """Return the description of a consumer group."""
    return GroupDescription(
        group_id=found.group_id,
        group_type=CONSUMER,
        state=found.group_state,
        protocol_type=PROTOCOL_TYPE,
        assignor=found.assignor_name,
        epoch=found.group_epoch,
        assignment_epoch=found.assignment_epoch,
        leader="",
        members=tuple(
            GroupMember(
                member_id=member.member_id,
                instance_id=member.instance_id if member.HasField("instance_id") else None,
                rack_id=member.rack_id if member.HasField("rack_id") else None,
                client_id=member.client_id,
                client_host=member.client_host,
                epoch=member.member_epoch,
                subscribed_topic_names=tuple(member.subscribed_topic_names),
                subscribed_topic_regex=(
                    member.subscribed_topic_regex if member.HasField("subscribed_topic_regex") else None
                ),
                assignment=_partitions(member.assignment),
                target_assignment=_partitions(member.target_assignment),
                is_classic=member.is_classic,
            )
            for member in found.members
        ),
    )


def described_classic(found: group.GroupDescription) -> GroupDescription:
    """Return the description of a classic group. The metadata and assignments of its members are opaque bytes; only
    those of consumers have a format that is known here."""
    is_of_consumers = found.protocol_type == PROTOCOL_TYPE
    return GroupDescription(
        group_id=found.group_id,
        group_type=CLASSIC,
        state=found.group_state,
        protocol_type=found.protocol_type,
        assignor=found.protocol_name,
        epoch=found.generation_id,
        assignment_epoch=None,
        leader=found.leader,
        members=tuple(
            GroupMember(
                member_id=member.member_id,
                instance_id=member.group_instance_id if member.HasField("group_instance_id") else None,
                rack_id=None,
                client_id=member.client_id,
                client_host=member.client_host,
                epoch=None,
                subscribed_topic_names=_subscribed(member.metadata) if is_of_consumers else (),
                subscribed_topic_regex=None,
                assignment=_assigned(member.assignment) if is_of_consumers else (),
                target_assignment=None,
                is_classic=True,
            )
            for member in found.members
        ),
    )


def group_offset(found: group.FetchedOffset) -> GroupOffset:
    """Return an offset of a group, or the transactions that it waits for."""
    is_committed = found.committed_offset >= 0 and not found.error_code
    return GroupOffset(
        partition=TopicPartition(found.topic, found.partition),
        committed=OffsetAndMetadata(found.committed_offset, found.metadata) if is_committed else None,
        commit_timestamp_ms=found.commit_timestamp_ms if is_committed else None,
        pending=tuple(
            PendingOffset(
                transactional_id=waiting.transactional_id, producer_id=waiting.producer_id, offset=waiting.offset
            )
            for waiting in found.pending
        ),
    )


def topic_partitions(partitions: Iterable[TopicPartition]) -> list[TopicPartitions]:
    """Return the partitions grouped by topic, each once."""
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(set(partitions)):
        by_topic.setdefault(topic, []).append(partition)
    return [TopicPartitions(topic=topic, partitions=numbers) for topic, numbers in by_topic.items()]


def _partitions(topics: Iterable[TopicPartitions]) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(each.topic, partition) for each in topics for partition in each.partitions)


def _subscribed(metadata: bytes) -> tuple[str, ...]:
    # A member that writes something else there is shown all the same.
    try:
        return tuple(sorted(subscribed_topics(metadata))) if metadata else ()
    except Refused:
        return ()


def _assigned(assignment: bytes) -> tuple[TopicPartition, ...]:
    try:
        shares = decode_assignment(assignment).partitions if assignment else {}
    except Refused:
        return ()
    return tuple(TopicPartition(topic, partition) for topic in sorted(shares) for partition in shares[topic])
