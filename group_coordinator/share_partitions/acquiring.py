"""The rule of an acquisition: the records of a read that a member gets. `rules` has what happens to them then.

Source: spec groups 6.3; KIP-932.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

from msgspec import Struct

from coordinator_protocol.errors import ErrorCode, Refused
from group_coordinator.share_partitions.draft import ArchiveReason, Draft, Run, ShareChange
from group_coordinator.share_partitions.state import NUMBER_MAX, RecordState, SharePartition
from group_coordinator.share_partitions.throttling import BatchOffsets, is_throttled, records_at_once


class Content(Enum):
    """Content of some offsets, as readers of the group see it."""

    RECORDS = ArchiveReason.DELIVERY_LIMIT
    """Records. Their value is the reason for which one of them may not be handed out."""
    NOTHING = ArchiveReason.GAP
    """No record: a marker, or a hole."""
    ABORTED = ArchiveReason.ABORTED
    """Records of an aborted transaction, for a group that reads committed records."""


class Span(NamedTuple):
    """Consecutive offsets with the same content."""

    first_offset: int
    last_offset: int
    content: Content = Content.RECORDS
    ends_batch: bool = True
    """False if the next span belongs to the same batch. Batches are acquired whole."""


class Read(Struct, frozen=True):
    """Part of the log that was read, in order. Offsets between two spans, and before the first, have no record."""

    first_offset: int
    """The offset from which the log was read."""
    spans: tuple[Span, ...]
    """The first and the last batch may be longer than the part that was wanted."""
    end_offset: int | None = None
    """No record from here on may be acquired."""

    @property
    def batches(self) -> list[BatchOffsets]:
        """The batches of the spans, in order."""
        found: list[BatchOffsets] = []
        first_offset: int | None = None
        for span in self.spans:
            first_offset = span.first_offset if first_offset is None else first_offset
            if span.ends_batch:
                found.append(BatchOffsets(first_offset, span.last_offset))
                first_offset = None
        return found


class LogPosition(NamedTuple):
    """The durable position of the log that was read."""

    log_start_offset: int
    leader_epoch: int = 0


class Terms(Struct, frozen=True):
    """Settings of the group that hold for an acquisition (spec groups 8.2)."""

    lock_duration_ms: int = 30_000
    """Time after which records that were not acknowledged are released."""
    delivery_count_limit: int = 5
    """Number of deliveries after which a released record is archived."""
    in_flight_max: int = 2_000
    """Number of offsets in flight from which on no new record is acquired."""
    has_letters: bool = False
    """True if the group has a dead-letter topic."""


class AcquiredRange(NamedTuple):
    """Consecutive records that were acquired."""

    first_offset: int
    last_offset: int
    delivery_count: int
    """Number of their deliveries, with this one."""


class Acquired(NamedTuple):
    """The outcome of `acquire`."""

    change: ShareChange
    ranges: tuple[AcquiredRange, ...]


def acquire(
    before: SharePartition, member_id: str, read: Read, terms: Terms, *, max_records: int, log: LogPosition
) -> Acquired:
    """Hand records to a member: those of `read` that are available or were never in flight.

    A batch is acquired whole. None is begun once `max_records` are acquired, and no new one once `in_flight_max`
    offsets are in flight. Records near the delivery limit are taken out of their batches (`throttling`), and nothing is
    acquired with them. Offsets without a record to hand out are archived on the way. Nothing is
    acquired before the log start, nor after a part of the log that was not read.

    Raises Refused FENCED_LEADER_EPOCH if the log is in an older leader epoch than it was for an earlier acquisition
    (spec groups 6.4)."""
    if log.leader_epoch < before.leader_epoch:
        raise Refused(
            ErrorCode.FENCED_LEADER_EPOCH,
            f"the log is in leader epoch {log.leader_epoch}, and the group has read records of {before.leader_epoch}; "
            "find the leader of the partition again",
        )
    draft = Draft(before)
    draft.leader_epoch = log.leader_epoch
    draft.move_log_start(log.log_start_offset)
    if len(draft.acquisitions) + len(draft.pending) >= NUMBER_MAX - 1:
        return Acquired(draft.change(), ())
    number = draft.begin(member_id, terms.delivery_count_limit, has_letters=terms.has_letters)
    taking = _Taking(draft, number, terms, read)
    for span in _covered(read):
        if not taking.take(span) or (span.ends_batch and taking.count >= max_records):
            break
    taking.hold_new()
    return Acquired(draft.change(), tuple(taking.ranges))


class _Throttled(NamedTuple):
    """Records near the delivery limit that may be taken together."""

    deliveries: int
    """Number of deliveries of each."""
    left: int
    """Number of records that may be taken yet."""


class _Taking:
    """The progress of one `acquire`. New records are held together, since a read may have hundreds of small batches."""

    def __init__(self, draft: Draft, number: int, terms: Terms, read: Read) -> None:
        self._draft = draft
        self._number = number
        self._terms = terms
        self._read = read
        self._throttled: _Throttled | None = None
        """Records that may be taken yet, once one near the delivery limit was."""
        self._is_inside_batch = False
        """True after a span that does not end its batch."""
        self._has_begun_batch = False
        """True if new offsets of that batch were taken."""
        self._end_offset = draft.main.end_offset
        """The offset after the new records taken so far, which are not held yet."""
        self.count = 0
        self.ranges: list[AcquiredRange] = []

    def take(self, span: Span) -> bool:
        """Take what may be taken of a span. Return False if nothing after it may be taken."""
        main = self._draft.main
        if span.first_offset < main.end_offset:
            for run in main.runs(span.first_offset, span.last_offset + 1):
                if run.state is RecordState.AVAILABLE and not self._take_again(run, span.content):
                    return False
        is_new = span.last_offset >= self._end_offset
        goes_on = not is_new or (self._throttled is None and self._take_new(span))
        self._is_inside_batch = not span.ends_batch
        self._has_begun_batch = is_new and self._is_inside_batch
        return goes_on

    def _take_again(self, run: Run, content: Content) -> bool:
        if content is not Content.RECORDS:
            self._draft.archive(run, content.value)
            return True
        if run.deliveries >= self._terms.delivery_count_limit:
            self._draft.give_up(run, content.value, has_letters=self._terms.has_letters)
            return True
        taken = self._allowed(run)
        if taken is None:
            return False
        self._draft.hold(taken, self._number, run.deliveries + 1)
        self.count += taken.end_offset - taken.first_offset
        self._note(taken.first_offset, taken.end_offset, run.deliveries + 1)
        return taken == run

    def _allowed(self, run: Run) -> Run | None:
        """Return the part of a run that may be taken, None if nothing."""
        throttled = self._throttled
        if throttled is None:
            limit = self._terms.delivery_count_limit
            if not is_throttled(run.deliveries, limit):
                return run
            if self.count:
                return None
            last_offset = self._draft.main.end_of_equal(run) - 1
            batches = self._read.batches
            left = records_at_once(run.deliveries, limit, batches, run.first_offset, last_offset)
            throttled = _Throttled(run.deliveries, left)
        elif run.deliveries != throttled.deliveries or not throttled.left:
            return None
        taken = run._replace(end_offset=min(run.end_offset, run.first_offset + throttled.left))
        self._throttled = throttled._replace(left=throttled.left - (taken.end_offset - taken.first_offset))
        return taken

    def _take_new(self, span: Span) -> bool:
        main = self._draft.main
        first_offset, end_offset = self._end_offset, span.last_offset + 1
        if span.first_offset > first_offset:
            # The part in between was in flight when the log was read, and is not any more.
            return False
        room = self._terms.in_flight_max - (first_offset - main.first_offset)
        if room <= 0 and not self._has_begun_batch:
            return False
        if span.content is Content.RECORDS:
            self.count += end_offset - first_offset
            self._end_offset = end_offset
            return True
        self.hold_new()
        is_alone = span.ends_batch and not self._is_inside_batch
        is_clipped = bool(main.cells) and is_alone and end_offset - first_offset > room
        self._end_offset = first_offset + room if is_clipped else end_offset
        self._draft.append_nothing(self._end_offset, span.content.value)
        return not is_clipped

    def hold_new(self) -> None:
        """Hold the new records taken so far."""
        first_offset, end_offset = self._draft.main.end_offset, self._end_offset
        if end_offset > first_offset:
            self._draft.append_held(end_offset, self._number)
            self._note(first_offset, end_offset, 1)

    def _note(self, first_offset: int, end_offset: int, deliveries: int) -> None:
        if self.ranges:
            last = self.ranges[-1]
            if last.last_offset + 1 == first_offset and last.delivery_count == deliveries:
                self.ranges[-1] = last._replace(last_offset=end_offset - 1)
                return
        self.ranges.append(AcquiredRange(first_offset, end_offset - 1, deliveries))


def _covered(read: Read) -> Iterator[Span]:
    """Yield the spans of the part of the log that was wanted, with those in between that have no record."""
    at = read.first_offset
    for span in read.spans:
        if span.last_offset < at:
            continue
        if span.first_offset > at:
            yield Span(at, span.first_offset - 1, Content.NOTHING)
        first_offset = max(at, span.first_offset)
        if read.end_offset is not None and span.content is Content.RECORDS and span.last_offset >= read.end_offset:
            if first_offset < read.end_offset:
                yield span._replace(first_offset=first_offset, last_offset=read.end_offset - 1)
            return
        yield span._replace(first_offset=first_offset)
        at = span.last_offset + 1
