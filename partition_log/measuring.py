"""Positions of the visible records of a range, in steps of about the same size. Readers use them to divide a range
among them, or to take it in portions.

The index holds the numbers of bytes and records of every finished entry. No batch of an entry is read if no aborted
transaction overlaps it. Otherwise, and at both ends of the range, the headers of batches are read. That is done within
a budget, and the caller continues where the measurement ended, as with a fetch.

Source: docs/spark.md (splits by offset count are uneven on transactional topics).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from coordinator_protocol.batch import BatchHeader, payload_of, stored_bytes
from coordinator_protocol.cuts import Committed
from coordinator_protocol.errors import Refused
from coordinator_protocol.marker import MarkerPayload, Outcome, control_batch, decode_marker_payload
from coordinator_protocol.snapshots import SnapshotFilter
from coordinator_protocol.wire import Buffer
from coordinator_runtime.store import Family, StoreReads
from partition_log.aborted import aborted_between
from partition_log.batches import LogDamaged, batches
from partition_log.reading import SEEK_COST_BATCHES, AbortedIndex, ReadBudget, bound_of
from partition_log.state import NO_OFFSET, Isolation, LogTotals, PartitionHead
from partition_log.stretches import stretches


class ShownPart(NamedTuple):
    """A part of a range in which records are visible. Between two parts there are none."""

    first_offset: int
    end_offset: int
    records: int
    """Number of visible records. It is an upper bound where the range begins or ends inside a batch with holes."""
    size_bytes: int
    """Approximate size of these records in the store (bytes)."""


class Measured(NamedTuple):
    """Steps of a range up to `next_offset`, exclusive."""

    steps: tuple[ShownPart, ...] = ()
    next_offset: int = 0
    """End of the readable part of the range, or less if the budget was spent."""


NOTHING_MEASURED: Final = Measured()


class Commits(NamedTuple):
    """Transactions whose commit marker is in a range, up to `next_offset`, exclusive."""

    transactions: tuple[Committed, ...] = ()
    next_offset: int = 0
    """End of the durable part of the range, or less if the budget was spent."""


NO_COMMITS: Final = Commits()


class MeasuredRange(NamedTuple):
    """A range to measure."""

    start_offset: int
    end_offset: int
    isolation: Isolation
    step_bytes: int
    """Size at which a step ends (bytes). It ends with the index entry that reaches this size; where entries are not
    taken whole, with the batch."""
    shown: SnapshotFilter | None = None
    """Snapshot filter for the range; None to measure the log as it is now."""


def measure(store: StoreReads, ordinal: int, head: PartitionHead, asked: MeasuredRange, budget: ReadBudget) -> Measured:
    """Measure under the view, from the start or the log start to the end or the bound of the isolation level.

    Raises LogDamaged, StoreDamaged, StoreUnreadable."""
    bound = bound_of(head, asked.isolation) if asked.shown is None else head.log_end_offset
    at, end = max(asked.start_offset, head.log_start_offset), min(asked.end_offset, bound)
    if at >= end:
        return Measured((), max(end, asked.start_offset))
    reading = _Measurement(store, ordinal, head, asked.isolation is Isolation.READ_COMMITTED, asked.shown, budget)
    steps = _Steps(asked.step_bytes)
    for part_end, within in _parts(store, ordinal, at, end):
        if budget.is_spent:
            break
        if within is not None and not reading.is_mixed(at, part_end):
            steps.add(ShownPart(at, part_end, within.record_count, within.size_bytes))
            at = part_end
            continue
        for found in reading.visible(at, part_end):
            steps.add(found)
        at = reading.next_offset
        if at < part_end:
            break
    return Measured(steps.taken(), at)


def committed_in(
    store: StoreReads, ordinal: int, head: PartitionHead, start_offset: int, end_offset: int, budget: ReadBudget
) -> Commits:
    """Return the transactions with records in the partition that were committed in the durable part of a range.

    Raises LogDamaged, StoreDamaged, StoreUnreadable."""
    at, end = max(start_offset, head.log_start_offset), min(end_offset, head.log_end_offset)
    if at >= end:
        return Commits((), max(end, start_offset))
    budget.batches -= SEEK_COST_BATCHES
    found = []
    for header, stored in batches(store, ordinal, at, head.log_end_offset, headers_only=True):
        if budget.is_spent or header.base_offset >= end:
            break
        at = min(header.last_offset + 1, end)
        budget.batches -= 1
        budget.read_bytes -= len(stored)
        if header.is_control:
            marker = _marker(header, stored)
            if marker.outcome is Outcome.COMMIT and marker.first_offset != NO_OFFSET:
                place = header.producer_id, marker.first_offset, header.base_offset
                found.append(Committed(*place, marker.coordinator_shard, marker.csn))
    return Commits(tuple(found), at if budget.is_spent else end)


def _marker(header: BatchHeader, stored: Buffer) -> MarkerPayload:
    try:
        return decode_marker_payload(payload_of(control_batch(header, stored)))
    except Refused as damage:
        raise LogDamaged(Family.LOG, header.base_offset, header.last_offset + 1, damage.message) from damage


def _parts(store: StoreReads, ordinal: int, start: int, end: int) -> Iterator[tuple[int, LogTotals | None]]:
    """Yield the ends of the index entries in a range, and the range's own end. With each comes the totals of that part,
    or None if it is not known to be a whole entry."""
    before: LogTotals | None = None
    for stretch in stretches(store, ordinal, start):
        if stretch.last_offset >= end:
            break
        totals = stretch.totals
        yield stretch.last_offset + 1, None if before is None else _between(before, totals)
        before, start = totals, stretch.last_offset + 1
    if start < end:
        yield end, None


def _between(before: LogTotals, after: LogTotals) -> LogTotals:
    return LogTotals(
        size_bytes=after.size_bytes - before.size_bytes, record_count=after.record_count - before.record_count
    )


@dataclass(slots=True)
class _Measurement:
    """Reads the headers of batches, as far as the budget allows."""

    store: StoreReads
    ordinal: int
    head: PartitionHead
    hides_aborted: bool
    shown: SnapshotFilter | None
    budget: ReadBudget
    aborted: AbortedIndex = field(init=False)
    next_offset: int = 0

    def __post_init__(self) -> None:
        self.aborted = AbortedIndex(self.store, self.ordinal, self.head, self.budget)

    def is_mixed(self, start: int, end: int) -> bool:
        """True if some of the range may be hidden. Costs part of the budget."""
        self.budget.batches -= 1
        if self.shown is not None and self.shown.hides_before(end):
            return True
        if not self.hides_aborted or start > self.head.last_abort_offset:
            return False
        self.budget.batches -= SEEK_COST_BATCHES
        return any(aborted_between(self.store, self.ordinal, start, end, self.head.last_abort_offset))

    def visible(self, start: int, end: int) -> Iterator[ShownPart]:
        """Yield the batches with visible records, up to `next_offset`."""
        self.budget.batches -= SEEK_COST_BATCHES
        self.next_offset = start
        for header, encoded in batches(self.store, self.ordinal, start, self.head.log_end_offset, headers_only=True):
            if header.base_offset >= end:
                break
            self.next_offset = min(header.last_offset + 1, end)
            self.budget.batches -= 1
            self.budget.read_bytes -= len(encoded)
            is_hidden = self.hides_aborted and header.is_transactional and self.aborted.hides(header)
            if self.shown is not None:
                transactional = header.is_transactional
                is_hidden |= self.shown.hides(header.producer_id, header.base_offset, is_transactional=transactional)
            if not (header.is_control or is_hidden):
                first = max(header.base_offset, start)
                records = header.records_between(start, end)
                size = stored_bytes(encoded) * records // max(1, header.record_count)
                yield ShownPart(first, self.next_offset, records, size)
            if self.budget.is_spent:
                return
        self.next_offset = end


@dataclass(slots=True)
class _Steps:
    """Joins visible parts into steps of at least `step_bytes`."""

    step_bytes: int
    done: list[ShownPart] = field(default_factory=list)
    last: ShownPart | None = None

    def add(self, found: ShownPart) -> None:
        if not found.records:
            return
        last = self.last
        if last is not None:
            records, size = last.records + found.records, last.size_bytes + found.size_bytes
            found = ShownPart(last.first_offset, found.end_offset, records, size)
        self.last = found
        if found.size_bytes >= self.step_bytes:
            self.done.append(found)
            self.last = None

    def taken(self) -> tuple[ShownPart, ...]:
        return tuple(self.done if self.last is None else [*self.done, self.last])
