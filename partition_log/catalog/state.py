"""Frozen values of the catalog and of its changes, and the rules for new topics.

Source: design 6 (limits, reserved names), Kafka's `CreateTopics`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from msgspec import Struct

from coordinator_protocol.acls import Acl
from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.limits import Limits
from coordinator_protocol.names import check_topic_name
from coordinator_runtime.decision import ShardKey
from coordinator_runtime.ports import PartitionName, PartitionRef
from partition_log.catalog.settings import (
    FOR_EVER,
    CleanupPolicy,
    PayloadValidation,
    SettingsChange,
    check_settings,
    cleanup_policy,
    payload_validation,
)

ORDINAL_MAX: Final = 2**32 - 2
"""Largest ordinal. Every stored key has 32 bits for it, and the ordinal after the last must still fit as the end of a
range."""


class Topic(Struct, frozen=True):
    """A topic. If it is deleted and created again, it has another id and other ordinals."""

    name: str
    topic_id: bytes
    partition_ordinals: tuple[int, ...]
    """Ordinals of the partitions, by partition number."""
    created_ms: int
    settings: tuple[tuple[str, str], ...] = ()
    """Settings of this topic by name, including those that only a newer program knows."""
    created_by: str = ""
    """Principal that created the topic; empty for an anonymous one."""

    @property
    def validate_payload(self) -> PayloadValidation:
        """Checks on a batch before it is accepted."""
        return payload_validation(self.settings)

    @property
    def cleanup_policy(self) -> CleanupPolicy:
        """Ways in which the topic loses old records."""
        return cleanup_policy(self.settings)


class PlacedPartition(Struct, frozen=True):
    """A partition and the shard that holds its log."""

    ref: PartitionRef
    name: PartitionName
    """The partition's name with topic and topic id, as answers have it."""
    shard: ShardKey
    validates_payload: bool = True
    timestamp_after_max_ms: int = FOR_EVER
    """Milliseconds by which timestamps of records may lie ahead of the clock; FOR_EVER means any number."""
    batch_bytes_max: int = Limits().batch_bytes_max
    """Largest stored size of a batch (bytes)."""
    needs_keys: bool = False
    """True if every record must have a key, because the topic is compacted."""


class TopicSet(Struct, frozen=True):
    """A new topic, or one that got more partitions or other settings."""

    topic: Topic


class TopicDeleted(Struct, frozen=True):
    """The topic of this name was deleted."""

    name: str


class OrdinalsAllocated(Struct, frozen=True):
    """All ordinals below `next_ordinal` are assigned, permanently."""

    next_ordinal: int
    incarnation: int = 0
    """Incarnation of the store at that time."""


class AclCreated(Struct, frozen=True):
    """A rule took effect."""

    acl: Acl
    version: int
    """Version of the rules that it came with."""


class AclDeleted(Struct, frozen=True):
    """A rule ceased to apply."""

    acl: Acl


class AclVersion(Struct, frozen=True):
    """Number of changes of the rules so far."""

    version: int


AclRecord = AclCreated | AclDeleted | AclVersion
CatalogRecord = TopicSet | TopicDeleted | OrdinalsAllocated | AclRecord


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to be created."""

    name: str
    partition_count: int
    config: Mapping[str, str] = field(default_factory=dict)

    @property
    def settings(self) -> tuple[tuple[str, str], ...]:
        """Settings as they are stored. They must have been checked."""
        return tuple(sorted((name, str(value)) for name, value in self.config.items()))


@dataclass(frozen=True, slots=True)
class MorePartitions:
    """A topic that gets more partitions, named by name, by id, or by both."""

    name: str
    topic_id: bytes
    partition_count: int
    """Number of partitions after the change."""
    validate_only: bool = False

    @property
    def new_settings(self) -> Mapping[str, str]:
        """Settings that the topic gets: none."""
        return {}


@dataclass(frozen=True, slots=True)
class TopicToAlter:
    """A topic whose settings change, named by name, by id, or by both."""

    name: str
    topic_id: bytes
    change: SettingsChange
    validate_only: bool = False

    @property
    def new_settings(self) -> Mapping[str, str]:
        """Settings that the topic may get."""
        return self.change.possible


def check_more_partitions(topic: Topic, partition_count: int, limits: Limits) -> int:
    """Return the number of partitions to add. Raises Refused INVALID_PARTITIONS unless there are more than before, and
    not too many. Source: Kafka's `CreatePartitions`, which also refuses the present number."""
    there, most = len(topic.partition_ordinals), limits.partitions_per_topic_max
    if there < partition_count <= most:
        return partition_count - there
    if partition_count == there:
        why = "it has as many already"
    elif 0 < partition_count < there:
        why = f"it has {there}, and partitions are never taken away: delete the topic and create it anew"
    else:
        why = f"it has {there}, and may have up to {most}"
    raise Refused(
        ErrorCode.INVALID_PARTITIONS, f"the topic {topic.name} cannot get {partition_count} partitions: {why}"
    )


def check_new_topic(topic: NewTopic, limits: Limits) -> None:
    """Return only if a topic may be created like this, as far as that can be decided without the catalog.

    Raises Refused: INVALID_TOPIC_EXCEPTION, INVALID_PARTITIONS, INVALID_CONFIG."""
    check_topic_name(topic.name)
    if not 1 <= topic.partition_count <= limits.partitions_per_topic_max:
        raise Refused(
            ErrorCode.INVALID_PARTITIONS,
            f"the topic {topic.name} cannot have {topic.partition_count} partitions: choose 1 to "
            f"{limits.partitions_per_topic_max}",
        )
    check_settings(topic.name, topic.config, limits.batch_bytes_max)


def repeated_names(names: Iterable[str]) -> frozenset[str]:
    """Return the names that one request uses more than once. Such a request is ambiguous."""
    return frozenset(name for name, times in Counter(names).items() if times > 1)
