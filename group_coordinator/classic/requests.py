"""What members of classic groups ask, and what they are answered: values between the edge and the decisions."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from coordinator_protocol.errors import ErrorCode, Refused
from group_coordinator.classic.state import ClassicProtocol
from group_coordinator.state import OfGroup


class JoinGroup(OfGroup, frozen=True, kw_only=True):
    """Become a member, or take part in the rebalance under way."""

    member_id: str
    """Empty for somebody new."""
    new_member_id: str = ""
    """What a member that has none is called from now on: `ClassicService` makes it, and nobody had it before."""
    instance_id: str | None = None
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[ClassicProtocol, ...]
    """The preferred one first; no name twice."""
    is_member_id_required: bool = True
    """A new dynamic member is first only told its id, and comes again (KIP-394)."""
    supports_skip_assignment: bool = True
    reason: str = ""


class JoinedMember(Struct, frozen=True):
    """One member, as its leader must know it."""

    member_id: str
    instance_id: str | None
    metadata: bytes


class Joined(Struct, frozen=True, kw_only=True):
    """The member belongs to this generation."""

    generation_id: int
    protocol_type: str
    protocol_name: str
    leader: str
    """Empty where the server computes the assignment."""
    member_id: str
    members: tuple[JoinedMember, ...] = ()
    """Only for the leader."""
    skip_assignment: bool = False


class JoinRefused(Refused):
    """A JoinGroup that is answered with another member id than it asked with: a new one, or none."""

    def __init__(self, code: ErrorCode, message: str, member_id: str = "") -> None:
        super().__init__(code, message)
        self.member_id = member_id

    def __reduce__(self) -> tuple[type[JoinRefused], tuple[ErrorCode, str, str]]:
        return type(self), (self.code, self.message, self.member_id)


class SyncGroup(OfGroup, frozen=True, kw_only=True):
    """Bring the assignment, if the member leads; get one's own part of it."""

    generation_id: int
    member_id: str
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: Mapping[str, bytes]
    """Parts of the assignment by member id; only those that the leader sends count."""


class Synced(Struct, frozen=True):
    """The member's part of the assignment."""

    protocol_type: str
    protocol_name: str
    assignment: bytes


class Heartbeat(OfGroup, frozen=True):
    """The member lives."""

    generation_id: int
    member_id: str
    instance_id: str | None = None
    max_wait_ms: int = 0
    """How long the answer may wait for news."""


class Heard(Struct, frozen=True):
    """The heartbeat counted, even where the member must be told something."""

    refusal: Refused | None = None


class LeavingMember(Struct, frozen=True):
    """A member that leaves, named by its id, or by its instance id if the member id is empty."""

    member_id: str
    instance_id: str | None = None
    reason: str = ""


class LeaveGroup(OfGroup, frozen=True):
    """Members leave, each for itself."""

    members: tuple[LeavingMember, ...]


class Left(Struct, frozen=True):
    """What became of one who leaves."""

    leaving: LeavingMember
    refusal: Refused | None = None
