"""A share partition, the states of its records, and the table of their legal steps.

The records from the start offset up to the end offset are *in flight*. Every record before them is done, and none after
them was handed out. Each has a state and the number of its deliveries. The table, `LEGAL_STEPS`, is binding: a step
outside it is a bug of this program, never a client's error. Every change of a record goes through `Piece.put`
(`draft`), which checks it. ARCHITECTURE.md has a drawing that is made from the table.

A record that a transaction has acknowledged is TX_PENDING until the marker of the transaction. That is stored, with the
transaction and the outcome that a commit gives the record.

The records that a member holds are in memory only, as in Kafka. After a restart or a load, an ACQUIRED record is
AVAILABLE again, with the deliveries before that. The stored form (`durable_form`) shows it so, and a change that leaves
this form as it was is not stored.

A record in flight takes three bytes (`python -m bench.share_memory`): one for state and deliveries, two for the number
of its acquisition. A change copies those of its share partition. For the usual 2,000 that takes less than a
microsecond.

A record that is given up is ARCHIVING until its letter is in the dead-letter topic of the group, if that has one. There
is a second state for rejected records, so that a restart knows the reason (`letters`).

Source: spec groups 6.3; KIP-1191. Numbers of states up to 4 are Kafka's.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from coordinator_runtime.ports import OutcomeNumber

UNRESOLVED: Final = -1
"""Start offset before the first fetch, which finds it by the settings of the group."""

DELIVERIES_MAX: Final = 31
"""Greatest number of deliveries that a cell can hold. Limits of deliveries are from 2 to 10."""

NUMBER_MAX: Final = 0xFFFF
"""Greatest number of an acquisition, or of a pending acknowledgement."""


class RecordState(IntEnum):
    """States of a record in flight, with their stored numbers."""

    AVAILABLE = 0
    ACQUIRED = 1
    """A member holds it. In memory only."""
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    """Delivered too often. It is archived in the batch in which its letter is written."""
    ARCHIVED = 4
    """Not handed out again: rejected, delivered too often, removed from the log, or no record at all."""
    TX_PENDING = 5
    """Acknowledged in a transaction that is open. Durable, and not handed out until its marker."""
    ARCHIVING_REJECTED = 6
    """The same as ARCHIVING, for a record that was rejected."""

    @property
    def api_name(self) -> str:
        """Name that people see, for example "TxPending"."""
        return self.name.title().replace("_", "")


LETTER_STATES: Final = frozenset({RecordState.ARCHIVING, RecordState.ARCHIVING_REJECTED})
"""States of records whose letters are to be written."""

LEGAL_STEPS: Final[Mapping[RecordState, frozenset[RecordState]]] = MappingProxyType(
    {
        RecordState.AVAILABLE: frozenset({RecordState.ACQUIRED, RecordState.ARCHIVING, RecordState.ARCHIVED}),
        RecordState.ACQUIRED: frozenset(
            {
                RecordState.ACQUIRED,
                RecordState.AVAILABLE,
                RecordState.ACKNOWLEDGED,
                RecordState.ARCHIVED,
                RecordState.TX_PENDING,
                *LETTER_STATES,
            }
        ),
        RecordState.TX_PENDING: frozenset(
            {
                RecordState.TX_PENDING,
                RecordState.AVAILABLE,
                RecordState.ACKNOWLEDGED,
                RecordState.ARCHIVED,
                *LETTER_STATES,
            }
        ),
        **dict.fromkeys(LETTER_STATES, frozenset({RecordState.ARCHIVED})),
        RecordState.ACKNOWLEDGED: frozenset(),
        RecordState.ARCHIVED: frozenset(),
    }
)

FIRST_STATES: Final = frozenset({RecordState.ACQUIRED, RecordState.ARCHIVED})
"""States in which an offset comes into flight: handed out, or found to be no record to hand out."""

TERMINAL: Final = frozenset({RecordState.ACKNOWLEDGED, RecordState.ARCHIVED})
"""States that the start offset passes."""

_STATE_BITS: Final = 0b111
_COUNT_SHIFT: Final = 3


def cell_of(state: RecordState, deliveries: int) -> int:
    """Return the byte of a record in this state, delivered so often."""
    assert 0 <= deliveries <= DELIVERIES_MAX, "limits of deliveries are far below what a cell holds"
    return state | deliveries << _COUNT_SHIFT


def state_of(cell: int) -> RecordState:
    """Return the state in a cell. Raises ValueError if the number is no state."""
    return RecordState(cell & _STATE_BITS)


def deliveries_of(cell: int) -> int:
    """Return the number of deliveries in a cell."""
    return cell >> _COUNT_SHIFT


def _stored_cell(cell: int) -> int:
    state, deliveries = cell & _STATE_BITS, cell >> _COUNT_SHIFT
    if state == RecordState.ACQUIRED:
        return cell_of(RecordState.AVAILABLE, max(0, deliveries - 1))
    if state == RecordState.ARCHIVED and not deliveries:
        return 0
    return cell


_AS_STORED: Final = bytes(map(_stored_cell, range(256)))
"""Stored form of each cell. An offset where nothing was ever handed out is found again by reading the log."""
_OPEN: Final = bytes(0 if cell & _STATE_BITS in TERMINAL else 1 for cell in range(256))
_AVAILABLE: Final = bytes(int(cell & _STATE_BITS == RecordState.AVAILABLE) for cell in range(256))
_LETTER_DUE: Final = bytes(int(cell & _STATE_BITS in LETTER_STATES) for cell in range(256))
_NEVER_DELIVERED: Final = bytes(1)
_EQUAL_CELLS: Final = re.compile(rb"(.)\1*", re.DOTALL)
_EQUAL_HOLDERS: Final = re.compile(rb"(..)\1*", re.DOTALL)
_PENDING_CELLS: Final = re.compile(
    b"[%s]+" % re.escape(bytes(cell for cell in range(256) if cell & _STATE_BITS == RecordState.TX_PENDING))
)
_NUMBER: Final = struct.Struct("=H")
"""Number of a holder, in the order of this machine."""
_YES: Final = b"\1"
_NO: Final = b"\0"


class Window(Struct, frozen=True, gc=False):
    """Consecutive offsets, and what is known of each. `Window(offset)` has none."""

    first_offset: int
    cells: bytes = b""
    """One byte for each offset, see `cell_of`."""
    holders: bytes = b""
    """Two bytes for each offset, in the order of this machine: the number of what holds it, 0 for none. That is an
    acquisition or a pending acknowledgement."""

    @property
    def end_offset(self) -> int:
        """The offset after the last one."""
        return self.first_offset + len(self.cells)


class Acquisition(Struct, frozen=True, gc=False):
    """Records that one ShareFetch acquired for one member in one share partition, held until one deadline."""

    member_id: str
    first_offset: int
    end_offset: int
    """The offset after its last record."""
    held_count: int
    """Number of records that it still holds."""
    delivery_count_limit: int
    """Number of deliveries after which a record that is released is archived, as the group had it set then."""
    has_letters: bool = False
    """True if the group had a dead-letter topic then, so that a record that is given up gets a letter."""


class AcknowledgingTransaction(NamedTuple):
    """A transaction in which records are acknowledged."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    after: OutcomeNumber
    """Last outcome of the transactional id before the acknowledgement. Only a marker of that coordinator shard with a
    greater csn settles it. A client of version 1 keeps its epoch, so a late copy of an earlier marker looks like the
    one of this transaction."""


