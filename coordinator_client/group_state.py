"""Frozen values that describe groups to an administrator."""

from __future__ import annotations

from dataclasses import dataclass

from coordinator_client.consumer.state import OffsetAndMetadata, TopicPartition

CLASSIC = "classic"
CONSUMER = "consumer"
EMPTY = "Empty"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupListing:
    """One group, as `Admin.list_groups` returns it."""

    group_id: str
    group_type: str
    """`classic` or `consumer`."""
    state: str
    protocol_type: str
    """The protocol of its members, "consumer" for consumers; empty for a group that only has offsets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    """A member of a group, and its partitions."""

    member_id: str
    instance_id: str | None
    """The name of a static member; None for a dynamic one."""
    rack_id: str | None
    client_id: str
    client_host: str
    epoch: int | None
    """The epoch that it has reached; None in a classic group, whose members share the generation."""
    subscribed_topic_names: tuple[str, ...]
    """Empty in a classic group while it rebalances."""
    subscribed_topic_regex: str | None
    assignment: tuple[TopicPartition, ...]
    """Empty in a classic group while it rebalances, and where its members are no consumers."""
    target_assignment: tuple[TopicPartition, ...] | None
    """What it will get once the others have given up what they must; None in a classic group."""
    is_classic: bool
    """Whether it speaks the classic protocol, in a group of either type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    """Everything the coordinator knows of one group."""

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
    """An offset that is committed if its transaction commits, and that transaction."""

    transactional_id: str
    producer_id: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOffset:
    """What a group has committed in one partition."""

    partition: TopicPartition
    committed: OffsetAndMetadata | None
    """None where nothing is committed yet, and a transaction holds the first offset."""
    commit_timestamp_ms: int | None
    """Unix milliseconds."""
    pending: tuple[PendingOffset, ...]
    """While there are any, consumers that must process nothing twice wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordCount:
    """How many records lie between an offset and the ends of its partition. Markers are no records."""

    to_last_stable_offset: int
    """Records that a read-committed reader gets now."""
    to_high_watermark: int
    """All records, also those of open and aborted transactions."""
    log_start_offset: int
    last_stable_offset: int
    high_watermark: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLag:
    """What a group has committed in one partition, and how many records lie behind that."""

    offset: GroupOffset
    lag: RecordCount | None
    """None where nothing is committed, or the topic does not exist any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionPositions:
    """Where a partition begins and ends, and what a group has committed in it."""

    log_start_offset: int
    last_stable_offset: int
    high_watermark: int
    committed_offset: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedOffset:
    """The result of a planned offset reset in one partition."""

    partition: TopicPartition
    committed_offset: int | None
    """Where the group would go on now; None where nothing is committed."""
    offset: int
    wanted_offset: int
    """What the rule asked for: different from `offset` where it lies outside the log, which goes from its start to the
    high watermark."""
