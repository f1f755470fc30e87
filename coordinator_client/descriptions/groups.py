"""Descriptions of groups and their members, from the messages of the server."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from coordinator_api.v1 import group_pb2 as group
from coordinator_api.v1.common_pb2 import TopicPartitions
from coordinator_client.values import TopicPartition
from coordinator_protocol.consumer_protocol import PROTOCOL_TYPE, decode_assignment, subscribed_topics
from coordinator_protocol.errors import Refused

CLASSIC = "classic"
CONSUMER = "consumer"
SHARE = "share"
STREAMS = "streams"
EMPTY = "Empty"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupListing:
    """One group, as `Admin.list_groups` returns it."""

    group_id: str
    group_type: str
    """Type of the group: `classic`, `consumer`, `share` or `streams`."""
    state: str
    protocol_type: str
    """Protocol of its members: "consumer", and "share" or "streams" in groups of these types. Empty for a group that
    only has offsets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberTasks:
    """Tasks of a member of a streams group: pairs of a subtopology and a partition."""

    process_id: str
    """Process of the member, which has each task at most once."""
    active: tuple[tuple[str, int], ...]
    standby: tuple[tuple[str, int], ...]
    warmup: tuple[tuple[str, int], ...]
    lags: Mapping[tuple[str, int], int]
    """Changelog records that the member lacks, by task, as it last reported them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    """A member of a group, and its partitions."""

    member_id: str
    instance_id: str | None
    """Name of a static member; None for a dynamic one."""
    rack_id: str | None
    client_id: str
    client_host: str
    epoch: int | None
    """Member epoch reached so far; None in a classic group, where all members share the generation."""
    subscribed_topic_names: tuple[str, ...]
    """Topics named in the subscription; empty in a classic group while it rebalances."""
    subscribed_topic_regex: str | None
    assignment: tuple[TopicPartition, ...]
    """Partitions of the member. In a share group others may have them too. Empty in a classic group while it
    rebalances, or if its members are not consumers."""
    target_assignment: tuple[TopicPartition, ...] | None
    """Partitions that the member will have once other members have released theirs. None in a classic group, and in a
    share group, whose members wait for none."""
    is_classic: bool
    """True if the member speaks the classic protocol, in a group of either type."""
    tasks: MemberTasks | None = None
    """Tasks of a member of a streams group, whose partitions are those that its active tasks read; None in others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    """Everything that the coordinator knows of one group."""

    group_id: str
    group_type: str
    state: str
    protocol_type: str
    assignor: str
    """Name of the assignor; empty if none was agreed on."""
    epoch: int
    """Group epoch; the generation in a classic group."""
    assignment_epoch: int | None
    """Group epoch for which the target assignment was computed; None in a classic group."""
    leader: str
    """Member that computes the assignment; empty in the other groups, where the server computes it."""
    members: tuple[GroupMember, ...]


class GroupWithEpochs(Protocol):
    """Fields of the messages of all groups but the classic ones."""

    @property
    def group_id(self) -> str: ...
    @property
    def group_state(self) -> str: ...
    @property
    def group_epoch(self) -> int: ...
    @property
    def assignment_epoch(self) -> int: ...


def described_by_epochs(
    found: GroupWithEpochs, members: Iterable[GroupMember], *, group_type: str, protocol_type: str, assignor: str
) -> GroupDescription:
    """Return the description of a group whose members follow its epoch."""
    return GroupDescription(
        group_id=found.group_id,
        group_type=group_type,
        state=found.group_state,
        protocol_type=protocol_type,
        assignor=assignor,
        epoch=found.group_epoch,
        assignment_epoch=found.assignment_epoch,
        leader="",
        members=tuple(members),
    )


def described_consumer(found: group.ConsumerGroupDescription) -> GroupDescription:
    """Return the description of a consumer group."""
    members = (
        GroupMember(
            member_id=member.member_id,
            instance_id=member.instance_id if member.HasField("instance_id") else None,
            rack_id=member.rack_id if member.HasField("rack_id") else None,
            client_id=member.client_id,
            client_host=member.client_host,
            epoch=member.member_epoch,
            subscribed_topic_names=tuple(member.subscribed_topic_names),
            subscribed_topic_regex=member.subscribed_topic_regex if member.HasField("subscribed_topic_regex") else None,
            assignment=_partitions(member.assignment),
            target_assignment=_partitions(member.target_assignment),
            is_classic=member.is_classic,
        )
        for member in found.members
    )
    return described_by_epochs(
        found, members, group_type=CONSUMER, protocol_type=PROTOCOL_TYPE, assignor=found.assignor_name
    )


def described_share(found: group.ShareGroupDescription) -> GroupDescription:
    """Return the description of a share group."""
    members = (
        GroupMember(
            member_id=member.member_id,
            instance_id=None,
            rack_id=member.rack_id if member.HasField("rack_id") else None,
            client_id=member.client_id,
            client_host=member.client_host,
            epoch=member.member_epoch,
            subscribed_topic_names=tuple(member.subscribed_topic_names),
            subscribed_topic_regex=None,
            assignment=_partitions(member.assignment),
            target_assignment=None,
            is_classic=False,
        )
        for member in found.members
    )
    return described_by_epochs(found, members, group_type=SHARE, protocol_type=SHARE, assignor=found.assignor_name)


def described_classic(found: group.GroupDescription) -> GroupDescription:
    """Return the description of a classic group. Metadata and assignments of its members are opaque bytes; only those
    of consumers have a known format."""
    is_of_consumers = found.protocol_type == PROTOCOL_TYPE
    return GroupDescription(
        group_id=found.group_id,
        group_type=CLASSIC,
        state=found.group_state,
        protocol_type=found.protocol_type,
        assignor=found.protocol_name,
        epoch=found.generation_id,
        assignment_epoch=None,
        leader=found.leader,
        members=tuple(
            GroupMember(
                member_id=member.member_id,
                instance_id=member.group_instance_id if member.HasField("group_instance_id") else None,
                rack_id=None,
                client_id=member.client_id,
                client_host=member.client_host,
                epoch=None,
                subscribed_topic_names=_subscribed(member.metadata) if is_of_consumers else (),
                subscribed_topic_regex=None,
                assignment=_assigned(member.assignment) if is_of_consumers else (),
                target_assignment=None,
                is_classic=True,
            )
            for member in found.members
        ),
    )


def _partitions(topics: Iterable[TopicPartitions]) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(each.topic, partition) for each in topics for partition in each.partitions)


def _subscribed(metadata: bytes) -> tuple[str, ...]:
    # A member with metadata in another format is still listed, without topics.
    try:
        return tuple(sorted(subscribed_topics(metadata))) if metadata else ()
    except Refused:
        return ()


def _assigned(assignment: bytes) -> tuple[TopicPartition, ...]:
    try:
        shares = decode_assignment(assignment).partitions if assignment else {}
    except Refused:
        return ()
    return tuple(TopicPartition(topic, partition) for topic in sorted(shares) for partition in shares[topic])
