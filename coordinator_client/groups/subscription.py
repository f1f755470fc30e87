"""The topics that a member wants, and the partitions that its group gives it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from coordinator_api.v1 import group_pb2 as group
from coordinator_client.values import TopicPartition


@dataclass(slots=True)
class WantedTopics:
    """The topics that the application wants to read."""

    topics: frozenset[str] = frozenset()
    pattern: str | None = None

    @property
    def is_empty(self) -> bool:
        """True if there is no subscription."""
        return not self.topics and self.pattern is None


def target_of(assignment: group.PartitionSet) -> Mapping[TopicPartition, bytes]:
    """Return the partitions that the group allows the member to own, with their topic ids; an id is empty if
    unknown."""
    return {
        TopicPartition(topic.topic, partition): topic.topic_id
        for topic in assignment.topics
        # A deleted topic has no name any more, and nothing to read.
        if topic.topic
        for partition in topic.partitions
    }