class PendingAcknowledgement(Struct, frozen=True, gc=False):
    """Records that one transaction acknowledged with one outcome, which they get if it commits. Each has the state
    TX_PENDING."""

    transaction: AcknowledgingTransaction
    is_rejection: bool
    """True if a commit archives the records, False if it acknowledges them."""
    delivery_count_limit: int
    """Number of deliveries after which an abort archives a record, as the group had it set when it was acquired."""
    has_letters: bool = False
    """True if the group had a dead-letter topic when the records were acquired."""
    record_count: int = 0


_NOTHING_PENDING: Final[Mapping[int, PendingAcknowledgement]] = MappingProxyType({})


class DurableForm(NamedTuple):
    """The part of a share partition that a restart brings back."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    cells: bytes
    """Cells from the start offset on, without those at the end that say nothing."""
    holders: bytes = b""
    """Numbers of the pending acknowledgements, two bytes for each cell as in `Window`; empty if there are none."""
    pending: Mapping[int, PendingAcknowledgement] = _NOTHING_PENDING
    """Pending acknowledgements by number."""


_NOTHING_HELD: Final[Mapping[int, Acquisition]] = MappingProxyType({})


class SharePartition(Struct, frozen=True, kw_only=True):
    """One partition as one share group reads it: a complete snapshot. The newest stored one is enough."""

    state_epoch: int
    """Number of the group epoch, or of the change by an administrator, that began this state. A fetch that read the log
    for an older one is refused."""
    leader_epoch: int = 0
    """Leader epoch of the newest records that were acquired."""
    window: Window = Window(UNRESOLVED)
    """The records in flight."""
    behind: tuple[Window, ...] = ()
    """Records before the start offset that are held: the log start has passed them. They are archived when they are
    released. Not stored."""
    acquisitions: Mapping[int, Acquisition] = _NOTHING_HELD
    """Acquisitions that hold records, by number. Never changed, only replaced."""
    pending: Mapping[int, PendingAcknowledgement] = _NOTHING_PENDING
    """Acknowledgements in open transactions, by number. No acquisition has the same number."""
    last_number: int = 0
    """Number of the newest acquisition or pending acknowledgement."""
    letters_due: int = 0
    """Number of records whose letters are to be written."""

    @property
    def start_offset(self) -> int:
        """The first offset in flight (Kafka's SPSO): all before it are done. `UNRESOLVED` before the first fetch."""
        return self.window.first_offset

    @property
    def end_offset(self) -> int:
        """The offset after the last one in flight: the next that was never handed out."""
        return self.window.end_offset

    @property
    def is_resolved(self) -> bool:
        """True once the start offset is known."""
        return self.window.first_offset != UNRESOLVED

    def numbers_of(self, member_id: str) -> tuple[int, ...]:
        """Return the numbers of a member's acquisitions."""
        return tuple(number for number, held in self.acquisitions.items() if held.member_id == member_id)

    @property
    def held_count(self) -> int:
        """Number of records that members hold."""
        return sum(each.held_count for each in self.acquisitions.values())

    @property
    def pending_count(self) -> int:
        """Number of records that open transactions have acknowledged."""
        return sum(each.record_count for each in self.pending.values())

    @property
    def delivery_complete_count(self) -> int:
        """Number of records in flight that are done, which the lag of the group leaves out (KIP-1226). It follows from
        the cells, so it is not stored."""
        return self.window.cells.translate(_OPEN).count(_NO)

    @property
    def durable_form(self) -> DurableForm:
        """The part that a restart brings back."""
        cells = self.window.cells.translate(_AS_STORED).rstrip(_NEVER_DELIVERED)
        form = DurableForm(self.state_epoch, self.leader_epoch, self.start_offset, cells)
        if not self.pending:
            return form
        return form._replace(holders=_pending_holders(cells, self.window.holders), pending=self.pending)

    def first_available(self, in_flight_max: int) -> int | None:
        """Return the first offset that may be acquired: one in flight that is available, else the end offset. None if
        nothing may be acquired: as many offsets as the group allows are in flight, and none is available."""
        window = self.window
        at = first_marked(window.cells, _AVAILABLE)
        if at is not None:
            return window.first_offset + at
        return window.end_offset if len(window.cells) < in_flight_max else None

    def end_of_available(self, first_offset: int, count: int) -> int:
        """Return the offset after so many available ones, from an offset on. Those after the window are available."""
        window = self.window
        marked = window.cells[max(0, first_offset - window.first_offset) :].translate(_AVAILABLE)
        end_offset = max(first_offset, window.end_offset)
        missing = count - marked.count(_YES)
        if missing >= 0:
            return end_offset + missing
        at = 0
        for _ in range(count):
            at = marked.index(_YES, at) + 1
        return end_offset - len(marked) + at


def first_marked(cells: bytes | bytearray, marks: bytes) -> int | None:
    """Return the position of the first cell that the table marks with 1; None if it marks none."""
    at = cells.translate(marks).find(_YES)
    return None if at < 0 else at


def first_open(cells: bytes | bytearray) -> int:
    """Return the position of the first cell that is not done; the number of cells if all are."""
    at = first_marked(cells, _OPEN)
    return len(cells) if at is None else at


def restored(form: DurableForm) -> SharePartition:
    """Return the share partition with this durable form. No record in it is held."""
    return SharePartition(
        state_epoch=form.state_epoch,
        leader_epoch=form.leader_epoch,
        window=Window(form.start_offset, form.cells, form.holders or bytes(2 * len(form.cells))),
        pending=form.pending,
        letters_due=form.cells.translate(_LETTER_DUE).count(_YES),
    )


def runs_of(form: DurableForm) -> Iterator[tuple[int, int, int]]:
    """Yield length, cell, and number of the pending acknowledgement of the runs of equal records. The number is 0 for a
    record that is not pending."""
    for run in _EQUAL_CELLS.finditer(form.cells):
        begin, end = run.span()
        cell = form.cells[begin]
        if cell & _STATE_BITS != RecordState.TX_PENDING:
            yield end - begin, cell, 0
            continue
        for held in _EQUAL_HOLDERS.finditer(form.holders, 2 * begin, 2 * end):
            yield len(held[0]) // 2, cell, _NUMBER.unpack_from(held[0])[0]


def pending_runs(partition: SharePartition) -> Iterator[tuple[int, int]]:
    """Yield first offset and number of the runs of pending records with one pending acknowledgement."""
    offset = partition.start_offset
    for length, _cell, number in runs_of(partition.durable_form):
        if number:
            yield offset, number
        offset += length


def form_of_runs(
    form: DurableForm, runs: Iterable[tuple[int, int, int]], pending: Mapping[int, PendingAcknowledgement]
) -> DurableForm:
    """Return the form with these runs, as `runs_of` yields them, and the pending acknowledgements that they name, which
    `pending` has without records."""
    cells, holders, found = bytearray(), bytearray(), dict(pending)
    for length, cell, number in runs:
        cells += bytes((cell,)) * length
        holders += _NUMBER.pack(number) * length
        if number:
            found[number] = with_records(found[number], length)
    return form._replace(cells=bytes(cells), holders=bytes(holders) if found else b"", pending=found)


def with_records(pending: PendingAcknowledgement, more: int) -> PendingAcknowledgement:
    """Return a pending acknowledgement with so many more records."""
    return replace(pending, record_count=pending.record_count + more)


def _pending_holders(cells: bytes, holders: bytes) -> bytes:
    """Return the holders of these cells, with 0 in place of acquisitions."""
    masked = bytearray(2 * len(cells))
    for run in _PENDING_CELLS.finditer(cells):
        begin, end = run.span()
        masked[2 * begin : 2 * end] = holders[2 * begin : 2 * end]
    return bytes(masked)
