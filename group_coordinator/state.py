"""Common interface of groups of all kinds, for offsets, listing, deletion and expiry."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

from msgspec import Struct

from coordinator_runtime.decision import Effect
from coordinator_runtime.ports import Committer


class GroupKind(StrEnum):
    """Protocol of the members of a group."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"
    STREAMS = "streams"


class OfGroup(Struct, frozen=True):
    """Base of requests, events and stored values of one group."""

    group_id: str


PartitionKey = tuple[bytes, int]
"""Topic id and partition number: the key of offsets and assignments."""


class Group(Protocol):
    """One group, live state. Methods that check raise Refused and change nothing."""

    @property
    def group_id(self) -> str: ...

    @property
    def kind(self) -> GroupKind: ...

    @property
    def protocol_type(self) -> str:
        """ "consumer" for consumers, "share" and "streams" for groups of these kinds; empty for a group that only has
        offsets."""

    @property
    def state_name(self) -> str:
        """Name of the durable state, as ListGroups shows it: Empty, PreparingRebalance, CompletingRebalance, NotReady,
        Assigning, Reconciling, Stable."""

    @property
    def live_state_name(self) -> str:
        """Name of the live state, without a look at every member."""

    @property
    def is_empty(self) -> bool:
        """True if the group has no members. Ids handed out with MEMBER_ID_REQUIRED do not count."""

    @property
    def outlives_members(self) -> bool:
        """True if the group holds something that only DeleteGroups removes. Such a group, when it is empty, neither
        expires nor changes its kind."""

    def check_commit(self, committer: Committer, partitions: Sequence[PartitionKey], *, is_transactional: bool) -> None:
        """Raise Refused if this committer may not commit these offsets now. Source: spec groups 4.2, 4.4."""

    def check_fetch(self, committer: Committer) -> None:
        """Raise Refused if this committer may not read the offsets. Source: spec groups 4.3."""

    def check_offset_delete(self) -> None:
        """Raise Refused if no offsets of the group may be deleted. Source: spec groups 4.6."""

    def is_subscribed_to(self, topic: str) -> bool:
        """True if the group subscribes to the topic, or if its subscriptions are unknown (spec groups 4.6)."""

    def retention_base_ms(self, topic: str, committed_ms: int) -> int | None:
        """Wall time from which the retention of an offset counts; None if it does not expire now (spec groups 4.7)."""

    def tombstones(self) -> tuple[object, ...]:
        """Values of the records that remove the group, in the order that replay demands. Its offsets are not among
        them. The caller adds the shard and the cause."""

    def removal_effects(self) -> tuple[Effect, ...]:
        """Effects that go with the tombstones: they cancel timers of the group, such as those of handed-out ids that
        never became members (I12)."""
