"""What an administrator is told about groups, as frozen values."""

from __future__ import annotations

from dataclasses import dataclass

from coordinator_client.consumer.state import OffsetAndMetadata, TopicPartition

CLASSIC = "classic"
CONSUMER = "consumer"
EMPTY = "Empty"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupListing:
    """A group in a list."""

    group_id: str
    group_type: str
    """classic or consumer."""
    state: str
    protocol_type: str
    """What its members speak, for consumers "consumer"; empty for a group that only has offsets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    """A member of a group, and its partitions."""

    member_id: str
    instance_id: str | None
    """Name of a static member."""
    rack_id: str | None
    client_id: str
    client_host: str
    epoch: int | None
    """Epoch that it has reached; None in a classic group, whose members share the generation."""
    subscribed_topic_names: tuple[str, ...]
    """Empty in a classic group while it rebalances."""
    subscribed_topic_regex: str | None
    assignment: tuple[TopicPartition, ...]
    """Empty in a classic group while it rebalances, and where its members are no consumers."""
    target_assignment: tuple[TopicPartition, ...] | None
    """What it gets once everybody has given up what he must; None in a classic group."""
    is_classic: bool
    """It speaks the classic protocol, in a group of either type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    """A group in full."""

    group_id: str
    group_type: str
    state: str
    protocol_type: str
    assignor: str
    """Empty where none was agreed on."""
    epoch: int
    """Group epoch; in a classic group its generation."""
    assignment_epoch: int | None
    """Group epoch that the target assignment was computed for; None in a classic group."""
    leader: str
    """Member that computes the assignment; empty in a consumer group, where the server does."""
    members: tuple[GroupMember, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingOffset:
    """An offset that is committed when its transaction commits, and the transaction that is waited for."""

    transactional_id: str
    producer_id: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOffset:
    """What a group has committed in one partition."""

    partition: TopicPartition
    committed: OffsetAndMetadata | None
    """None: nothing yet, a transaction holds the first offset."""
    commit_timestamp_ms: int | None
    """Unix milliseconds."""
    pending: tuple[PendingOffset, ...]
    """While there are any, consumers that must not process anything twice wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordCount:
    """How many records lie between an offset and the ends of its partition. Markers are no records."""

    to_last_stable_offset: int
    """What a read-committed reader gets now."""
    to_high_watermark: int
    """All, those of open and of aborted transactions too."""
    log_start_offset: int
    last_stable_offset: int
    high_watermark: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLag:
    """What a group has committed in one partition, and what lies before it."""

    offset: GroupOffset
    lag: RecordCount | None
    """None where nothing is committed, or the topic is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionPositions:
    """Where a partition begins and ends, and what a group has committed in it."""

    log_start_offset: int
    last_stable_offset: int
    high_watermark: int
    committed_offset: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedOffset:
    """Where a group would go on in one partition."""

    partition: TopicPartition
    committed_offset: int | None
    """Where it would go on now; None: nothing is committed."""
    offset: int
    wanted_offset: int
    """Another than `offset` where it was out of the log, which goes from its start to the high watermark."""
