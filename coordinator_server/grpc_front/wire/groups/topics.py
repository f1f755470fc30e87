"""Partitions in the answers to members and administrators of groups."""

from __future__ import annotations

from collections.abc import Iterable

from coordinator_api.v1 import common_pb2
from group_coordinator.topics import TopicShare


def topic_partitions(shares: Iterable[TopicShare]) -> list[common_pb2.TopicPartitions]:
    """Return the messages of these partitions."""
    return [
        common_pb2.TopicPartitions(topic=share.topic, topic_id=share.topic_id, partitions=share.partitions)
        for share in shares
    ]
