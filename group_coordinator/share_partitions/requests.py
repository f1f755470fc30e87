"""Commands about the records of a share partition, and their answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from msgspec import Struct

from coordinator_protocol.batch import ENCODINGS_OF_OLD_READERS, BatchHeader, Encoding
from coordinator_protocol.errors import CoordinatorError
from coordinator_protocol.wire import Buffer
from coordinator_runtime.ports import Committer, Membership, PartitionName
from group_coordinator.share_partitions.acquiring import AcquiredRange, LogPosition, Read, Terms
from group_coordinator.share_partitions.rules import AckBatch
from group_coordinator.share_partitions.state import AcknowledgingTransaction
from group_coordinator.state import OfGroup

AckBatches = tuple[AckBatch, ...]


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
    waits_for_disk: bool = False
    """True if a crash could take back more than the hold: the reply rests on a change that is not on disk."""


class Acknowledge(Struct, frozen=True):
    """Give records of one partition the outcomes that a member sends, all of them or none."""

    member_id: str
    batches: tuple[AckBatch, ...]
    terms: Terms
    """For the acquisition that a renewal begins."""
    allows_renewal: bool = False
    """True if the group allows `AckType.RENEW`."""


class TxnAcknowledge(Struct, frozen=True):
    """Let records of one partition wait for the end of a transaction, all of them or none."""

    member_id: str
    batches: tuple[AckBatch, ...]
    transaction: AcknowledgingTransaction


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
    pending_count: int
    """Number of records that open transactions have acknowledged."""
    letters_due: int
    """Number of records whose letters are to be written."""


class PartitionAcks:
    """A partition as a member names it, with the acknowledgements of its records.

    A request may name thousands of partitions. So a front gives a function that converts the acknowledgements, if there
    are any, which is called when their turn comes."""

    __slots__ = ("_batches", "name")

    def __init__(self, name: PartitionName, batches: AckBatches | Callable[[], AckBatches] = ()) -> None:
        self.name = name
        self._batches = batches

    @property
    def has_batches(self) -> bool:
        """True if there are acknowledgements."""
        return bool(self._batches)

    @property
    def batches(self) -> AckBatches:
        """The acknowledgements."""
        if not isinstance(self._batches, tuple):
            self._batches = self._batches()
        return self._batches


class TxnShareAcknowledge(OfGroup, frozen=True):
    """Request of a member to acknowledge records in a transaction, all of them or none."""

    committer: Committer
    """The member and its epoch."""
    membership: Membership
    partitions: tuple[PartitionAcks, ...]


class ShareFetch(Struct, frozen=True, kw_only=True):
    """One ShareFetch (spec groups 6.2)."""

    group_id: str
    member_id: str
    session_epoch: int
    partitions: tuple[PartitionAcks, ...] = ()
    """Partitions that join the session, or whose records are acknowledged."""
    forgotten: tuple[PartitionName, ...] = ()
    """Partitions that leave the session."""
    wait_ms_max: int = 0
    bytes_min: int = 1
    bytes_max: int = 1 << 20
    records_max: int = 500
    is_strict: bool = False
    """True if no more than `records_max` may be acquired, even if a batch is taken apart."""
    accepted_encodings: frozenset[Encoding] = ENCODINGS_OF_OLD_READERS
    ends_with_connection: bool = False
    """True if a session that begins now ends with the connection of this call."""


class ShareFetchResult(Struct, frozen=True):
    """Result for one partition."""

    name: PartitionName
    error: CoordinatorError | None = None
    acknowledge_error: CoordinatorError | None = None
    ranges: tuple[AcquiredRange, ...] = ()
    batches: tuple[tuple[BatchHeader, Buffer], ...] = ()
    """Headers and stored forms of the batches with acquired records."""
    leader_epoch: int = 0


class ShareFetchReply(Struct, frozen=True):
    """Answer to a ShareFetch."""

    lock_duration_ms: int
    results: tuple[ShareFetchResult, ...]


class ShareAcknowledge(Struct, frozen=True):
    """One ShareAcknowledge."""

    group_id: str
    member_id: str
    session_epoch: int
    partitions: tuple[PartitionAcks, ...]


class AcknowledgeResult(NamedTuple):
    """Result of the acknowledgements in one partition."""

    name: PartitionName
    error: CoordinatorError | None


class ShareAcknowledgeReply(Struct, frozen=True):
    """Answer to a ShareAcknowledge."""

    lock_duration_ms: int
    results: tuple[AcknowledgeResult, ...]
