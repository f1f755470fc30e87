"""Records of streams groups, as frozen values. A removal goes in the order assignment, target, member; the group goes
last.

Source: spec groups 3.3, 6.6.
"""

from __future__ import annotations

from group_coordinator.state import OfGroup
from group_coordinator.streams.requests import TaskOffset
from group_coordinator.streams.state import Roles, StreamsAssignment, StreamsMember, TopologyLook
from group_coordinator.streams.topology import Topology


class OfStreamsMember(OfGroup, frozen=True):
    """Base of the records of one member."""

    member_id: str


class StreamsGroupEpochBumped(OfGroup, frozen=True):
    """New group epoch, because the basis of the assignment changed. The first one creates the group."""

    group_epoch: int
    metadata_hash: int
    validated_topology_epoch: int


class StreamsGroupForgotten(OfGroup, frozen=True):
    """Tombstone of a group. Its members and its topology were removed before."""


class StreamsTopologyChanged(OfGroup, frozen=True):
    """The topology of the group, which the first member brings."""

    topology: Topology


class StreamsTopologyForgotten(OfGroup, frozen=True):
    """The group has no topology any more, because it is being removed."""


class StreamsMemberChanged(OfGroup, frozen=True):
    """New metadata of a member, which may be new itself."""

    member: StreamsMember


class StreamsMemberForgotten(OfStreamsMember, frozen=True):
    """Tombstone of a member. Its assignment and target were removed before."""


class StreamsTargetChanged(OfStreamsMember, frozen=True):
    """New target of a member."""

    roles: Roles


class StreamsTargetForgotten(OfStreamsMember, frozen=True):
    """The member is no longer in the target."""


class StreamsTargetEpochReached(OfGroup, frozen=True):
    """The target is now that of this group epoch."""

    assignment_epoch: int
    computed_ms: int


class StreamsTargetEpochForgotten(OfGroup, frozen=True):
    """The group has no target any more."""


class StreamsAssignmentChanged(OfStreamsMember, frozen=True):
    """New assignment of a member."""

    assignment: StreamsAssignment


class StreamsAssignmentForgotten(OfStreamsMember, frozen=True):
    """The member holds nothing any more."""


class StreamsTopicsLooked(OfGroup, frozen=True):
    """The group was compared with its topics. Memory only: every load compares again."""

    look: TopologyLook


class StreamsOffsetsReported(OfStreamsMember, frozen=True):
    """A member reported the offsets of its tasks. Memory only: after a load it reports again."""

    offsets: tuple[TaskOffset, ...]


class StreamsShutdownWanted(OfStreamsMember, frozen=True):
    """A member wants the whole application to stop. Memory only, as in Kafka."""


class StreamsRebalanceNoted(OfGroup, frozen=True):
    """A rebalance of the group began or ended. Memory only: the duration of one that a restart interrupted is not
    measured."""

    started_ms: int | None
    """Wall time; None if no rebalance is under way."""


class StreamsFirstTargetDelayed(OfGroup, frozen=True):
    """The first target of the group waits for more members, or no longer does. Memory only: a restart ends the wait."""

    until_ms: int | None
    """Wall time; None if it does not wait."""
