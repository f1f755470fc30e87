"""Ports of share partitions: their places, their states, and the end of their topics and members.

The catalog knows the places. Share groups decide which states exist, and the shards of share partitions keep them
(`group_coordinator.share_partitions`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from msgspec import Struct

from coordinator_runtime.decision import Operation


class PartitionHome(NamedTuple):
    """Place of a partition in stored keys."""

    ordinal: int
    shard_number: int
    """Number of the log shard that holds it."""


class PartitionHomes(Protocol):
    """Places of partitions, from the live state. What lies beside a partition is found by it."""

    def home(self, topic_id: bytes, partition: int) -> PartitionHome | None:
        """Return the place of a partition; None if there is none."""

    def shard_number(self, ordinal: int) -> int | None:
        """Return the number of the log shard that holds a partition; None once its topic was deleted."""


class TopicShares(Protocol):
    """Port of the log to share partitions, for deleted topics."""

    def forget_partitions(self, ordinals: Sequence[int]) -> Sequence[Operation]:
        """Return operations that drop what share groups know of these partitions, which still exist.

        They cover the shards that hold the partitions, so a topic cannot be deleted while one of them is not served."""


class ShareStates(Protocol):
    """Port of share groups to the states of their share partitions.

    Its state lives in a shard of its own kind, and is changed within the decision of the group that needs it."""

    def initialize(self, group_id: str, topic_id: bytes, partition: int, state_epoch: int) -> Operation:
        """Return an operation that makes the state of a share partition. Idempotent by state epoch. Its shard must be
        served (`is_served`)."""

    def alter_start(self, group_id: str, topic_id: bytes, partition: int, state_epoch: int, offset: int) -> Operation:
        """Return an operation that lets a share partition, new or not, begin at an offset, in a new state epoch."""

    def delete(self, group_id: str, topic_id: bytes, partition: int) -> Operation:
        """Return an operation that drops the state of a share partition. Success if there is none."""

    def is_served(self, topic_id: bytes, partition: int) -> bool:
        """Return True if the topic exists, and the shard of its states is served here."""


class NoShareStates:
    """Share states of a server without their shards."""

    def initialize(self, group_id: str, topic_id: bytes, partition: int, state_epoch: int) -> Operation:
        raise AssertionError("a partition that is not served is not initialised")

    def alter_start(self, group_id: str, topic_id: bytes, partition: int, state_epoch: int, offset: int) -> Operation:
        raise AssertionError("a partition that is not served has no state to alter")

    def delete(self, group_id: str, topic_id: bytes, partition: int) -> Operation:
        raise AssertionError("what was never initialised is not deleted")

    def is_served(self, topic_id: bytes, partition: int) -> bool:
        return False


NO_SHARE_STATES: Final = NoShareStates()


class ReleaseShares(Struct, frozen=True):
    """Effect: end the share session of a member of a share group, and release all its records, because its membership
    ended."""

    group_id: str
    member_id: str
    keeps_session: bool = False
    """True if an open session goes on for a while, so that the member may still acknowledge."""
