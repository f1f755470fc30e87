"""Rules for the coordinator, its producers and groups: I16, I17 and I18."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence

from msgspec import Struct

from tests.histories.facts import Facts, Fate, Transaction, Violation, readings
from tests.histories.form import Committed, End, FinalRead, Init, Poll, Producer, Send, SendOffsets
from tests.histories.reads import records_of


class Fence(Struct, frozen=True):
    """Answers to InitProducerId with one producer id: when it was first asked for and last given, and the epochs."""

    producer_id: int
    first_invoked: float
    last_completed: float
    completed: Sequence[float]
    highest_epochs: Sequence[int]
    """Highest epoch up to each completion."""


def fenced_operations(facts: Facts) -> Iterator[Violation]:
    """I16: nothing succeeds for a producer that was asked after a newer one of its transactional id was there."""
    fences = fences_of(facts)
    for line, each in facts.history.operations:
        if isinstance(each, Send | SendOffsets | End) and each.is_ok and each.producer is not None:
            newer = fence_before(fences.get(each.producer.transactional_id, ()), each.producer, each.invoked)
            if newer is not None:
                producer = each.producer
                text = f"{producer.transactional_id} succeeds as {producer.producer_id}/{producer.epoch} after {newer}"
                yield Violation(16, line, text)


def fences_of(facts: Facts) -> dict[str, list[Fence]]:
    """Return the fences of each transactional id."""
    given: dict[tuple[str, int], list[tuple[float, float, int]]] = defaultdict(list)
    for _, init in facts.history.of(Init):
        if init.is_ok and init.producer is not None:
            key = (init.producer.transactional_id, init.producer.producer_id)
            given[key].append((init.end, init.invoked, init.producer.epoch))
    fences: dict[str, list[Fence]] = defaultdict(list)
    for (transactional_id, producer_id), answers in given.items():
        answers.sort()
        highest: list[int] = []
        for _, _, epoch in answers:
            highest.append(max(epoch, highest[-1] if highest else epoch))
        first = min(invoked for _, invoked, _ in answers)
        ends = [end for end, _, _ in answers]
        fences[transactional_id].append(Fence(producer_id, first, ends[-1], ends, highest))
    return fences


def fence_before(fences: Sequence[Fence], producer: Producer, moment: float) -> str | None:
    """Return the newer producer that a client knew before a moment."""
    own = next((fence for fence in fences if fence.producer_id == producer.producer_id), None)
    for fence in fences:
        known = bisect_left(fence.completed, moment)
        if known == 0:
            continue
        epoch = fence.highest_epochs[known - 1]
        is_successor = own is not None and fence is not own and own.last_completed < fence.first_invoked
        if (fence is own and epoch > producer.epoch) or is_successor:
            return f"{fence.producer_id}/{epoch}"
    return None


class Position(Struct, frozen=True):
    """Position of a group that a transaction carries."""

    txn: Transaction
    position: int


def wrong_positions(facts: Facts) -> Iterator[Violation]:
    """I17: positions of a group are those of its committed transactions, which processed each input once."""
    carried: dict[tuple[str, str], list[Position]] = defaultdict(list)
    groups: dict[str, str] = {}
    for _, each in facts.history.of(SendOffsets):
        if each.is_ok or each.end == math.inf:
            groups.setdefault(each.txn, each.group)
            for k, position in each.positions.items():
                carried[each.group, k].append(Position(facts.transactions[each.txn], position))
    yield from strange_positions(facts, carried)
    yield from processed_twice(facts, groups)


def strange_positions(facts: Facts, carried: dict[tuple[str, str], list[Position]]) -> Iterator[Violation]:
    """Fetched positions that no transaction explains."""
    ordered = {key: sorted(each, key=lambda one: one.txn.acknowledged) for key, each in carried.items()}
    acknowledged = {key: [one.txn.acknowledged for one in each] for key, each in ordered.items()}
    highest = {key: running_highest(each) for key, each in ordered.items()}
    possible: dict[tuple[str, str, int], float] = {}
    for key, positions in carried.items():
        for one in positions:
            if one.txn.fate in (Fate.COMMITTED, Fate.UNKNOWN):
                earlier = possible.get((*key, one.position), math.inf)
                possible[*key, one.position] = min(one.txn.asked, earlier)
    for line, each in facts.history.of(Committed):
        if not each.is_ok:
            continue
        for key in carried:
            group, k = key
            if group != each.group:
                continue
            position = each.positions.get(k)
            known = bisect_left(acknowledged[key], each.invoked)
            least = highest[key][known - 1] if known else None
            if least is not None and (position is None or position < least):
                yield Violation(17, line, f"{group} is at {k}/{position}, and {least} was committed before")
            elif position is not None and possible.get((*key, position), math.inf) > each.end:
                yield Violation(17, line, f"{group} is at {k}/{position}, which no transaction committed")


def running_highest(positions: Sequence[Position]) -> list[int]:
    highest: list[int] = []
    for each in positions:
        highest.append(max(each.position, highest[-1] if highest else each.position))
    return highest


def processed_twice(facts: Facts, groups: dict[str, str]) -> Iterator[Violation]:
    """Inputs in two committed transactions of a group, and inputs in none that lie between those of others."""
    processed: dict[tuple[str, str], dict[int, str]] = defaultdict(dict)
    for line, poll in facts.history.of(Poll):
        txn = facts.transactions.get(poll.txn or "")
        if not poll.is_ok or txn is None or txn.name not in groups or txn.fate is not Fate.COMMITTED:
            continue
        for k, offset, value in records_of(poll):
            first = processed[groups[txn.name], k].setdefault(offset, txn.name)
            if first != txn.name:
                yield Violation(17, line, f"{value} at {k}/{offset} is processed by {first} and by {txn.name}")
    if any(txn.fate is Fate.UNKNOWN for txn in facts.transactions.values() if txn.name in groups):
        return
    for (group, k), offsets in processed.items():
        order = facts.visible.get(k, ())
        between = order[bisect_left(order, min(offsets)) : bisect_right(order, max(offsets))]
        for offset in between:
            if offset not in offsets:
                yield Violation(17, 0, f"{group} processed {k} before and after {offset}, and not {offset}")


def hanging_transactions(facts: Facts) -> Iterator[Violation]:
    """I18: each transaction is decided in its time, and once all is quiet the last stable offset is the end."""
    limits = {
        each.producer.transactional_id: each.decided_within
        for _, each in facts.history.of(Init)
        if isinstance(each, Init) and each.producer is not None and each.decided_within is not None
    }
    first: dict[tuple[str, int], Transaction] = {}
    for txn in facts.transactions.values():
        for write in txn.writes:
            if write.offset is not None and txn.owner in limits:
                first.setdefault((write.k, write.offset), txn)
    for line, reading in readings(facts.history):
        for k, marks in reading.marks.items():
            if marks.lso is None or marks.hw is None or marks.lso >= marks.hw:
                continue
            held = first.get((k, marks.lso))
            if isinstance(reading, FinalRead):
                yield Violation(18, line, f"{k}: the last stable offset stays at {marks.lso} below {marks.hw}")
            elif held is not None and held.began + limits[held.owner] < reading.invoked:
                yield Violation(18, line, f"{held.name} is open in {k} after its time")
