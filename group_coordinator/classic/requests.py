"""Requests of classic members and their answers: values between the edge and the decisions."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from coordinator_protocol.errors import ErrorCode, Refused
from group_coordinator.classic.state import ClassicProtocol
from group_coordinator.state import OfGroup


class JoinGroup(OfGroup, frozen=True, kw_only=True):
    """Request to become a member, or to take part in the rebalance under way."""

    member_id: str
    """Empty for a new member."""
    new_member_id: str = ""
    """Id for a member that has none yet: `ClassicService` makes it, and it is unique."""
    instance_id: str | None = None
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[ClassicProtocol, ...]
    """The preferred one first; no name twice."""
    is_member_id_required: bool = True
    """True if a new dynamic member first only gets its id and must join again with it (KIP-394)."""
    supports_skip_assignment: bool = True
    reason: str = ""


class JoinedMember(Struct, frozen=True):
    """One member, as reported to the leader."""

    member_id: str
    instance_id: str | None
    metadata: bytes


class Joined(Struct, frozen=True, kw_only=True):
    """Answer to a JoinGroup: the generation that the member belongs to."""

    generation_id: int
    protocol_type: str
    protocol_name: str
    leader: str
    """Empty if the server computes the assignment."""
    member_id: str
    members: tuple[JoinedMember, ...] = ()
    """Only for the leader."""
    skip_assignment: bool = False


class JoinRefused(Refused):
    """Refusal of a JoinGroup that carries another member id than the request: a new one, or none."""

    def __init__(self, code: ErrorCode, message: str, member_id: str = "") -> None:
        super().__init__(code, message)
        self.member_id = member_id

    def __reduce__(self) -> tuple[type[JoinRefused], tuple[ErrorCode, str, str]]:
        return type(self), (self.code, self.message, self.member_id)


class SyncGroup(OfGroup, frozen=True, kw_only=True):
    """Request for the member's part of the assignment. The leader sends the whole assignment with it."""

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
    """Sign of life of a member."""

    generation_id: int
    member_id: str
    instance_id: str | None = None
    max_wait_ms: int = 0
    """Longest time that the answer may wait for news (ms)."""


class Heard(Struct, frozen=True):
    """Accepted heartbeat. It counts even if its answer is a refusal."""

    refusal: Refused | None = None


class LeavingMember(Struct, frozen=True):
    """A member that leaves, named by its id, or by its instance id if the member id is empty."""

    member_id: str
    instance_id: str | None = None
    reason: str = ""


class LeaveGroup(OfGroup, frozen=True):
    """Request to remove members. Each entry is answered on its own."""

    members: tuple[LeavingMember, ...]


class Left(Struct, frozen=True):
    """Result of one entry of a LeaveGroup."""

    leaving: LeavingMember
    refusal: Refused | None = None
