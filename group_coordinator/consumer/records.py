"""Changes of consumer groups, as frozen values. A removal leaves in the order assignment, target, member; a group goes
last of all.

Source: spec groups 3.3.
"""

from __future__ import annotations

from msgspec import Struct

from coordinator_protocol.assignors.values import Share
from group_coordinator.consumer.state import ConsumerMember, CurrentAssignment, ResolvedRegex


class MemberChanged(Struct, frozen=True):
    """This is what the member says of itself now; it may be new."""

    group_id: str
    member: ConsumerMember


class MemberForgotten(Struct, frozen=True):
    """The member is gone; it held nothing and had no target any more."""

    group_id: str
    member_id: str


class GroupEpochBumped(Struct, frozen=True):
    """What the assignment rests on changed. The first one makes the group."""

    group_id: str
    group_epoch: int
    metadata_hash: int


class ConsumerGroupForgotten(Struct, frozen=True):
    """The group is gone; it had no members any more."""

    group_id: str


class TargetChanged(Struct, frozen=True):
    """This is what the member is meant to hold from now on."""

    group_id: str
    member_id: str
    share: Share[bytes]


class TargetForgotten(Struct, frozen=True):
    """The member is not in the target any more."""

    group_id: str
    member_id: str


class TargetEpochReached(Struct, frozen=True):
    """The target is the one for this group epoch."""

    group_id: str
    assignment_epoch: int
    computed_ms: int
    assignor_name: str


class TargetEpochForgotten(Struct, frozen=True):
    """There is no target any more."""

    group_id: str


class AssignmentChanged(Struct, frozen=True):
    """This is what the member holds now."""

    group_id: str
    member_id: str
    assignment: CurrentAssignment


class AssignmentForgotten(Struct, frozen=True):
    """The member holds nothing any more."""

    group_id: str
    member_id: str


class RegexResolved(Struct, frozen=True):
    """A pattern of the group stands for these topics."""

    group_id: str
    regex: str
    resolved: ResolvedRegex


class RegexForgotten(Struct, frozen=True):
    """No member uses the pattern any more."""

    group_id: str
    regex: str


class MetadataChecked(Struct, frozen=True):
    """The hash of the group's epoch was compared with the topics that there are. Memory only: every load checks
    anew."""

    group_id: str
    checked_ms: int | None
    """Wall time; None: look again, the topics changed."""


class RegexesChecked(Struct, frozen=True):
    """All patterns of the group were held against the topics that there are. Memory only, as above."""

    group_id: str
    checked_ms: int | None
    """Wall time; None: again, the topics changed."""


class RebalanceNoted(Struct, frozen=True):
    """A rebalance of the group began, or is over. Memory only: nobody measures one that a restart interrupted."""

    group_id: str
    started_ms: int | None
    """Wall time; None: none is under way."""


class RejoinAwaited(Struct, frozen=True):
    """A classic member was told to join again, or did. Memory only: after a load it is told once more."""

    group_id: str
    member_id: str
    is_awaited: bool
