"""What groups of all kinds have in common: all that offsets, listing, deletion and expiry know of them."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

from msgspec import Struct

from coordinator_runtime.decision import Effect
from coordinator_runtime.ports import Committer


class GroupKind(StrEnum):
    """Which protocol the members of a group speak. Share and streams groups will be two more."""

    CLASSIC = "classic"
    CONSUMER = "consumer"


class OfGroup(Struct, frozen=True):
    """What is asked of one group, told of it, or stored of it."""

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
        """ "consumer" for consumers; empty for a group that only has offsets."""

    @property
    def state_name(self) -> str:
        """Name of the durable state, as ListGroups shows it: Empty, PreparingRebalance, CompletingRebalance, Assigning,
        Reconciling, Stable."""

    @property
    def live_state_name(self) -> str:
        """Name of the live state, without a look at every member."""

    @property
    def is_empty(self) -> bool:
        """True without members; members that were only given an id do not count."""

    def check_commit(self, committer: Committer, partitions: Sequence[PartitionKey], *, is_transactional: bool) -> None:
        """May this member commit these offsets now? Source: spec groups 4.2, 4.4."""

    def check_fetch(self, committer: Committer) -> None:
        """May this member read the offsets? Source: spec groups 4.3."""

    def check_offset_delete(self) -> None:
        """May offsets of the group be deleted at all? Source: spec groups 4.6."""

    def is_subscribed_to(self, topic: str) -> bool:
        """True also where nobody can tell (spec groups 4.6)."""

    def retention_base_ms(self, topic: str, committed_ms: int) -> int | None:
        """Wall time from which the retention of an offset counts; None = it does not expire now (spec groups 4.7)."""

    def tombstones(self) -> tuple[object, ...]:
        """The values of the records that remove the group, in the order that replay demands; its offsets are not among
        them. The caller adds the shard and the cause."""

    def removal_effects(self) -> tuple[Effect, ...]:
        """What goes with them: timers of ids that were given away and did not become members (I12)."""
