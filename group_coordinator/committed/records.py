"""Stored changes of offsets. Each is one row (storage/v1/group.proto)."""

from __future__ import annotations

from msgspec import Struct

from group_coordinator.committed.state import Offset, PendingOffset, Producer
from group_coordinator.state import PartitionKey


class OffsetCommitted(Struct, frozen=True):
    """Everybody sees this offset now."""

    group_id: str
    partition: PartitionKey
    offset: Offset


class OffsetForgotten(Struct, frozen=True):
    """The group has no offset in the partition any more."""

    group_id: str
    partition: PartitionKey


class PendingOffsetHeld(Struct, frozen=True):
    """The offset is pending: it becomes visible or vanishes with the transaction of the producer."""

    group_id: str
    producer: Producer
    partition: PartitionKey
    pending: PendingOffset


class PendingOffsetForgotten(Struct, frozen=True):
    """The offset is pending no more: it was settled or dropped."""

    group_id: str
    producer: Producer
    partition: PartitionKey


class GroupAdministered(Struct, frozen=True):
    """Somebody deleted the group, or offsets of it. Changes nothing: the history tells by it who did so."""

    group_id: str
