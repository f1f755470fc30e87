"""Values of a share group: its members, their assignments and targets. `group_coordinator.members` has its epochs.

Several members may hold one partition, so a member reaches its target in one step, and needs no state of its own.

Source: KIP-932, spec groups 6.1.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from msgspec import Struct, field

from coordinator_protocol.assignors.values import Share
from group_coordinator.members import JOIN_EPOCH

PROTOCOL_TYPE: Final = "share"

NO_SHARE: Final[Share[bytes]] = {}


class ShareGroupState(StrEnum):
    """States of a group, as shown to users and used in their filters. Never stored. A group that is gone is Dead."""

    EMPTY = "Empty"
    STABLE = "Stable"


class ShareMember(Struct, frozen=True, kw_only=True):
    """Metadata of a member, as the member sent it."""

    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    """Names of the topics that it subscribes to, existing or not."""


class ShareAssignment(Struct, frozen=True):
    """Partitions that a member may fetch, and its epoch."""

    member_epoch: int = JOIN_EPOCH
    previous_member_epoch: int = JOIN_EPOCH
    """Epoch before the last one. A member that still sends it has missed one reply."""
    assigned: Share[bytes] = field(default_factory=dict)


NOT_YET: Final = ShareAssignment()
"""Assignment of a member that was never given anything."""


class TopicsLook(Struct, frozen=True):
    """Last comparison of the group with the topics that its members subscribe to."""

    looked_ms: int
    """Wall time of it."""
    valid_ms: int
    """Time after which a heartbeat looks again."""
