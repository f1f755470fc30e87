"""Rules of share partitions: pure functions from one snapshot to a `ShareChange`, which says what else has happened.

A rule that refuses changes nothing, so an acknowledgement succeeds for all of its batches in a partition or for none.

Source: spec groups 6.3; KIP-932 (acquisition, acknowledgement), KIP-1222 (RENEW).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import Enum, IntEnum
from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from coordinator_protocol.errors import ErrorCode, Refused, RenewalForbidden
from coordinator_protocol.marker import Marker, Outcome
from group_coordinator.share_partitions.draft import ArchiveReason, Draft, Run, ShareChange
from group_coordinator.share_partitions.state import (
    NUMBER_MAX,
    AcknowledgingTransaction,
    Acquisition,
    PendingAcknowledgement,
    RecordState,
    SharePartition,
    Window,
)
from group_coordinator.share_partitions.throttling import BatchOffsets, is_throttled, records_at_once


class AckType(IntEnum):
    """Outcomes that a member gives a record, with the numbers of Kafka's protocol."""

    GAP = 0
    """There was no record."""
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4
    """Not done yet: the member holds it for another lock duration."""


class AckBatch(NamedTuple):
    """Acknowledgements of consecutive offsets, as a member sends them."""

    first_offset: int
    last_offset: int
    types: Sequence[int]
    """One `AckType` for each offset, or one for all."""


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


# Acquiring


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


# Acknowledging


def acknowledge(
    before: SharePartition, member_id: str, batches: Sequence[AckBatch], terms: Terms, *, allows_renewal: bool = False
) -> ShareChange:
    """Give records their outcome, all of them or none.

    An offset before the start offset is passed over: its record was removed, and a hold on it ends. RENEW moves records
    into a new acquisition.

    Raises Refused. INVALID_REQUEST: batches that are malformed or not in order, an unknown type, an offset that was
    never handed out. INVALID_RECORD_STATE: the member does not hold one of the records."""
    draft = Draft(before)
    check_batches(batches, allows_renewal=allows_renewal)
    for batch in batches:
        _check_known(draft, batch)
        for first_offset, end_offset, kind in _by_type(batch):
            for run in draft.runs(first_offset, end_offset):
                _apply(draft, run, kind, member_id, terms)
    return draft.change()


def check_batches(batches: Iterable[AckBatch], *, allows_renewal: bool) -> None:
    """Raise Refused INVALID_REQUEST for batches that no state allows; RenewalForbidden, if they are well-formed."""
    last_offset, renews = -1, False
    for batch in batches:
        name = f"the acknowledgement of the offsets {batch.first_offset} to {batch.last_offset}"
        if not 0 <= batch.first_offset <= batch.last_offset:
            raise _invalid(f"{name} names no offsets; name the first and the last one")
        if batch.first_offset <= last_offset:
            raise _invalid(f"{name} is not after the one before it; sort them, and name each offset once")
        count = batch.last_offset - batch.first_offset + 1
        if len(batch.types) not in (1, count):
            raise _invalid(f"{name} has {len(batch.types)} types; give one for all offsets, or {count}")
        for kind in set(batch.types):
            if kind not in _KNOWN_TYPES:
                raise _invalid(f"{name} has the unknown type {kind}; there are {', '.join(map(str, _KNOWN_TYPES))}")
        last_offset = batch.last_offset
        renews = renews or AckType.RENEW in batch.types
    if renews and not allows_renewal:
        raise RenewalForbidden("an acknowledgement renews locks, and the settings of the group do not allow that")


_KNOWN_TYPES: Final = tuple(int(kind) for kind in AckType)


def _check_known(draft: Draft, batch: AckBatch) -> None:
    if batch.last_offset >= draft.main.end_offset:
        raise _invalid(
            f"the offset {batch.last_offset} was not handed out: the group has got none from "
            f"{draft.main.end_offset} on; acknowledge only what was fetched"
        )
    if batch.last_offset < draft.first_known_offset:
        raise Refused(
            ErrorCode.INVALID_RECORD_STATE,
            f"the offsets {batch.first_offset} to {batch.last_offset} are done: the group has passed them",
        )


