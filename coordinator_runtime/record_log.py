"""Port of share groups to the log: reads of records, and news of their growth. The partition log implements it.

Share groups know which offsets they may hand out; the log knows what is there. They meet in values only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from msgspec import Struct

from coordinator_protocol.batch import BatchHeader, Encoding
from coordinator_protocol.errors import CoordinatorError, Refused
from coordinator_protocol.wire import Buffer
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import AnswerLimit, CallContext, Connection, PartitionName, PartitionRef, Permission


class LogView(NamedTuple):
    """Durable positions of a log, for readers of one isolation level."""

    log_start_offset: int
    bound_offset: int
    """The offset that a read may not reach: the last stable offset for committed reads, else the log end."""
    log_end_offset: int
    leader_epoch: int


class LogSpan(NamedTuple):
    """Part of a log to be read."""

    ref: PartitionRef
    first_offset: int
    """Not before the log start."""
    end_offset: int


class AbortedRange(NamedTuple):
    """Records of an aborted transaction: those of the producer, from the first offset to the marker."""

    producer_id: int
    first_offset: int
    marker_offset: int


class LogBatches(Struct, frozen=True):
    """Part of a log that was read: every batch, also those that are no records to a reader."""

    next_offset: int
    """Offset at which the read ended."""
    batches: tuple[tuple[BatchHeader, Buffer], ...] = ()
    """Headers and stored forms."""
    aborted: tuple[AbortedRange, ...] = ()
    """Aborted transactions among them, for committed reads."""
    log_start_offset: int = 0
    leader_epoch: int = 0
    error: CoordinatorError | None = None


class LogReadLimits(Struct, frozen=True):
    """Terms of a read of several partitions."""

    is_committed: bool
    bytes_max: int
    accepted_encodings: frozenset[Encoding]
    connection: Connection = ""


class RecordLog(Protocol):
    """Port of share groups to the log. The partition log implements it."""

    def find(
        self, name: PartitionName, context: CallContext, permission: Permission = Permission.READ
    ) -> PartitionRef | Refused:
        """Return a partition for which the caller has the permission, live; or the refusal, which may rest on the live
        catalog.

        Raises Refused INVALID_REQUEST for an invalid partition name."""

    def view(self, ref: PartitionRef, *, is_committed: bool) -> LogView:
        """Return the durable positions of a partition. Raises Refused if there is none, or it is not served."""

    def read(self, spans: Sequence[LogSpan], limits: LogReadLimits) -> Pending[list[LogBatches]]:
        """Read parts of logs, in this order, and return one result for each. Batches are whole.

        The Pending may be refused with THROTTLING_QUOTA_EXCEEDED."""

    def offset_since(
        self, ref: PartitionRef, timestamp_ms: int, context: CallContext, *, is_committed: bool
    ) -> Pending[int]:
        """Return the offset of the first record with at least this timestamp; the bound of readers if there is none."""

    def listen(self, ref: PartitionRef, look_again: Callable[[], None]) -> None:
        """Call the listener when the durable positions of the partition have changed, until it stops listening."""

    def stop_listening(self, ref: PartitionRef, look_again: Callable[[], None]) -> None:
        """Call the listener no more. Safe while it runs."""

    @property
    def answer_limit(self) -> AnswerLimit:
        """The limit of the bytes of answers."""
