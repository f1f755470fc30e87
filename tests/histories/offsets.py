"""Rules for the offsets in answers: I7, I9, I11, I12 and I13."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from tests.histories.facts import Facts, Violation, readings
from tests.histories.form import AnyOperation, Committed, Poll, Reading, Send, Snapshot
from tests.histories.reads import records_of
from tests.histories.real_time import Seen, with_highest_before


def sightings(facts: Facts) -> Iterator[tuple[int, str, int, str]]:
    """Yield line, partition, offset and value of each answer that has all of them."""
    for line, send in facts.history.of(Send):
        if send.is_ok:
            for value, offset in zip(send.values, send.offsets, strict=False):
                if offset >= 0:
                    yield line, send.k, offset, value
    for line, reading in readings(facts.history):
        for k, offset, value in records_of(reading):
            yield line, k, offset, value


def duplicates(facts: Facts) -> Iterator[Violation]:
    """I7: each value has one place, and a consumer gets each place once."""
    places: dict[str, tuple[str, int]] = {}
    told = set()
    for line, k, offset, value in sightings(facts):
        first = places.setdefault(value, (k, offset))
        if first != (k, offset) and (value, k, offset) not in told:
            told.add((value, k, offset))
            yield Violation(7, line, f"{value} is at {first[0]}/{first[1]} and at {k}/{offset}")
    delivered = set()
    for line, reading in readings(facts.history):
        if isinstance(reading, Poll):
            reader: tuple[str | int, ...] = (reading.process, reading.session)
        else:
            reader = (line,)
        for k, offset, value in records_of(reading):
            if (*reader, k, offset) in delivered:
                yield Violation(7, line, f"{value} at {k}/{offset} is delivered to {reading.process} again")
            delivered.add((*reader, k, offset))


def inconsistent_offsets(facts: Facts) -> Iterator[Violation]:
    """I9: each place has one value."""
    values: dict[tuple[str, int], str] = {}
    told = set()
    for line, k, offset, value in sightings(facts):
        first = values.setdefault((k, offset), value)
        if first != value and (k, offset, value) not in told:
            told.add((k, offset, value))
            yield Violation(9, line, f"{k}/{offset} has {first} and {value}")


def unsteady_sends(facts: Facts) -> Iterator[Violation]:
    """I11: the sends of a producer to a partition get ascending offsets, and so do those of a transaction."""
    highest: dict[tuple[str, int, str], int] = {}
    of_transaction: dict[tuple[str, str], list[Seen]] = defaultdict(list)
    descending = set()
    for line, send in facts.history.of(Send):
        if not send.is_ok or not send.offsets or min(send.offsets) < 0:
            continue
        key = (send.process, send.session, send.k)
        if send.offsets[0] < highest.get(key, -1) or list(send.offsets) != sorted(send.offsets):
            descending.add(line)
            yield Violation(11, line, f"{send.process} sends to {send.k}/{send.offsets[0]} after {highest.get(key)}")
        highest[key] = max(highest.get(key, -1), *send.offsets)
        if send.txn is not None:
            of_transaction[send.txn, send.k].append(Seen(line, send.invoked, send.end, send.offsets[0]))
    for (txn, k), sends in of_transaction.items():
        for each, before in with_highest_before(sends):
            if before is not None and each.number < before.number and each.line not in descending:
                yield Violation(11, each.line, f"{txn} sends to {k}/{each.number} after {before.number}")


def falling_marks(facts: Facts) -> Iterator[Violation]:
    """I12: log start, last stable offset and high watermark never fall, and are in this order."""
    seen: dict[tuple[str, str], list[Seen]] = defaultdict(list)
    for line, reading in readings(facts.history):
        for k, marks in reading.marks.items():
            told = [(name, getattr(marks, name)) for name in ("log_start", "lso", "hw")]
            present = [(name, number) for name, number in told if number is not None]
            for (lower, low), (higher, high) in pairwise(present):
                if low > high:
                    yield Violation(12, line, f"{k}: {lower} {low} is above {higher} {high}")
            for name, number in present:
                seen[k, name].append(Seen(line, reading.invoked, reading.end, number))
    for (k, name), answers in seen.items():
        for each, before in with_highest_before(answers):
            if before is not None and each.number < before.number:
                text = f"{k}: {name} fell from {before.number} (line {before.line}) to {each.number}"
                yield Violation(12, each.line, text)


def sentinels(facts: Facts) -> Iterator[Violation]:
    """I13: no answer has a negative offset, or zero after a higher one."""
    for (subject, name), answers in offsets_told(facts).items():
        for each, before in with_highest_before(answers):
            if each.number < 0:
                yield Violation(13, each.line, f"{subject}: {name} is {each.number}")
            elif each.number == 0 and before is not None and before.number > 0:
                yield Violation(13, each.line, f"{subject}: {name} is 0 after {before.number} (line {before.line})")


def offsets_told(facts: Facts) -> dict[tuple[str, str], list[Seen]]:
    """Return offsets that are 0 in the beginning only, by partition (or group and partition) and name."""
    told: dict[tuple[str, str], list[Seen]] = defaultdict(list)
    for line, each in facts.history.operations:
        if each.is_ok:
            for subject, name, number in numbers_of(each):
                told[subject, name].append(Seen(line, each.invoked, each.end, number))
    return told


def numbers_of(operation: AnyOperation) -> Iterator[tuple[str, str, int]]:
    """Yield subject, name and number of the offsets in an answer."""
    if isinstance(operation, Send):
        for offset in operation.offsets:
            yield operation.k, "offset", offset
    elif isinstance(operation, Committed):
        for k, position in operation.positions.items():
            yield f"{operation.group}: {k}", "position", position
    elif isinstance(operation, Reading):
        for k, marks in operation.marks.items():
            for name, number in (("lso", marks.lso), ("hw", marks.hw)):
                if number is not None:
                    yield k, name, number
        if isinstance(operation, Snapshot):
            for k, (_, end) in operation.spans.items():
                yield k, "end", end
