"""Topics as groups with epochs see them: the hash of a subscription, and partitions under the names of their topics.

Source: spec groups 3.4, 11 (metadata change detection).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from hashlib import blake2b

from msgspec import Struct

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.decision import Operation, ShardRouter
from coordinator_runtime.ports import Authorizer, CallContext, Permission, ResourceType, TopicMetadata, TopicShape
from group_coordinator.shard import GroupShard


class TopicShare(Struct, frozen=True):
    """Partitions of one topic."""

    topic: str
    """Empty for a topic that no longer exists."""
    topic_id: bytes
    partitions: list[int]
    """Ascending."""


class DeletedTopics:
    """Deletion of what groups keep of a topic. Implements `coordinator_runtime.ports.TopicOffsets`."""

    def __init__(self, router: ShardRouter) -> None:
        self._router = router

    def forget_topic(self, topic_id: bytes) -> Sequence[Operation]:
        """Return operations that drop everything that groups keep of the topic, such as committed and pending offsets.

        They cover all shards, so a topic cannot be deleted while a shard that may hold something is not served here.
        """
        decide = partial(GroupShard.decide_forget_topic, topic_id=topic_id)
        return [Operation(key, decide) for key in self._router.shard_keys]


def topic_shares(held: Mapping[bytes, Iterable[int]], topics: TopicMetadata) -> tuple[TopicShare, ...]:
    """Return the partitions by topic, in the order of the topic names."""
    shares = []
    for topic_id, partitions in held.items():
        shape = topics.shape_of_id(topic_id)
        shares.append(TopicShare("" if shape is None else shape.topic, topic_id, sorted(partitions)))
    return tuple(sorted(shares, key=lambda share: (share.topic, share.topic_id)))


def shapes_of(names: Iterable[str], topics: TopicMetadata) -> list[TopicShape]:
    """Return the existing topics of these names, sorted by id."""
    found = [shape for name in names if (shape := topics.shape(name)) is not None]
    return sorted(found, key=lambda shape: shape.topic_id)


def metadata_hash(shapes: Iterable[TopicShape]) -> int:
    """Return a 64-bit hash that changes when a topic is created, deleted or extended. The same in every process."""
    digest = blake2b(digest_size=8)
    for shape in shapes:
        digest.update(f"{shape.topic_id.hex()} {shape.topic} {shape.partition_count}\n".encode())
    return int.from_bytes(digest.digest(), "big")


def check_visible(authorizer: Authorizer, context: CallContext, topics: Iterable[str]) -> None:
    """Raise Refused unless the caller may see all these topics, existing or not. The error names no topic, as in Kafka
    (KAFKA-18813)."""
    may = authorizer.is_allowed
    for topic in topics:
        if not may(context, Permission.DESCRIBE, ResourceType.TOPIC, topic):
            authorizer.on_refused(context, Permission.DESCRIBE, ResourceType.TOPIC, topic)
            raise Refused(
                ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                f"{context.principal} may not describe every topic of the group; ask for that permission",
            )
