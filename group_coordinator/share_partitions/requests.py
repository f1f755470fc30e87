"""Commands about the records of a share partition, and their answers."""

from __future__ import annotations

from msgspec import Struct

from group_coordinator.share_partitions.rules import AckBatch, AcquiredRange, LogPosition, Read, Terms


class Acquire(Struct, frozen=True):
    """Hand records that were read from the log to a member."""

    member_id: str
    state_epoch: int
    """State epoch of the share partition for which the log was read."""
    read: Read
    log: LogPosition
    terms: Terms
    max_records: int
    """Number of records from which on no further batch is begun."""


class AcquireReply(Struct, frozen=True):
    """Reply to `Acquire`."""

    ranges: tuple[AcquiredRange, ...]
    """The records that the member holds now; none if others were faster, or nothing of the read may be acquired."""
    lock_duration_ms: int


class Acknowledge(Struct, frozen=True):
    """Give records of one partition the outcomes that a member sends, all of them or none."""

    member_id: str
    batches: tuple[AckBatch, ...]
    terms: Terms
    """For the acquisition that a renewal begins."""
    allows_renewal: bool = False
    """True if the group allows `AckType.RENEW`."""


class DescribedShare(Struct, frozen=True):
    """A share partition as it is on disk."""

    start_offset: int
    """The first offset that is not done; `state.UNRESOLVED` before the first fetch."""
    state_epoch: int
    leader_epoch: int
    delivery_complete_count: int
    """Number of records from the start offset on that are done."""
    held_count: int
    """Number of records that members hold."""
