"""What the catalog knows and how that changes, as frozen values; and which topics may be created.

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
    PayloadValidation,
    SettingsChange,
    check_settings,
    payload_validation,
)

ORDINAL_MAX: Final = 2**32 - 2
"""Ordinals are 32 bits in every stored key, and the one after the last must still fit as the end of a range."""


class Topic(Struct, frozen=True):
    """A topic. One that is deleted and created again has another id and other ordinals."""

    name: str
    topic_id: bytes
    partition_ordinals: tuple[int, ...]
    """Ordinals of the partitions, by partition number."""
    created_ms: int
    settings: tuple[tuple[str, str], ...] = ()
    """Names and values of what was set for this topic, by name; also those that only a newer program knows."""
    created_by: str = ""
    """The principal; empty where nobody was asked."""

    @property
    def validate_payload(self) -> PayloadValidation:
        """How much of a batch is looked at before it is accepted."""
        return payload_validation(self.settings)


class PlacedPartition(Struct, frozen=True):
    """A partition and the shard that holds its log."""

    ref: PartitionRef
    name: PartitionName
    """The partition's name with topic and topic id, as answers have it."""
    shard: ShardKey
    validates_payload: bool = True
    timestamp_after_max_ms: int = FOR_EVER
    """Milliseconds by which timestamps of records may lie ahead of the clock; FOR_EVER = any number."""


class TopicSet(Struct, frozen=True):
    """The topic is this from now on: it is new, or has more partitions or other settings than before."""

    topic: Topic


class TopicDeleted(Struct, frozen=True):
    """The topic of this name does not exist any more."""

    name: str


class OrdinalsAllocated(Struct, frozen=True):
    """Every ordinal below this one is given away, for ever."""

    next_ordinal: int
    incarnation: int = 0
    """Incarnation of the store at that time."""


class AclCreated(Struct, frozen=True):
    """The rule is in force from now on."""

    acl: Acl
    version: int
    """The version of the rules that it came with."""


class AclDeleted(Struct, frozen=True):
    """The rule is not in force any more."""

    acl: Acl


class AclVersion(Struct, frozen=True):
    """How often the rules were changed."""

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
        """What is stored of the settings, which must have been checked."""
        return tuple(sorted((name, str(value)) for name, value in self.config.items()))


@dataclass(frozen=True, slots=True)
class MorePartitions:
    """A topic that shall have more partitions, named by name, by id, or by both."""

    name: str
    topic_id: bytes
    partition_count: int
    """How many it shall have then, with those that it has."""
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class TopicToAlter:
    """A topic whose settings shall change, named by name, by id, or by both."""

    name: str
    topic_id: bytes
    change: SettingsChange
    validate_only: bool = False


def check_more_partitions(topic: Topic, partition_count: int, limits: Limits) -> int:
    """How many partitions must be added. Raises Refused INVALID_PARTITIONS unless there are more than before, and not
    too many. Source: Kafka's `CreatePartitions`, which refuses the number that there is, too."""
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
    """Return only if a topic may be created like this, as far as can be said without the catalog.

    Raises Refused: INVALID_TOPIC_EXCEPTION, INVALID_PARTITIONS, INVALID_CONFIG."""
    check_topic_name(topic.name)
    if not 1 <= topic.partition_count <= limits.partitions_per_topic_max:
        raise Refused(
            ErrorCode.INVALID_PARTITIONS,
            f"the topic {topic.name} cannot have {topic.partition_count} partitions: choose 1 to "
            f"{limits.partitions_per_topic_max}",
        )
    check_settings(topic.name, topic.config)


def repeated_names(names: Iterable[str]) -> frozenset[str]:
    """Names that one request uses more than once: which of them was meant cannot be known."""
    return frozenset(name for name, times in Counter(names).items() if times > 1)
