"""Rules for the records of a read: I1, I2, I4, I5 and I10."""

from __future__ import annotations

import graphlib
import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from tests.histories.facts import Facts, Fate, Violation, readings
from tests.histories.form import Isolation, Outcome, Poll, Reading


def aborted_reads(facts: Facts) -> Iterator[Violation]:
    """I1: no read_committed reader gets a value that failed, was aborted, or was never sent."""
    for line, reading in readings(facts.history, committed_only=True):
        for k, offset, value in records_of(reading):
            write = facts.writes.get(value)
            if write is None:
                yield Violation(1, line, f"{value} at {k}/{offset} was never sent")
            elif write.outcome is Outcome.FAIL:
                yield Violation(1, line, f"{value} at {k}/{offset} is read, and its send (line {write.line}) failed")
            elif facts.transactions[write.txn].fate is Fate.ABORTED:
                yield Violation(1, line, f"{value} at {k}/{offset} is read, and {write.txn} did not commit")


def precommitted_reads(facts: Facts) -> Iterator[Violation]:
    """I2: no read_committed reader gets a value before its commit is requested, nor a transaction its own."""
    for line, reading in readings(facts.history, committed_only=True):
        reader = reading.txn if isinstance(reading, Poll) else None
        for k, offset, value in records_of(reading):
            write = facts.writes.get(value)
            if write is None:
                continue
            if write.txn == reader:
                yield Violation(2, line, f"{reader} reads its own {value} at {k}/{offset}")
            elif reading.end < facts.transactions[write.txn].asked and facts.is_legal(value) | is_unasked(facts, value):
                yield Violation(2, line, f"{value} at {k}/{offset} is read before {write.txn} was to commit")


def is_unasked(facts: Facts, value: str) -> bool:
    return facts.transactions[facts.writes[value].txn].fate is Fate.UNASKED


def circular_flows(facts: Facts) -> Iterator[Violation]:
    """I4: no transactions that read from each other in a circle."""
    edges: dict[str, set[str]] = defaultdict(set)
    lines: dict[str, int] = {}
    for line, poll in facts.history.of(Poll):
        if poll.is_ok and poll.txn is not None:
            lines.setdefault(poll.txn, line)
            for _, _, value in records_of(poll):
                write = facts.writes.get(value)
                if write is not None and write.txn != poll.txn:
                    edges[poll.txn].add(write.txn)
    try:
        graphlib.TopologicalSorter(edges).prepare()
    except graphlib.CycleError as found:
        circle = found.args[1]
        yield Violation(4, min(lines[name] for name in circle), f"{' <- '.join(circle)} read from each other")


class Step(Struct, frozen=True):
    """Passage of a consumer over part of a partition, from one record that it was given to the next."""

    line: int
    consumer: tuple[str, int]
    isolation: Isolation
    k: str
    after: int
    """Offset of the record before, or the one before the position."""
    offset: int
    """Offset of the record, or the position afterwards."""
    is_record: bool


def steps(facts: Facts) -> Iterator[Step]:
    """Yield how each consumer went over its partitions."""
    at: dict[tuple[str, int, str], int] = {}
    for line, poll in facts.history.of(Poll):
        if not poll.is_ok:
            continue
        consumer = (poll.process, poll.session)
        for k in {**poll.records, **poll.spans}:
            key = (*consumer, k)
            span = poll.spans.get(k)
            for offset, _ in poll.records.get(k, ()):
                after = at.get(key, offset - 1 if span is None else span[0] - 1)
                yield Step(line, consumer, poll.isolation, k, after, offset, is_record=True)
                at[key] = offset
            if span is not None:
                after = at.get(key, span[0] - 1)
                if span[1] - 1 > after:
                    yield Step(line, consumer, poll.isolation, k, after, span[1], is_record=False)
                    at[key] = span[1] - 1


def unsteady_polls(facts: Facts) -> Iterator[Violation]:
    """I10: a consumer gets the records of a partition in their order, each that is visible to it."""
    for step in steps(facts):
        place = f"{step.consumer[0]} at {step.k}/{step.offset}"
        if step.is_record and step.offset <= step.after:
            yield Violation(10, step.line, f"{place} after {step.after}")
            continue
        order = (facts.visible if step.isolation is Isolation.COMMITTED else facts.known).get(step.k, ())
        skipped = bisect_left(order, step.offset) - bisect_left(order, step.after + 1)
        if skipped > 0:
            first = order[bisect_left(order, step.after + 1)]
            yield Violation(10, step.line, f"{place} skipped {skipped} records from {first} on")


def lost_writes(facts: Facts) -> Iterator[Violation]:
    """I5: what was committed and passed by readers was read by one, and later snapshots and the final read have it."""
    passed = coverage(facts)
    finals = [view for view in facts.views if view.is_final]
    for write in facts.writes.values():
        txn = facts.transactions[write.txn]
        if txn.fate is not Fate.COMMITTED or not write.is_definite or write.value in facts.first_read:
            continue
        lacking = [view for view in facts.views if txn.acknowledged < view.invoked and view.lacks(write)]
        if any(view.lacks(write) for view in finals):
            yield Violation(5, write.line, f"{shown(write.k, write.offset)} {write.value} of {write.txn} is never read")
        elif lacking:
            yield Violation(5, write.line, f"{write.value} of {write.txn} is not in {lacking[0].name}, nor read ever")
        elif write.offset is not None and covers(passed.get(write.k, ()), write.offset):
            yield Violation(5, write.line, f"{shown(write.k, write.offset)} {write.value} was passed, and never read")


def shown(k: str, offset: int | None) -> str:
    return k if offset is None else f"{k}/{offset}"


def coverage(facts: Facts) -> Mapping[str, Sequence[tuple[int, int]]]:
    """Return the ranges of each partition that read_committed consumers went over, disjoint and ascending."""
    ranges: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for step in steps(facts):
        if step.isolation is Isolation.COMMITTED and step.offset > step.after:
            ranges[step.k].append((step.after + 1, step.offset + step.is_record))
    return {k: merged(each) for k, each in ranges.items()}


def merged(ranges: Iterable[tuple[int, int]]) -> Sequence[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def covers(ranges: Sequence[tuple[int, int]], offset: int) -> bool:
    place = bisect_left(ranges, (offset, math.inf)) - 1
    return place >= 0 and ranges[place][0] <= offset < ranges[place][1]


def records_of(reading: Reading) -> Iterator[tuple[str, int, str]]:
    """Yield partition, offset and value of each record."""
    for k, records in reading.records.items():
        for offset, value in records:
            yield k, offset, value
