"""Stored changes of share partitions (storage/v1/share.proto)."""

from __future__ import annotations

from msgspec import Struct

from coordinator_runtime.participants import ShareKey as ShareKey
from group_coordinator.share_partitions.state import SharePartition


class SharePartitionChanged(Struct, frozen=True):
    """Record: the share partition is this one now.

    Every row is complete and replaces the one before it, so there is nothing to merge (spec groups 6.4). The result is
    that of Kafka's merge: in one state epoch, deliveries and states of an offset only grow from row to row."""

    key: ShareKey
    partition: SharePartition
    is_stored: bool
    """False for a change that a restart need not bring back: a member acquired records."""


class SharePartitionForgotten(Struct, frozen=True):
    """Record: the share partition does not exist any more."""

    key: ShareKey


ShareRecord = SharePartitionChanged | SharePartitionForgotten
