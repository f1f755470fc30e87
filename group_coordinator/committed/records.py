"""Stored changes of offsets. Each is one row (storage/v1/group.proto)."""

from __future__ import annotations

from dataclasses import dataclass

from group_coordinator.committed.state import Offset, PendingOffset, Producer
from group_coordinator.state import PartitionKey


@dataclass(frozen=True, slots=True)
class OffsetCommitted:
    """Everybody sees this offset now."""

    group_id: str
    partition: PartitionKey
    offset: Offset


@dataclass(frozen=True, slots=True)
class OffsetForgotten:
    """The group has no offset in the partition any more."""

    group_id: str
    partition: PartitionKey


@dataclass(frozen=True, slots=True)
class OffsetPended:
    """The offset waits for the transaction of the producer."""

    group_id: str
    producer: Producer
    partition: PartitionKey
    pending: PendingOffset


@dataclass(frozen=True, slots=True)
class PendingForgotten:
    """The offset waits no more: it was settled or dropped."""

    group_id: str
    producer: Producer
    partition: PartitionKey


@dataclass(frozen=True, slots=True)
class GroupAdministered:
    """Somebody deleted the group, or offsets of it. Changes nothing: the history tells by it who did so."""

    group_id: str
