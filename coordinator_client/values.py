"""Frozen values of the client: records, topics, a producer's identity, positions of a group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol, TypeAlias, TypeVar

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]
Row: TypeAlias = tuple[bytes | None, bytes | None, int, Headers]
"""One record before encoding or after decoding: key, value, timestamp (Unix ms), headers."""

BatchT_contra = TypeVar("BatchT_contra", contravariant=True)

NO_GENERATION: Final = -1


class Identity(NamedTuple):
    """The identity of a producer, carried by every batch and every end of a transaction."""

    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPartitionCount:
    """A topic, as readers and writers need it. Its UUID tells it from a recreated topic of the same name."""

    name: str
    topic_id: bytes
    partition_count: int


class TopicPartition(NamedTuple):
    """A partition of a topic. It equals the plain pair `(topic, partition)`, which may be passed instead."""

    topic: str
    partition: int


class OffsetAndMetadata(NamedTuple):
    """A committed position of a group in one partition."""

    offset: int
    """Offset of the next record to read."""
    metadata: str = ""
    """Any text of the application, stored with the offset and returned by `Consumer.committed`."""
    leader_epoch: int | None = None
    """Leader epoch of the record before `offset`, a number that changes when the server has lost records; None = not
    known. A consumer that starts here with it notices that records before `offset` were lost since."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMetadata:
    """Identity of a consumer in its group. Commits carry it, so that the group can fence an outdated member
    (KIP-447)."""

    group_id: str
    generation: int = NO_GENERATION
    """Generation in a classic group, member epoch in a consumer group; -1 = not a member."""
    member_id: str = ""
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class TransactionOffsets:
    """The offsets to commit, and the member that commits them. The group refuses them once that member is out of date
    (KIP-447)."""

    metadata: GroupMetadata
    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    topic_ids: Mapping[TopicPartition, bytes]


@dataclass(frozen=True, slots=True)
class TransactionAcknowledgements:
    """The records of a share group to acknowledge with a transaction, and the member that holds them."""

    group_id: str
    member_id: str
    member_epoch: int
    types: Mapping[TopicPartition, Mapping[int, int]]
    """Outcomes by partition and offset."""
    topic_ids: Mapping[TopicPartition, bytes]


class OffsetSource(Protocol[BatchT_contra]):
    """The part of a consumer that a transaction uses."""

    def transaction_offsets(self, batch: BatchT_contra) -> TransactionOffsets:
        """Return the offsets to commit once the batch is processed.

        Raises: Abortable if the batch no longer belongs to this consumer.
        """
