"""Values of a consumer group: its members, their assignments and targets. `group_coordinator.members` has its epochs.

    STABLE      holds its part of its epoch's target  UNREVOKED   must give partitions up, and has not confirmed it
    UNRELEASED  waits for partitions of other members UNKNOWN     stored by a newer program, with a meaning of its own

Source: KIP-848, spec groups 3.1 and 3.6.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from msgspec import Struct, field

from coordinator_protocol.assignors.values import Share
from group_coordinator.classic.state import ClassicProtocol
from group_coordinator.members import JOIN_EPOCH, MemberState

AWAY_EPOCH: Final = -2
"""Member epoch of a static member that is away for a moment. It keeps its partitions until its session ends."""

Held = Mapping[bytes, Mapping[int, int]]
"""Partitions by topic id, each with the epoch in which the member was given it. Topics without partitions are left out.
Never changed once made."""

Owned = Mapping[bytes, frozenset[int]]
"""Partitions by topic id, as a client claims to own them."""

NONE_OF_TOPIC: Final[Mapping[int, int]] = {}
NO_SHARE: Final[Share[bytes]] = {}


class GroupState(StrEnum):
    """States of a group, as shown to users and used in their filters. Never stored: they are derived from the members
    (spec groups 3.1)."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    """The group epoch has no target yet."""
    RECONCILING = "Reconciling"
    """A member does not hold its part of the target yet."""
    STABLE = "Stable"


class MemberSubscription(Struct, frozen=True):
    """Topics that a member subscribes to: named topics, and topics whose names match its pattern."""

    names: frozenset[str] = frozenset()
    regex: str | None = None


NO_SUBSCRIPTION: Final = MemberSubscription()


class ClassicMetadata(Struct, frozen=True):
    """Metadata of a member that speaks the classic protocol in a consumer group."""

    session_timeout_ms: int
    protocols: tuple[ClassicProtocol, ...]
    """Protocols, the preferred one first; the metadata of each is an embedded subscription."""


class ConsumerMember(Struct, frozen=True, kw_only=True):
    """Metadata of a member, as the member sent it."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    """Time that the member has to revoke partitions."""
    subscription: MemberSubscription = NO_SUBSCRIPTION
    server_assignor: str | None = None
    classic: ClassicMetadata | None = None
    """None if it speaks the consumer protocol."""


class CurrentAssignment(Struct, frozen=True):
    """Partitions that a member holds, and its progress."""

    member_epoch: int = JOIN_EPOCH
    previous_member_epoch: int = JOIN_EPOCH
    """Epoch before the last change of any field here. A member that still sends it has missed one reply."""
    state: MemberState = MemberState.STABLE
    assigned: Held = field(default_factory=dict)
    pending_revocation: Held = field(default_factory=dict)
    """Partitions that it must revoke. No other member gets them until it confirms that."""

    def held(self) -> Held:
        """Return all partitions of the member, those that it must revoke included."""
        topics = {**self.assigned, **self.pending_revocation}
        return {each: {**self.assigned.get(each, {}), **self.pending_revocation.get(each, {})} for each in topics}

    def assignment_epoch(self, topic_id: bytes, partition: int) -> int | None:
        """Return the epoch in which the member was given a partition that it holds; None if it does not hold it."""
        for held in (self.assigned, self.pending_revocation):
            epoch = held.get(topic_id, {}).get(partition)
            if epoch is not None:
                return epoch
        return None


NOT_YET: Final = CurrentAssignment()
"""Assignment of a member that was never given anything."""


class ResolvedRegex(Struct, frozen=True):
    """Topics that a pattern matches."""

    topics: frozenset[str]
    catalog_hash: int
    """Hash of the names of all topics at the time of the resolution. The same hash gives the same result."""
    resolved_ms: int
