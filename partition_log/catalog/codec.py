"""Bytes of the catalog's records."""

from __future__ import annotations

from typing import Final

from coordinator_api.storage.v1 import log_pb2
from coordinator_runtime.rows import EncodedRecord
from partition_log.catalog.state import (
    CatalogRecord,
    OrdinalsAllocated,
    Topic,
    TopicCreated,
    TopicDeleted,
)

TOPIC_TYPE: Final = 1
ORDINAL_ALLOCATOR_TYPE: Final = 2


class CatalogCodec:
    """Implements `coordinator_runtime.rows.StateCodec`."""

    def encode(self, value: CatalogRecord) -> EncodedRecord:
        match value:
            case TopicCreated(topic):
                stored = log_pb2.TopicValue(
                    topic_id=topic.topic_id,
                    partition_ordinals=topic.partition_ordinals,
                    created_ms=topic.created_ms,
                    settings=dict(topic.settings),
                )
                # A map has no order of its own, and equal topics have equal rows.
                return EncodedRecord(TOPIC_TYPE, topic.name.encode(), stored.SerializeToString(deterministic=True))
            case TopicDeleted(name):
                return EncodedRecord(TOPIC_TYPE, name.encode(), None)
            case OrdinalsAllocated(next_ordinal, incarnation):
                allocator = log_pb2.OrdinalAllocatorValue(next_ordinal=next_ordinal, incarnation=incarnation)
                return EncodedRecord(ORDINAL_ALLOCATOR_TYPE, b"", allocator.SerializeToString(), has_history=False)

    def decode(self, record_type: int, key: bytes, value: bytes) -> CatalogRecord | None:
        if record_type == TOPIC_TYPE:
            stored = log_pb2.TopicValue.FromString(value)
            return TopicCreated(
                Topic(
                    key.decode(),
                    stored.topic_id,
                    tuple(stored.partition_ordinals),
                    stored.created_ms,
                    tuple(sorted(stored.settings.items())),
                )
            )
        if record_type == ORDINAL_ALLOCATOR_TYPE:
            allocator = log_pb2.OrdinalAllocatorValue.FromString(value)
            return OrdinalsAllocated(allocator.next_ordinal, allocator.incarnation)
        return None
