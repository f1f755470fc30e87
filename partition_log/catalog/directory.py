"""The catalog as others see it: names in, partitions out."""

from __future__ import annotations

from collections.abc import Iterable

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.names import check_partition, check_topic_name
from coordinator_runtime.decision import ShardKey
from coordinator_runtime.ports import PartitionRef, TopicShape
from partition_log.catalog.shard import CatalogShard, partition_of
from partition_log.catalog.state import PlacedPartition, Topic


class TopicDirectory:
    """Implements `coordinator_runtime.ports.TopicCatalog` and `TopicMetadata` on the catalog's shard."""

    def __init__(self, catalog: CatalogShard) -> None:
        self.shard = catalog

    def resolve(self, topic: str, topic_id: bytes, partition: int) -> PartitionRef:
        """Raises Refused: UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, INCONSISTENT_TOPIC_ID;
        INVALID_TOPIC_EXCEPTION for a name that no topic can have; INVALID_REQUEST as `check_partition`."""
        return self.place(topic, topic_id, partition).ref

    def by_ordinal(self, ordinal: int) -> PartitionRef | None:
        """None once the topic was deleted."""
        placed = self.shard.placed(ordinal)
        return None if placed is None else placed.ref

    def place(self, topic: str, topic_id: bytes, partition: int) -> PlacedPartition:
        """A partition with the shard of its log. Raises Refused as `resolve`."""
        placed = self.shard.find(topic, topic_id, partition)
        if placed is None:
            raise self.refusal(topic, topic_id, partition)
        return placed

    def refusal(self, topic: str, topic_id: bytes, partition: int) -> Refused:
        """Why there is no partition of this name, which was looked for in vain."""
        try:
            check_partition(topic, topic_id, partition)
            if topic:
                check_topic_name(topic)
            partition_of(self.shard.topic(topic, topic_id), partition)
        except Refused as refusal:
            return refusal
        raise AssertionError("every partition of a topic that exists is placed")

    def shard_of(self, ordinal: int) -> ShardKey | None:
        """The shard that holds a partition's log, None once it was deleted."""
        placed = self.shard.placed(ordinal)
        return None if placed is None else placed.shard

    def shape(self, topic: str) -> TopicShape | None:
        """None if there is no topic of this name."""
        return _shape(self.shard.topic_named(topic))

    def shape_of_id(self, topic_id: bytes) -> TopicShape | None:
        """None once the topic was deleted."""
        return _shape(self.shard.topic_with_id(topic_id))

    def topic_names(self) -> Iterable[str]:
        """All of them, in no order."""
        return self.shard.topic_names()


def unresolved(topic: str) -> Refused:
    """The refusal for a partition whose creation or deletion is not on disk yet."""
    return Refused(
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        f"the topic {topic} is being created or deleted at this moment; look it up again",
    )


def _shape(topic: Topic | None) -> TopicShape | None:
    return None if topic is None else TopicShape(topic.name, topic.topic_id, len(topic.partition_ordinals))
