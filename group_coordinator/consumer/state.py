"""Values of a consumer group: its members, what each holds, what each is meant to hold, and three kinds of epochs.

The *group epoch* grows when what an assignment rests on changes. The *assignment epoch* is the group epoch that the
current target was computed for. A *member epoch* is the assignment epoch that the member has reached.

    STABLE      holds what its epoch wants            UNREVOKED   must give something up, and has not said that it did
    UNRELEASED  waits for what others still hold      UNKNOWN     stored by a newer program, which knows what it means

Source: KIP-848, spec groups 3.1 and 3.6.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum, StrEnum
from typing import Final

from msgspec import Struct, field

from coordinator_protocol.assignors.values import Share
from group_coordinator.classic.state import ClassicProtocol

JOIN_EPOCH: Final = 0
"""Member epoch of who joins, or joins again."""
LEAVE_EPOCH: Final = -1
AWAY_EPOCH: Final = -2
"""A static member is away for a moment and keeps its partitions until its session ends."""

Held = Mapping[bytes, Mapping[int, int]]
"""Partitions by topic id, each with the epoch in which the member was given it. A topic without any is left out. Nobody
changes a Held after it was made."""

Owned = Mapping[bytes, frozenset[int]]
"""Partitions by topic id, as a client says that it owns them."""

NONE_OF_TOPIC: Final[Mapping[int, int]] = {}
NO_SHARE: Final[Share[bytes]] = {}


class GroupState(StrEnum):
    """States of a group, as users see and filter by them. Never stored: they follow from the members (spec groups
    3.1)."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    """There is no target for the group epoch yet."""
    RECONCILING = "Reconciling"
    """Somebody does not hold what the target gives it."""
    STABLE = "Stable"


class MemberState(IntEnum):
    """Where a member stands on its way to its target. The numbers are stored."""

    STABLE = 0
    UNREVOKED = 1
    UNRELEASED = 2
    UNKNOWN = 127
    """Any other number that is stored. The member must give up all it has and join again, as Kafka demands; what it
    holds is nobody else's until it did, or is gone."""

    @classmethod
    def _missing_(cls, value: object) -> MemberState:
        return cls.UNKNOWN


class MemberSubscription(Struct, frozen=True):
    """Which topics a member wants: those named, and those whose names match."""

    names: frozenset[str] = frozenset()
    regex: str | None = None


NO_SUBSCRIPTION: Final = MemberSubscription()


class ClassicMetadata(Struct, frozen=True):
    """What a member said who speaks the classic protocol in a consumer group."""

    session_timeout_ms: int
    protocols: tuple[ClassicProtocol, ...]
    """The preferred one first; the metadata of each is an embedded subscription."""


class ConsumerMember(Struct, frozen=True, kw_only=True):
    """What a member says of itself."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    """How long it may take to give up what it must."""
    subscription: MemberSubscription = NO_SUBSCRIPTION
    server_assignor: str | None = None
    classic: ClassicMetadata | None = None
    """None: it speaks the consumer protocol."""


class CurrentAssignment(Struct, frozen=True):
    """What a member holds, and how far it is."""

    member_epoch: int = JOIN_EPOCH
    previous_member_epoch: int = JOIN_EPOCH
    """The epoch before the last change of anything here: who still names it has missed one reply."""
    state: MemberState = MemberState.STABLE
    assigned: Held = field(default_factory=dict)
    pending_revocation: Held = field(default_factory=dict)
    """What it was told to give up; nobody else gets it until the member says that it did."""

    def assignment_epoch(self, topic_id: bytes, partition: int) -> int | None:
        """The epoch in which the member was given a partition that it holds; None for one it does not hold."""
        for held in (self.assigned, self.pending_revocation):
            epoch = held.get(topic_id, {}).get(partition)
            if epoch is not None:
                return epoch
        return None


NOT_YET: Final = CurrentAssignment()
"""The assignment of a member that was never given anything."""


class Epochs(Struct, frozen=True):
    """Where a group stands."""

    group_epoch: int = 0
    metadata_hash: int = 0
    """Hash of the subscribed topics, as they were when the group epoch was set."""
    assignment_epoch: int = 0
    computed_ms: int | None = None
    """When the target was computed, wall time; None: never."""
    assignor_name: str = ""


class ResolvedRegex(Struct, frozen=True):
    """Which topics a pattern stands for."""

    topics: frozenset[str]
    catalog_hash: int
    """Hash of the names of all topics when it was resolved: the same hash, the same result."""
    resolved_ms: int
