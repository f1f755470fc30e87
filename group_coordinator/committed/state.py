"""Offsets: committed ones, visible to all callers, and pending ones, which wait for their transaction.

Also the stored changes of them, each of which is one row (storage/v1/group.proto).
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct

from coordinator_runtime.ports import OutcomeNumber
from group_coordinator.state import OfGroup, PartitionKey


class CommittingProducer(NamedTuple):
    """Producer whose transaction holds an offset.

    The epoch is part of it: Kafka's markers ignore the epoch, and may settle offsets of another transaction (spec
    transactions 11.9).
    """

    producer_id: int
    producer_epoch: int


class Offset(Struct, frozen=True):
    """A position of a group in one partition (spec groups 4.1)."""

    committed_offset: int
    """Offset of the next record to read. Never compared: a group may go back."""
    leader_epoch: int | None
    """Leader epoch of the last record read; None if unknown. Stored and returned, never interpreted."""
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int | None
    """Wall time at which it expires, in place of the server's retention; None for that retention."""
    position: int
    """Rank of the commit among all commits of the shard. The later commit wins, not the later marker."""


class PendingCommit(Struct, frozen=True):
    """Offset that becomes visible when its transaction commits, and is dropped when it aborts."""

    offset: Offset
    transactional_id: str
    after: OutcomeNumber
    """Last outcome of the transactional id when this was written. Only a marker of that coordinator shard with a
    greater csn settles it. A client of version 1 keeps its epoch, so a late copy of an earlier marker looks like the
    one of this transaction."""


class OffsetCommitted(OfGroup, frozen=True):
    """Record: this offset is committed and visible."""

    partition: PartitionKey
    offset: Offset


class OffsetForgotten(OfGroup, frozen=True):
    """Record: the group has no committed offset in the partition any more."""

    partition: PartitionKey


class PendingOffsetHeld(OfGroup, frozen=True):
    """Record: the offset is pending. It becomes visible or is dropped with the producer's transaction."""

    producer: CommittingProducer
    partition: PartitionKey
    pending: PendingCommit


class PendingOffsetForgotten(OfGroup, frozen=True):
    """Record: the offset is no longer pending. It was settled or dropped."""

    producer: CommittingProducer
    partition: PartitionKey


class GroupAdministered(OfGroup, frozen=True):
    """Record that changes nothing: the history shows by it the caller who deleted the group or offsets of it."""
