"""Changes of consumer groups, as frozen values. A removal leaves in the order assignment, target, member; a group goes
last of all.

Source: spec groups 3.3.
"""

from __future__ import annotations

from coordinator_protocol.assignors.values import Share
from group_coordinator.consumer.state import ConsumerMember, CurrentAssignment, ResolvedRegex
from group_coordinator.state import OfGroup


class OfMember(OfGroup, frozen=True):
    """A record of one member."""

    member_id: str


class MemberChanged(OfGroup, frozen=True):
    """This is what the member says of itself now; it may be new."""

    member: ConsumerMember


class MemberForgotten(OfMember, frozen=True):
    """The member is gone; it held nothing and had no target any more."""


class GroupEpochBumped(OfGroup, frozen=True):
    """What the assignment rests on changed. The first one makes the group."""

    group_epoch: int
    metadata_hash: int


class ConsumerGroupForgotten(OfGroup, frozen=True):
    """The group is gone; it had no members any more."""


class TargetChanged(OfMember, frozen=True):
    """This is what the member is meant to hold from now on."""

    share: Share[bytes]


class TargetForgotten(OfMember, frozen=True):
    """The member is not in the target any more."""


class TargetEpochReached(OfGroup, frozen=True):
    """The target is the one for this group epoch."""

    assignment_epoch: int
    computed_ms: int
    assignor_name: str


class TargetEpochForgotten(OfGroup, frozen=True):
    """There is no target any more."""


class AssignmentChanged(OfMember, frozen=True):
    """This is what the member holds now."""

    assignment: CurrentAssignment


class AssignmentForgotten(OfMember, frozen=True):
    """The member holds nothing any more."""


class RegexResolved(OfGroup, frozen=True):
    """A pattern of the group stands for these topics."""

    regex: str
    resolved: ResolvedRegex


class RegexForgotten(OfGroup, frozen=True):
    """No member uses the pattern any more."""

    regex: str


class MetadataChecked(OfGroup, frozen=True):
    """The hash of the group's epoch was compared with the topics that there are. Memory only: every load checks
    anew."""

    checked_ms: int | None
    """Wall time; None: look again, the topics changed."""


class RegexesChecked(OfGroup, frozen=True):
    """All patterns of the group were held against the topics that there are. Memory only, as above."""

    checked_ms: int | None
    """Wall time; None: again, the topics changed."""


class RebalanceNoted(OfGroup, frozen=True):
    """A rebalance of the group began, or is over. Memory only: nobody measures one that a restart interrupted."""

    started_ms: int | None
    """Wall time; None: none is under way."""


class RejoinAwaited(OfMember, frozen=True):
    """A classic member was told to join again, or did. Memory only: after a load it is told once more."""

    is_awaited: bool
