"""Events of share partitions, reported to the metrics and the log once durable. `SharesAvailable` and `LettersDue` are
effects."""

from __future__ import annotations

from msgspec import Struct

from coordinator_protocol.marker import Outcome
from group_coordinator.share_partitions.draft import ArchiveReason, LetterEnd
from group_coordinator.state import OfGroup


class RecordsAcquired(OfGroup, frozen=True):
    """A member acquired records."""

    member_id: str
    record_count: int
    redelivered_count: int
    """Number of those that were delivered before."""


class RecordsAcknowledged(OfGroup, frozen=True):
    """A member gave records their outcome."""

    member_id: str
    record_count: int


class RecordsPending(OfGroup, frozen=True):
    """A member acknowledged records in a transaction, whose end gives them their outcome."""

    member_id: str
    record_count: int


class RecordsSettled(OfGroup, frozen=True):
    """A transaction ended, and gave the records that it had acknowledged their outcome."""

    ordinal: int
    record_count: int
    outcome: Outcome


class LockExpired(OfGroup, frozen=True):
    """The time of an acquisition was over, and its records were released."""

    ordinal: int
    member_id: str
    record_count: int


class RecordsArchived(OfGroup, frozen=True):
    """Records that the group is not handed out again, or never was."""

    ordinal: int
    first_offset: int
    end_offset: int
    """The offset after the last one."""
    reason: ArchiveReason
    deliveries: int
    """Deliveries of each."""
    letter: LetterEnd = LetterEnd.NONE

    @property
    def record_count(self) -> int:
        """Number of offsets."""
        return self.end_offset - self.first_offset


class LettersDelayed(OfGroup, frozen=True):
    """Letters could not be written, and will be tried again."""

    ordinal: int
    topic: str
    """The dead-letter topic of the group."""
    letter_count: int
    why: str


class LettersDropped(OfGroup, frozen=True):
    """Letters that will not be written, because the share partition was deleted or began anew."""

    ordinal: int
    letter_count: int


class LettersDue(Struct, frozen=True):
    """Effect: letters of a share partition are to be written."""

    group_id: str
    ordinal: int


class SharesAvailable(Struct, frozen=True):
    """Effect: records of a share partition may be acquired that could not be before, or it is gone. So fetches that
    wait look again."""

    group_id: str
    ordinal: int
