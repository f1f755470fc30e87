"""Requests about offsets and their answers, as values."""

from __future__ import annotations

from msgspec import Struct

from coordinator_protocol.errors import CoordinatorError, Refused
from coordinator_runtime.ports import Committer, Membership, NamedOffset, PartitionName, PartitionRef
from group_coordinator.committed.state import CommittingProducer, Offset, PendingCommit
from group_coordinator.state import OfGroup

Placed = PartitionRef | Refused
"""Partition that a request names, or the refusal to use it."""

Results = tuple[Refused | None, ...]
"""Results per partition, in the order of the request; None = done."""


class OffsetCommit(OfGroup, frozen=True):
    """Offsets that are visible at once."""

    committer: Committer
    offsets: tuple[NamedOffset, ...]
    retention_time_ms: int | None = None
    """Time after which the offsets expire, in place of the server's retention; None for the server's."""


class TxnOffsetCommit(OfGroup, frozen=True):
    """Offsets that become visible when a transaction commits."""

    committer: Committer
    offsets: tuple[NamedOffset, ...]
    membership: Membership


class OffsetDelete(OfGroup, frozen=True):
    """Partitions whose offsets are deleted."""

    names: tuple[PartitionName, ...]


class OffsetFetch(OfGroup, frozen=True):
    """Request to read offsets of one group."""

    committer: Committer
    names: tuple[PartitionName, ...] | None
    """None for all offsets of the group."""


class FetchedOffset(Struct, frozen=True):
    """Offset of one partition in the answer of a fetch."""

    name: PartitionName
    offset: Offset | None = None
    """None if nothing is committed."""
    refusal: Refused | None = None
    blocking: tuple[tuple[CommittingProducer, PendingCommit], ...] = ()
    """Pending offsets that make it UNSTABLE_OFFSET_COMMIT, each with its producer."""


class FetchedGroup(OfGroup, frozen=True):
    """Offsets of one group, or the refusal to read them."""

    offsets: tuple[FetchedOffset, ...] = ()
    refusal: CoordinatorError | None = None