def _by_type(batch: AckBatch) -> Iterator[tuple[int, int, AckType]]:
    """Yield first offset, end offset and type of the parts of a batch with one type."""
    types = batch.types
    if len(types) == 1:
        yield batch.first_offset, batch.last_offset + 1, AckType(types[0])
        return
    at = 0
    while at < len(types):
        end = at + 1
        while end < len(types) and types[end] == types[at]:
            end += 1
        yield batch.first_offset + at, batch.first_offset + end, AckType(types[at])
        at = end


def _holder(draft: Draft, run: Run, member_id: str) -> Acquisition | None:
    """Return the acquisition that holds the run; None if the member does not hold it."""
    held = draft.acquisitions.get(run.number)
    return held if held is not None and held.member_id == member_id else None


def _apply(draft: Draft, run: Run, kind: AckType, member_id: str, terms: Terms) -> None:
    holder = _holder(draft, run, member_id)
    if run.is_behind:
        if holder is not None:
            draft.archive(run, ArchiveReason.LOG_START)
        return
    if holder is None:
        raise Refused(ErrorCode.INVALID_RECORD_STATE, _not_held(run))
    match kind:
        case AckType.ACCEPT:
            draft.acknowledge(run)
        case AckType.RELEASE:
            draft.release(run, holder)
        case AckType.REJECT:
            draft.give_up(run, ArchiveReason.REJECTED, has_letters=holder.has_letters)
        case AckType.GAP:
            draft.archive(run, ArchiveReason.GAP)
        case AckType.RENEW:
            number = draft.begun or draft.begin(member_id, terms.delivery_count_limit, has_letters=terms.has_letters)
            draft.hold(run, number, run.deliveries)


# Acknowledging in a transaction


def acknowledge_in_transaction(
    before: SharePartition, member_id: str, batches: Sequence[AckBatch], transaction: AcknowledgingTransaction
) -> ShareChange:
    """Let records wait for the end of a transaction, all of them or none. The locks on them end: the transaction bounds
    the wait.

    A commit accepts or rejects them, an abort gives them back. The same transaction may acknowledge a record again, and
    the newest outcome counts. An offset before the start offset is passed over, as in `acknowledge`.

    Raises Refused as `acknowledge`, and INVALID_REQUEST for types other than ACCEPT and REJECT."""
    draft = Draft(before)
    check_transactional_batches(batches)
    for batch in batches:
        _check_known(draft, batch)
        for first_offset, end_offset, kind in _by_type(batch):
            for run in draft.runs(first_offset, end_offset):
                _hold_pending(draft, run, member_id, transaction, is_rejection=kind is AckType.REJECT)
    return draft.change()


def check_transactional_batches(batches: Sequence[AckBatch]) -> None:
    """Raise Refused INVALID_REQUEST for batches that no state allows inside a transaction."""
    check_batches(batches, allows_renewal=True)
    kinds = {kind for batch in batches for kind in batch.types} - {AckType.ACCEPT, AckType.REJECT}
    if kinds:
        raise _invalid(
            f"the type {AckType(min(kinds)).name} makes no sense in a transaction, whose end gives records their "
            "outcome: accept or reject them, or acknowledge them without the transaction"
        )


def _hold_pending(
    draft: Draft, run: Run, member_id: str, transaction: AcknowledgingTransaction, *, is_rejection: bool
) -> None:
    pending = draft.pending.get(run.number)
    holder: Acquisition | PendingAcknowledgement | None
    if pending is not None and pending.transaction == transaction:
        holder = pending
    else:
        holder = _holder(draft, run, member_id)
        if run.is_behind:
            if holder is not None:
                draft.archive(run, ArchiveReason.LOG_START)
            return
        if holder is None:
            raise Refused(ErrorCode.INVALID_RECORD_STATE, _not_held(run))
    number = draft.begin_pending(transaction, holder, is_rejection=is_rejection)
    if number != run.number:
        draft.hold_pending(run, number)


def settle(before: SharePartition, marker: Marker) -> ShareChange:
    """Give the records their outcome that the transaction of this marker has acknowledged. No change if there are none
    any more, or if the marker is of an earlier transaction.

    Raises Refused INVALID_TXN_STATE for a marker of another coordinator shard than that of the transactional id; no
    correct coordinator sends one."""
    ended = {number for number, each in before.pending.items() if _is_ended(each.transaction, marker)}
    draft = Draft(before)
    if ended:
        for run in draft.main.runs(draft.main.first_offset, draft.main.end_offset):
            if run.number in ended:
                _settle(draft, run, draft.pending[run.number], marker.outcome)
    return draft.change()


