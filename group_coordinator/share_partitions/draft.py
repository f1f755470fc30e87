"""Working copy of a share partition: the changes of one decision, made or dropped together."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from enum import StrEnum
from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from coordinator_protocol.errors import ErrorCode, Refused
from group_coordinator.share_partitions.state import (
    FIRST_STATES,
    LEGAL_STEPS,
    LETTER_STATES,
    NUMBER_MAX,
    TERMINAL,
    AcknowledgingTransaction,
    Acquisition,
    PendingAcknowledgement,
    RecordState,
    SharePartition,
    Window,
    cell_of,
    deliveries_of,
    first_open,
    state_of,
    with_records,
)

_NUMBERS: Final = "H"
_NOBODY: Final = 0


class ArchiveReason(StrEnum):
    """Reason for which a record is not handed out again, or never was."""

    REJECTED = "rejected"
    """A member rejected it."""
    DELIVERY_LIMIT = "delivery_limit"
    """It was delivered as often as the group allows, and not acknowledged."""
    GAP = "gap"
    """The offset has no record: a marker, or a record that compaction removed."""
    ABORTED = "aborted"
    """It belongs to an aborted transaction, and the group reads committed records."""
    LOG_START = "log_start"
    """Retention or an administrator removed it from the log."""


class LetterEnd(StrEnum):
    """End of the letter of a record that was archived."""

    NONE = "none"
    """They need none. The group did not give them up, or a member rejected them and there is no dead-letter topic."""
    WRITTEN = "written"
    BARE = "bare"
    """Written without key and value. The record does not fit, or is gone from the log, or damaged; the letter says
    which."""
    NO_TOPIC = "no_topic"
    """They were delivered too often, and the group has no dead-letter topic; or it had one, and it was unset."""
    OWN_TOPIC = "own_topic"
    """The records are of the dead-letter topic itself, whose letters would come back without end."""
    REMOVED = "removed"
    """The log start passed the records before their letters were written."""
    DROPPED = "dropped"
    """The group or the topic was deleted before their letters were written."""


class Archived(NamedTuple):
    """Offsets that were archived."""

    first_offset: int
    end_offset: int
    """The offset after the last one."""
    reason: ArchiveReason
    deliveries: int
    """Deliveries of each."""
    letter: LetterEnd = LetterEnd.NONE

    @property
    def offset_count(self) -> int:
        return self.end_offset - self.first_offset


class Run(NamedTuple):
    """Consecutive offsets with the same state, deliveries and holder."""

    first_offset: int
    end_offset: int
    state: RecordState
    deliveries: int
    number: int
    """Number of the acquisition that holds them, or of the pending acknowledgement; 0 for none."""
    is_behind: bool
    """True before the start offset."""


class Piece:
    """Working copy of a window."""

    __slots__ = ("cells", "first_offset", "holders", "is_behind")

    def __init__(self, window: Window, *, is_behind: bool) -> None:
        self.first_offset = window.first_offset
        self.cells = bytearray(window.cells)
        self.holders = array(_NUMBERS, window.holders)
        self.is_behind = is_behind

    @property
    def end_offset(self) -> int:
        return self.first_offset + len(self.cells)

    def window(self) -> Window:
        return Window(self.first_offset, bytes(self.cells), self.holders.tobytes())

    def runs(self, first_offset: int, end_offset: int) -> Iterator[Run]:
        """Yield the runs of these offsets, as far as they are here. The runs yielded before may have changed."""
        at = max(first_offset, self.first_offset) - self.first_offset
        stop = min(end_offset, self.end_offset) - self.first_offset
        cells, holders = self.cells, self.holders
        while at < stop:
            cell, number = cells[at], holders[at]
            end = stop
            if cells.count(cell, at, stop) < stop - at or holders[at:stop].count(number) < stop - at:
                end = at + 1
                while end < stop and cells[end] == cell and holders[end] == number:
                    end += 1
            yield Run(
                self.first_offset + at,
                self.first_offset + end,
                state_of(cell),
                deliveries_of(cell),
                number,
                self.is_behind,
            )
            at = end

    def end_of_equal(self, run: Run) -> int:
        """Return the offset after the last of the records from this run on that have its state, deliveries and
        holder. The run may end before them."""
        return next(self.runs(run.first_offset, self.end_offset)).end_offset

    def put(self, run: Run, state: RecordState, deliveries: int, number: int) -> None:
        """Let a run take a step."""
        assert state in LEGAL_STEPS[run.state], f"{run.state.api_name} to {state.api_name} is no step of a record"
        at, end = run.first_offset - self.first_offset, run.end_offset - self.first_offset
        self.cells[at:end] = bytes((cell_of(state, deliveries),)) * (end - at)
        self.holders[at:end] = array(_NUMBERS, (number,)) * (end - at)

    def append(self, count: int, state: RecordState, deliveries: int, number: int) -> None:
        """Bring the next offsets into flight."""
        assert state in FIRST_STATES, f"nothing comes into flight as {state.api_name}"
        self.cells += bytes((cell_of(state, deliveries),)) * count
        self.holders.extend(array(_NUMBERS, (number,)) * count)

    def drop_first(self, count: int) -> None:
        self.first_offset += count
        del self.cells[:count]
        del self.holders[:count]

    def drop_last(self, count: int) -> None:
        if count:
            del self.cells[-count:]
            del self.holders[-count:]


class ShareChange(Struct, frozen=True):
    """The outcome of a rule."""

    partition: SharePartition
    """The share partition after the change."""
    is_stored: bool
    """True if a restart must bring the change back."""
    archived: tuple[Archived, ...] = ()
    """Offsets that were archived, in the order of the change."""
    made_available: int = 0
    """Number of records that became available again."""
    has_moved: bool = False
    """True if the start offset moved, so that more records may be in flight."""
    begun: int = 0
    """Number of the acquisition that the change began; 0 for none."""
    ended: tuple[int, ...] = ()
    """Numbers of the acquisitions that hold nothing any more."""


class Draft:
    """Working copy of a share partition. A rule that refuses drops it, so nothing has changed then."""

    def __init__(self, before: SharePartition) -> None:
        self.before = before
        self.main = Piece(before.window, is_behind=False)
        self.behind = [Piece(window, is_behind=True) for window in before.behind]
        self.acquisitions = dict(before.acquisitions)
        self.pending = dict(before.pending)
        self.leader_epoch = before.leader_epoch
        self.begun = 0
        self._last_number = before.last_number
        self._archived: list[Archived] = []
        self._ended: list[int] = []
        self._made_available = 0
        self._letters_due = before.letters_due

    @property
    def first_known_offset(self) -> int:
        """The first offset that is known in any way: a held one before the start offset, or the start offset."""
        return self.behind[0].first_offset if self.behind else self.main.first_offset

    def runs(self, first_offset: int, end_offset: int) -> Iterator[Run]:
        """Yield the known runs of these offsets, in order. The run yielded last may be changed by a step."""
        for piece in (*self.behind, self.main):
            yield from piece.runs(first_offset, end_offset)

    # Steps of records

    def hold(self, run: Run, number: int, deliveries: int) -> None:
        """Let an acquisition hold a run that is available, or that another one of its member holds."""
        self._step(run, RecordState.ACQUIRED, deliveries, number)
        self._hold(number, run.first_offset, run.end_offset)

    def hold_pending(self, run: Run, number: int) -> None:
        """Let a run wait for the marker of a transaction, with the outcome of this pending acknowledgement."""
        self._step(run, RecordState.TX_PENDING, run.deliveries, number)
        self.pending[number] = with_records(self.pending[number], run.end_offset - run.first_offset)

    def acknowledge(self, run: Run) -> None:
        self._step(run, RecordState.ACKNOWLEDGED, run.deliveries)

    def archive(self, run: Run, reason: ArchiveReason, letter: LetterEnd = LetterEnd.NONE) -> None:
        self._step(run, RecordState.ARCHIVED, run.deliveries)
        self._note(run.first_offset, run.end_offset, reason, run.deliveries, letter)

    def give_up(self, run: Run, reason: ArchiveReason, *, has_letters: bool) -> None:
        """Let a run come no more: from now on, or once its letters are written."""
        if not has_letters:
            self.archive(run, reason, LetterEnd.NONE if reason is ArchiveReason.REJECTED else LetterEnd.NO_TOPIC)
        elif reason is ArchiveReason.REJECTED:
            self._step(run, RecordState.ARCHIVING_REJECTED, run.deliveries)
        else:
            self._step(run, RecordState.ARCHIVING, run.deliveries)

    def release(self, run: Run, holder: Acquisition | PendingAcknowledgement) -> None:
        """Take a run back from its holder, or from its transaction: it is available again, unless nothing more may
        become of it."""
        if run.is_behind:
            self.archive(run, ArchiveReason.LOG_START)
        elif run.deliveries >= holder.delivery_count_limit:
            self.give_up(run, ArchiveReason.DELIVERY_LIMIT, has_letters=holder.has_letters)
        else:
            self._step(run, RecordState.AVAILABLE, run.deliveries)
            self._made_available += run.end_offset - run.first_offset

    def _step(self, run: Run, state: RecordState, deliveries: int, number: int = _NOBODY) -> None:
        piece = next(
            each for each in (self.main, *self.behind) if each.first_offset <= run.first_offset < each.end_offset
        )
        piece.put(run, state, deliveries, number)
        count = run.end_offset - run.first_offset
        self._letters_due += count * ((state in LETTER_STATES) - (run.state in LETTER_STATES))
        if run.state is RecordState.TX_PENDING:
            self._settle(run.number, count)
        elif run.number:
            self._let_go(run.number, count)

    # New offsets

    def append_held(self, end_offset: int, number: int) -> None:
        """Bring the offsets up to this one into flight, delivered once to the acquisition."""
        first_offset = self.main.end_offset
        self.main.append(end_offset - first_offset, RecordState.ACQUIRED, 1, number)
        self._hold(number, first_offset, end_offset)

    def append_nothing(self, end_offset: int, reason: ArchiveReason) -> None:
        """Pass the offsets up to this one, which have nothing to hand out. Without an offset in flight the start offset
        moves past them at once, however many they are."""
        first_offset = self.main.end_offset
        if self.main.cells:
            self.main.append(end_offset - first_offset, RecordState.ARCHIVED, 0, _NOBODY)
        else:
            self.main.first_offset = end_offset
        self._note(first_offset, end_offset, reason, 0)

    def move_log_start(self, offset: int) -> None:
        """Move the start offset to the log start, if that is after it. Available and pending records before it are
        archived: whatever becomes of the transaction, they do not come again. So are those that wait for their letters.
        Held ones stay until they are released."""
        main = self.main
        if not self.before.is_resolved or offset <= main.first_offset:
            return
        for run in main.runs(main.first_offset, offset):
            if run.state in LETTER_STATES:
                self.archive(run, ArchiveReason.LOG_START, LetterEnd.REMOVED)
            elif run.state in (RecordState.AVAILABLE, RecordState.TX_PENDING):
                self.archive(run, ArchiveReason.LOG_START)
        if offset > main.end_offset:
            self._note(main.end_offset, offset, ArchiveReason.LOG_START, 0)
        passed = Piece(main.window(), is_behind=True)
        passed.drop_last(max(0, passed.end_offset - offset))
        self.behind.append(passed)
        main.drop_first(min(offset, main.end_offset) - main.first_offset)
        main.first_offset = offset
        main.drop_first(first_open(main.cells))

    # Acquisitions

    def begin(self, member_id: str, delivery_count_limit: int, *, has_letters: bool) -> int:
        """Begin an acquisition, which holds nothing yet. Return its number."""
        number = self.begun = self._next_number()
        self.acquisitions[number] = Acquisition(member_id, -1, -1, 0, delivery_count_limit, has_letters)
        return number

    def begin_pending(
        self,
        transaction: AcknowledgingTransaction,
        holder: Acquisition | PendingAcknowledgement,
        *,
        is_rejection: bool,
    ) -> int:
        """Return the number of the transaction's pending acknowledgement with this outcome and the terms of the holder.
        It holds nothing yet if it is new."""
        begun = PendingAcknowledgement(transaction, is_rejection, holder.delivery_count_limit, holder.has_letters)
        for number, each in self.pending.items():
            if replace(each, record_count=0) == begun:
                return number
        number = self._next_number()
        self.pending[number] = begun
        return number

    def _next_number(self) -> int:
        if len(self.acquisitions) + len(self.pending) >= NUMBER_MAX - 1:
            raise Refused(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                f"{NUMBER_MAX} acquisitions of the partition hold records: acknowledge some, and try again",
            )
        number = self._last_number
        while number == self._last_number or number in self.acquisitions or number in self.pending:
            number = number % NUMBER_MAX + 1
        self._last_number = number
        return number

    def _hold(self, number: int, first_offset: int, end_offset: int) -> None:
        held = self.acquisitions[number]
        self.acquisitions[number] = Acquisition(
            held.member_id,
            first_offset if held.first_offset < 0 else min(held.first_offset, first_offset),
            max(held.end_offset, end_offset),
            held.held_count + end_offset - first_offset,
            held.delivery_count_limit,
            held.has_letters,
        )

    def _let_go(self, number: int, count: int) -> None:
        held = self.acquisitions[number]
        left = held.held_count - count
        assert left >= 0, "an acquisition holds what its number is on"
        if left:
            self.acquisitions[number] = replace(held, held_count=left)
        else:
            del self.acquisitions[number]
            self._ended.append(number)

    def _settle(self, number: int, count: int) -> None:
        self.pending[number] = with_records(self.pending[number], -count)
        assert self.pending[number].record_count >= 0, "a pending acknowledgement has what its number is on"

    def _note(
        self,
        first_offset: int,
        end_offset: int,
        reason: ArchiveReason,
        deliveries: int,
        letter: LetterEnd = LetterEnd.NONE,
    ) -> None:
        if end_offset > first_offset:
            self._archived.append(Archived(first_offset, end_offset, reason, deliveries, letter))

    # The outcome

    def change(self) -> ShareChange:
        """Return the outcome: the start offset has passed all records at the beginning that are done."""
        before, main = self.before, self.main
        main.drop_first(first_open(main.cells))
        if self.begun and not self.acquisitions[self.begun].held_count:
            del self.acquisitions[self.begun]
            self.begun, self._last_number = 0, before.last_number
        after = replace(
            before,
            leader_epoch=self.leader_epoch,
            window=main.window(),
            behind=tuple(piece.window() for piece in self.behind if _trim(piece)),
            acquisitions=self.acquisitions,
            pending={number: each for number, each in self.pending.items() if each.record_count},
            last_number=self._last_number,
            letters_due=self._letters_due,
        )
        return ShareChange(
            partition=after,
            is_stored=after.durable_form != before.durable_form,
            archived=tuple(self._archived),
            made_available=self._made_available,
            has_moved=after.start_offset != before.start_offset,
            begun=self.begun,
            ended=tuple(self._ended),
        )


def _trim(piece: Piece) -> bool:
    """Drop what is done at both ends of a piece before the start offset. Return False if nothing is left."""
    piece.drop_first(first_open(piece.cells))
    done = 0
    while done < len(piece.cells) and state_of(piece.cells[-1 - done]) in TERMINAL:
        done += 1
    piece.drop_last(done)
    return bool(piece.cells)
