"""Records of share groups, as frozen values. A removal goes in the order assignment, target, member; the group goes
last.

Source: spec groups 3.3, 6.1.
"""

from __future__ import annotations

from coordinator_protocol.assignors.values import Share
from group_coordinator.share.state import ShareAssignment, ShareMember, TopicsLook
from group_coordinator.state import OfGroup


class OfShareMember(OfGroup, frozen=True):
    """Base of the records of one member."""

    member_id: str


class ShareMemberChanged(OfGroup, frozen=True):
    """New metadata of a member, which may be new itself."""

    member: ShareMember


class ShareMemberForgotten(OfShareMember, frozen=True):
    """Tombstone of a member. Its assignment and target were removed before."""


class ShareGroupEpochBumped(OfGroup, frozen=True):
    """New group epoch, because the basis of the assignment changed. The first one creates the group."""

    group_epoch: int
    metadata_hash: int


class ShareGroupForgotten(OfGroup, frozen=True):
    """Tombstone of a group. Its members and its share partitions were removed before."""


class ShareTargetChanged(OfShareMember, frozen=True):
    """New target of a member."""

    share: Share[bytes]


class ShareTargetForgotten(OfShareMember, frozen=True):
    """The member is no longer in the target."""


class ShareTargetEpochReached(OfGroup, frozen=True):
    """The target is now that of this group epoch."""

    assignment_epoch: int
    computed_ms: int
    assignor_name: str


class ShareTargetEpochForgotten(OfGroup, frozen=True):
    """The group has no target any more."""


class ShareAssignmentChanged(OfShareMember, frozen=True):
    """New assignment of a member."""

    assignment: ShareAssignment


class ShareAssignmentForgotten(OfShareMember, frozen=True):
    """The member holds nothing any more."""


class SharePartitionsInitialized(OfGroup, frozen=True):
    """Partitions of a topic whose states exist: those of before and new ones."""

    topic_id: bytes
    partitions: frozenset[int]


class SharePartitionsForgotten(OfGroup, frozen=True):
    """The states of the partitions of a topic are gone, because the topic or the group is deleted."""

    topic_id: bytes


class ShareTopicsLooked(OfGroup, frozen=True):
    """The group was compared with its topics. Memory only: every load compares again."""

    look: TopicsLook