def _is_ended(transaction: AcknowledgingTransaction, marker: Marker) -> bool:
    if (transaction.producer_id, transaction.producer_epoch) != (marker.producer_id, marker.txn_epoch):
        return False
    if transaction.after.coordinator_shard != marker.coordinator_shard:
        raise Refused(
            ErrorCode.INVALID_TXN_STATE,
            f"marker {marker.csn} of coordinator shard {marker.coordinator_shard} (producer {marker.producer_id}, "
            f"epoch {marker.txn_epoch}) cannot end the transaction of {transaction.transactional_id!a:.100}, which "
            f"belongs to shard {transaction.after.coordinator_shard}. This is a defect of the coordinator",
        )
    return marker.csn > transaction.after.csn


def _settle(draft: Draft, run: Run, pending: PendingAcknowledgement, outcome: Outcome) -> None:
    if outcome is Outcome.ABORT:
        draft.release(run, pending)
    elif pending.is_rejection:
        draft.give_up(run, ArchiveReason.REJECTED, has_letters=pending.has_letters)
    else:
        draft.acknowledge(run)


def _not_held(run: Run) -> str:
    offsets = f"the offsets {run.first_offset} to {run.end_offset - 1}"
    if run.state is RecordState.TX_PENDING:
        return f"{offsets} were acknowledged in a transaction, and wait for its end"
    if run.state is RecordState.ACQUIRED:
        return f"{offsets} are held by another member; this one's lock on them has expired, or it never had one"
    return f"{offsets} are {run.state.api_name}, and not held by the member: its lock on them has expired"


# Releasing


def release_acquisitions(before: SharePartition, numbers: Iterable[int]) -> ShareChange:
    """Take back every record that these acquisitions still hold, because their time is over, or the session or the
    membership of their member. No change by those that do not exist any more."""
    draft = Draft(before)
    for number in numbers:
        if number in before.acquisitions:
            _release(draft, number)
    return draft.change()


def _release(draft: Draft, number: int) -> None:
    held = draft.acquisitions[number]
    for run in draft.runs(held.first_offset, held.end_offset):
        if run.number == number:
            draft.release(run, held)


# The start offset


def resolve_start(before: SharePartition, offset: int) -> ShareChange:
    """Let the group begin at this offset, unless it has begun before."""
    after = before if before.is_resolved else replace(before, window=Window(offset))
    return ShareChange(after, is_stored=after is not before, has_moved=after is not before)


def move_log_start(before: SharePartition, log_start_offset: int) -> ShareChange:
    """Follow the start of the log: available records before it are archived, and the start offset is not before it.
    Held ones stay until they are released or acknowledged, and are archived then."""
    draft = Draft(before)
    draft.move_log_start(log_start_offset)
    return draft.change()


def alter_start(before: SharePartition, offset: int, state_epoch: int = 0) -> ShareChange:
    """Let the group begin anew at this offset, with nothing in flight, in a new state epoch: this one if it is newer.
    For a group without members, because what a member still held would be handed out once more.

    Raises Refused NON_EMPTY_GROUP while a transaction has acknowledged records, whose end must find them, and while
    letters are to be written."""
    if before.letters_due:
        raise Refused(
            ErrorCode.NON_EMPTY_GROUP,
            f"{before.letters_due} records wait for their letters in the dead-letter topic: try again when they are "
            "written, or unset share_dead_letter_topic to do without them",
        )
    draft = Draft(before)
    for run in draft.runs(draft.first_known_offset, draft.main.end_offset):
        if run.state is RecordState.TX_PENDING:
            raise Refused(
                ErrorCode.NON_EMPTY_GROUP,
                f"an open transaction has acknowledged the offset {run.first_offset}; try again when it has ended",
            )
    after = SharePartition(
        state_epoch=max(before.state_epoch + 1, state_epoch), leader_epoch=before.leader_epoch, window=Window(offset)
    )
    return ShareChange(after, is_stored=True, has_moved=True, ended=tuple(before.acquisitions))


def _invalid(why: str) -> Refused:
    return Refused(ErrorCode.INVALID_REQUEST, why)
