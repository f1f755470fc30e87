"""The offsets of a consumer that commit inside a transaction, and how they are written into a request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar

from coordinator_api.v1 import group_pb2 as group
from coordinator_client.consumer.state import GroupMetadata, OffsetAndMetadata, TopicPartition

BatchT_contra = TypeVar("BatchT_contra", contravariant=True)


@dataclass(frozen=True, slots=True)
class TransactionOffsets:
    """The offsets to commit, and the member that commits them: the group refuses them once that member is out of date
    (KIP-447)."""

    metadata: GroupMetadata
    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    topic_ids: Mapping[TopicPartition, bytes]


class OffsetSource(Protocol[BatchT_contra]):
    """The part of a consumer that a transaction uses."""

    def transaction_offsets(self, batch: BatchT_contra) -> TransactionOffsets:
        """Return the offsets to commit once the batch is processed. Raises: Abortable where the batch is not this
        consumer's any more."""
        ...


class _TopicOffsetsList(Protocol):
    def add(self, *, topic: str, topic_id: bytes) -> group.TopicOffsets: ...


def fill_topics(
    topics: _TopicOffsetsList,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    topic_ids: Mapping[TopicPartition, bytes],
) -> None:
    """Write offsets into a request, topic by topic."""
    last: group.TopicOffsets | None = None
    for name in sorted(offsets):
        topic, partition = name
        if last is None or last.topic != topic:
            last = topics.add(topic=topic, topic_id=topic_ids.get(name, b""))
        offset, metadata = offsets[name]
        last.partitions.add(partition=partition, committed_offset=offset, metadata=metadata)
