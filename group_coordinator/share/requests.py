"""Requests of members of share groups and their answers, as frozen values."""

from __future__ import annotations

from msgspec import Struct

from coordinator_protocol.errors import Refused
from group_coordinator.members import Beat
from group_coordinator.share.state import ShareMember
from group_coordinator.state import OfGroup
from group_coordinator.topics import TopicShare


class ShareHeartbeat(Beat, frozen=True, kw_only=True):
    """One ShareGroupHeartbeat. None means unchanged, or none in a join (spec groups 6.1)."""

    keeps_session: bool = False
    """True if a member that leaves may acknowledge after that, in its share session (`places.DEPARTURE_MS`)."""


class ShareMemberDescription(Struct, frozen=True):
    """One member of a share group, as it is on disk."""

    member: ShareMember
    member_epoch: int
    assigned: tuple[TopicShare, ...]


class ShareGroupDescription(OfGroup, frozen=True):
    """One share group as it is on disk, or the refusal to show it."""

    refusal: Refused | None = None
    state_name: str = ""
    group_epoch: int = 0
    assignment_epoch: int = 0
    assignor_name: str = ""
    members: tuple[ShareMemberDescription, ...] = ()
    """Sorted by member id."""
