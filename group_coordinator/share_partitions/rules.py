"""Rules of share partitions: pure functions from one snapshot to a `ShareChange`, which says what else has happened.

A rule that refuses changes nothing, so an acknowledgement succeeds for all of its batches in a partition or for none.
The rule of an acquisition is in `acquiring`.

Source: spec groups 6.3; KIP-932 (acknowledgement), KIP-1222 (RENEW).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from msgspec.structs import replace

from coordinator_protocol.errors import ErrorCode, Refused, RenewalForbidden
from coordinator_protocol.marker import Marker, Outcome
from group_coordinator.share_partitions.acquiring import Terms
from group_coordinator.share_partitions.draft import ArchiveReason, Draft, Run, ShareChange
from group_coordinator.share_partitions.state import (
    AcknowledgingTransaction,
    Acquisition,
    PendingAcknowledgement,
    RecordState,
    SharePartition,
    Window,
)


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
