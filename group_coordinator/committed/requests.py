"""What callers ask about offsets, and what they are told, as values."""

from __future__ import annotations

from msgspec import Struct

from coordinator_protocol.errors import CoordinatorError, Refused
from coordinator_runtime.ports import Committer, Membership, NamedOffset, PartitionName, PartitionRef
from group_coordinator.committed.state import CommittingProducer, Offset, PendingCommit
from group_coordinator.state import OfGroup

Placed = PartitionRef | Refused
"""A partition that a request names, or why the caller cannot use it."""

Results = tuple[Refused | None, ...]
"""One per partition asked, in that order; None = done."""


class OffsetCommit(OfGroup, frozen=True):
    """Offsets to be seen at once."""

    committer: Committer
    offsets: tuple[NamedOffset, ...]
    retention_time_ms: int | None = None
    """Time after which the offsets are forgotten, in place of the server's retention."""


class TxnOffsetCommit(OfGroup, frozen=True):
    """Offsets to be seen when a transaction commits."""

    committer: Committer
    offsets: tuple[NamedOffset, ...]
    membership: Membership


class OffsetDelete(OfGroup, frozen=True):
    """Offsets to be forgotten."""

    names: tuple[PartitionName, ...]


class OffsetFetch(OfGroup, frozen=True):
    """Offsets of one group to be read."""

    committer: Committer
    names: tuple[PartitionName, ...] | None
    """None = all that the group has."""


class FetchedOffset(Struct, frozen=True):
    """One answer of a fetch."""

    name: PartitionName
    offset: Offset | None = None
    """None = nothing is committed."""
    refusal: Refused | None = None
    blocking: tuple[tuple[CommittingProducer, PendingCommit], ...] = ()
    """The pending offsets that make it UNSTABLE_OFFSET_COMMIT, each with its producer."""


class FetchedGroup(OfGroup, frozen=True):
    """Offsets of one group, or why there are none."""

    offsets: tuple[FetchedOffset, ...] = ()
    refusal: CoordinatorError | None = None
