"""Requests of members of streams groups and their answers, as frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from msgspec import Struct

from coordinator_protocol.errors import Refused
from group_coordinator.members import Beat, HeartbeatReply
from group_coordinator.state import OfGroup
from group_coordinator.streams.state import Roles, StreamsMember, TaskId, UserEndpoint
from group_coordinator.streams.topology import InternalTopic, Status, Topology
from group_coordinator.topics import TopicShare


class TaskOffset(NamedTuple):
    """Offsets of the changelogs of one task, all its partitions together."""

    task: TaskId
    offset: int
    end_offset: int


class StreamsHeartbeat(Beat, frozen=True, kw_only=True):
    """One StreamsGroupHeartbeat. None means unchanged, or none in a join (spec groups 6.7)."""

    instance_id: str | None = None
    rebalance_timeout_ms: int | None = None
    topology: Topology | None = None
    owned: Roles | None = None
    process_id: str | None = None
    user_endpoint: UserEndpoint | None = None
    client_tags: Mapping[str, str] | None = None
    task_offsets: tuple[TaskOffset, ...] | None = None
    endpoint_epoch: int = 0
    shutdown_application: bool = False

    @property
    def is_full(self) -> bool:
        """True if a member repeats its tasks and its rebalance timeout. It may have missed an answer of its epoch, so
        the reply repeats its assignment."""
        return self.rebalance_timeout_ms is not None and self.owned is not None


class EndpointPartitions(NamedTuple):
    """Partitions whose state is to be found at one endpoint."""

    endpoint: UserEndpoint
    active: tuple[TopicShare, ...]
    standby: tuple[TopicShare, ...]


class StreamsReply(HeartbeatReply, frozen=True, kw_only=True):
    """Reply of the group, and the answer to the member."""

    acceptable_lag: int = 0
    task_offset_interval_ms: int = 0
    statuses: tuple[Status, ...] = ()
    tasks: Roles | None = None
    """None if unchanged."""
    endpoint_epoch: int = 0
    endpoints: tuple[EndpointPartitions, ...] | None = None
    """None if unchanged since the epoch that the member knows."""
    to_make: tuple[InternalTopic, ...] = ()
    """Internal topics that are missing."""

    def is_news(self, request: Beat) -> bool:
        is_new = self.tasks is not None or self.endpoints is not None or bool(self.statuses)
        return is_new or self.member_epoch != request.member_epoch


class StreamsMemberDescription(Struct, frozen=True):
    """One member of a streams group, as it is on disk."""

    member: StreamsMember
    member_epoch: int
    assigned: Roles
    target: Roles
    task_offsets: tuple[TaskOffset, ...]
    """Its newest report, which is not on disk."""


class StreamsGroupDescription(OfGroup, frozen=True):
    """One streams group as it is on disk, or the refusal to show it."""

    refusal: Refused | None = None
    state_name: str = ""
    group_epoch: int = 0
    assignment_epoch: int = 0
    topology: Topology = Topology()
    members: tuple[StreamsMemberDescription, ...] = ()
    """Sorted by member id."""
