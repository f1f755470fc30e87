"""Offsets: committed ones, which everybody sees, and pending ones, which wait for their transaction; and the stored
changes of them, each of which is one row (storage/v1/group.proto)."""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct

from coordinator_runtime.ports import OutcomeNumber
from group_coordinator.state import OfGroup, PartitionKey


class CommittingProducer(NamedTuple):
    """The producer whose transaction holds an offset. With the epoch, because Kafka's markers forget it and settle what
    is not theirs (spec transactions 11.9)."""

    producer_id: int
    producer_epoch: int


class Offset(Struct, frozen=True):
    """A position of a group in one partition (spec groups 4.1)."""

    committed_offset: int
    """Offset of the next record to read. Never compared: a group may go back."""
    leader_epoch: int | None
    """Leader epoch of the last record read. Stored and returned, never interpreted; None = not known."""
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int | None
    """Wall time at which it is forgotten instead of after the server's retention; None = after that."""
    position: int
    """Place of the commit in the order of all commits of the shard. The later commit wins, not the later marker."""


class PendingCommit(Struct, frozen=True):
    """An offset that becomes visible when its transaction commits, and vanishes when it aborts."""

    offset: Offset
    transactional_id: str
    after: OutcomeNumber
    """The last outcome of the transactional id when this was written. Only a marker of that coordinator shard with a
    greater csn settles it: a client of version 1 keeps its epoch, so the late copy of an earlier marker looks like
    that of this transaction."""


class OffsetCommitted(OfGroup, frozen=True):
    """Everybody sees this offset now."""

    partition: PartitionKey
    offset: Offset


class OffsetForgotten(OfGroup, frozen=True):
    """The group has no offset in the partition any more."""

    partition: PartitionKey


class PendingOffsetHeld(OfGroup, frozen=True):
    """The offset is pending: it becomes visible or vanishes with the transaction of the producer."""

    producer: CommittingProducer
    partition: PartitionKey
    pending: PendingCommit


class PendingOffsetForgotten(OfGroup, frozen=True):
    """The offset is pending no more: it was settled or dropped."""

    producer: CommittingProducer
    partition: PartitionKey


class GroupAdministered(OfGroup, frozen=True):
    """Somebody deleted the group, or offsets of it. Changes nothing: the history tells by it who did so."""
