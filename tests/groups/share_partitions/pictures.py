"""Share partitions as one line of text, and the shortest ways to change them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from coordinator_protocol.errors import ErrorCode, Refused
from group_coordinator.share_partitions.acquiring import Content, LogPosition, Read, Span, Terms, acquire
from group_coordinator.share_partitions.draft import ShareChange
from group_coordinator.share_partitions.rules import AckBatch, acknowledge, release_acquisitions
from group_coordinator.share_partitions.state import (
    RecordState,
    SharePartition,
    Window,
    deliveries_of,
    state_of,
)

TERMS = Terms()
DONE = "+x"
LETTERS = {
    RecordState.AVAILABLE: ".",
    RecordState.ACKNOWLEDGED: "+",
    RecordState.ARCHIVED: "x",
    RecordState.TX_PENDING: "?",
    RecordState.ARCHIVING: "!",
    RecordState.ARCHIVING_REJECTED: "!",
}


def released_by(partition: SharePartition, member_id: str) -> ShareChange:
    """Take back all that a member holds, as the end of its session does."""
    return release_acquisitions(partition, partition.numbers_of(member_id))


def picture(partition: SharePartition) -> str:
    """The start offset, and then state and deliveries of each record in flight: `a` is held by the member "a", `.` is
    available, `+` acknowledged, `x` archived, `?` acknowledged in an open transaction, `!` waits for its letter. Held
    records before the start offset come first, each with its offset."""
    behind = [
        f"{offset}{cell}"
        for window in partition.behind
        for offset, cell in _cells(window, partition)
        if cell[0] not in DONE
    ]
    return " ".join([*behind, f"{partition.start_offset}:", *(cell for _, cell in _cells(partition.window, partition))])


def _cells(window: Window, partition: SharePartition) -> Iterator[tuple[int, str]]:
    numbers = memoryview(window.holders).cast("H")
    for at, cell in enumerate(window.cells):
        held = state_of(cell) is RecordState.ACQUIRED
        letter = partition.acquisitions[numbers[at]].member_id if held else LETTERS[state_of(cell)]
        yield window.first_offset + at, f"{letter}{deliveries_of(cell)}"


def fresh(start_offset: int = 0) -> SharePartition:
    return SharePartition(state_epoch=1, window=Window(start_offset))


def spans(*lengths: int, first_offset: int) -> tuple[Span, ...]:
    """Batches of records, one after the other."""
    found = []
    for length in lengths:
        found.append(Span(first_offset, first_offset + length - 1, Content.RECORDS))
        first_offset += length
    return tuple(found)


def taken(
    partition: SharePartition,
    member_id: str,
    *lengths: int,
    first_offset: int | None = None,
    terms: Terms = TERMS,
    max_records: int = 500,
) -> SharePartition:
    """The share partition after a member has read batches of these lengths."""
    first = partition.end_offset if first_offset is None else first_offset
    read = Read(first, spans(*lengths, first_offset=first))
    return acquire(partition, member_id, read, terms, max_records=max_records, log=LogPosition(0)).change.partition


def told(partition: SharePartition, member_id: str, *batches: tuple[int, int, str]) -> SharePartition:
    """The share partition after a member's acknowledgements: first and last offset, and digits of types."""
    asked = [AckBatch(first, last, tuple(map(int, types))) for first, last, types in batches]
    return acknowledge(partition, member_id, asked, TERMS, allows_renewal=True).partition


def code_of(change: Callable[[], object]) -> ErrorCode:
    """What a rule says: that all is well, or why not."""
    try:
        change()
    except Refused as refused:
        return refused.code
    return ErrorCode.NONE
