"""Records of consumer groups, as frozen values. A removal goes in the order assignment, target, member; the group goes
last.

Source: spec groups 3.3.
"""

from __future__ import annotations

from coordinator_protocol.assignors.values import Share
from group_coordinator.consumer.state import ConsumerMember, CurrentAssignment, ResolvedRegex
from group_coordinator.state import OfGroup


class OfMember(OfGroup, frozen=True):
    """Base of the records of one member."""

    member_id: str


class MemberChanged(OfGroup, frozen=True):
    """New metadata of a member, which may be new itself."""

    member: ConsumerMember


class MemberForgotten(OfMember, frozen=True):
    """Tombstone of a member. Its assignment and target were removed before."""


class GroupEpochBumped(OfGroup, frozen=True):
    """New group epoch, because the basis of the assignment changed. The first one creates the group."""

    group_epoch: int
    metadata_hash: int


class ConsumerGroupForgotten(OfGroup, frozen=True):
    """Tombstone of a group. Its members were removed before."""


class TargetChanged(OfMember, frozen=True):
    """New target of a member."""

    share: Share[bytes]


class TargetForgotten(OfMember, frozen=True):
    """The member is no longer in the target."""


class TargetEpochReached(OfGroup, frozen=True):
    """The target is now that of this group epoch."""

    assignment_epoch: int
    computed_ms: int
    assignor_name: str


class TargetEpochForgotten(OfGroup, frozen=True):
    """The group has no target any more."""


class AssignmentChanged(OfMember, frozen=True):
    """New assignment of a member."""

    assignment: CurrentAssignment


class AssignmentForgotten(OfMember, frozen=True):
    """The member holds nothing any more."""


class RegexResolved(OfGroup, frozen=True):
    """Topics that a pattern of the group matches."""

    regex: str
    resolved: ResolvedRegex


class RegexForgotten(OfGroup, frozen=True):
    """Tombstone of a pattern that no member uses any more."""

    regex: str


class MetadataChecked(OfGroup, frozen=True):
    """The hash of the group's epoch was compared with the existing topics. Memory only: every load compares again."""

    checked_ms: int | None
    """Wall time; None if it must be compared again. No decision writes None: a change of the topics is compared at
    once."""


class RegexesChecked(OfGroup, frozen=True):
    """All patterns of the group were matched against the existing topics. Memory only, as `MetadataChecked`."""

    checked_ms: int | None
    """Wall time; None if they must be matched again, because the topics changed."""


class RebalanceNoted(OfGroup, frozen=True):
    """A rebalance of the group began or ended. Memory only: the duration of one that a restart interrupted is not
    measured."""

    started_ms: int | None
    """Wall time; None if no rebalance is under way."""


class RejoinAwaited(OfMember, frozen=True):
    """A classic member must join again, or has done so. Memory only: after a load it is notified once more."""

    is_awaited: bool
