"""Rules for snapshots and the final read: I3, I6, I8, I14, I15, I19 and I20."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping

from tests.histories.facts import Facts, Fate, Transaction, View, Violation, Write
from tests.histories.form import Delta, End, Fault, Outcome, Record, Snapshot, Verdict
from tests.histories.real_time import Seen, with_highest_before


def touched(facts: Facts, view: View) -> Iterator[Transaction]:
    """Yield the transactions of which a view shows something."""
    names = {facts.writes[value].txn: None for value in view.values if value in facts.writes}
    return (facts.transactions[name] for name in names)


def torn_transactions(facts: Facts) -> Iterator[Violation]:
    """I8: a view shows all values of a transaction or none."""
    for view in facts.views:
        for txn in touched(facts, view):
            lacking = [write for write in txn.writes if view.lacks(write)]
            if lacking:
                text = f"{view.name} shows part of {txn.name}: {lacking[0].value} in {lacking[0].k} is missing"
                yield Violation(8, view.line, text)


def intermediate_reads(facts: Facts) -> Iterator[Violation]:
    """I3: a view that shows a write of a transaction to a partition shows its last one there."""
    for view in facts.views:
        for txn in touched(facts, view):
            last = {write.k: write for write in txn.definite}
            for write in {write.k: write for write in txn.writes if write.value in view.values}.values():
                newest = last.get(write.k)
                if newest is not None and view.lacks(newest):
                    text = f"{view.name} shows {write.value} of {txn.name}, and not its last, {newest.value}"
                    yield Violation(3, view.line, f"{text}, in {write.k}")


def unseen(facts: Facts) -> Iterator[Violation]:
    """I6: the final read has every committed value."""
    for view in facts.views:
        if view.is_final:
            for write in facts.writes.values():
                if facts.transactions[write.txn].fate is Fate.COMMITTED and view.lacks(write):
                    yield Violation(6, write.line, f"{write.value} of {write.txn} is missing in {view.name}")


def fates_of_unknown(facts: Facts) -> Iterator[Violation]:
    """I14: a commit of unknown result has one result, and no transaction has two."""
    unknown = [txn for txn in facts.transactions.values() if txn.fate is Fate.UNKNOWN]
    views = sorted(facts.views, key=lambda view: view.invoked)
    for txn in unknown:
        read_at = min((facts.first_read.get(write.value, math.inf) for write in txn.writes), default=math.inf)
        for view in views:
            lacking = next((write for write in txn.writes if view.lacks(write)), None)
            if lacking is None:
                continue
            if any(write.value in view.values for write in txn.writes):
                yield Violation(14, view.line, f"{txn.name} is in part in {view.name}, without {lacking.value}")
            elif read_at < view.invoked:
                yield Violation(14, view.line, f"{txn.name} was visible, and is not in {view.name}: {lacking.value}")
    yield from two_results(facts)


def two_results(facts: Facts) -> Iterator[Violation]:
    verdicts: dict[str, set[Verdict]] = defaultdict(set)
    for line, end in facts.history.of(End):
        if end.is_ok:
            verdicts[end.txn].add(end.verdict)
            if len(verdicts[end.txn]) > 1:
                yield Violation(14, line, f"{end.txn} was committed and aborted")


def wrong_ends(facts: Facts) -> Iterator[Violation]:
    """I15: no commit of a transaction makes another one of its producer visible in its place."""
    lost: dict[str, Transaction] = {}
    for txn in facts.transactions.values():
        if txn.fate is Fate.COMMITTED and is_lost(facts, txn):
            lost.setdefault(txn.owner, txn)
    for txn in facts.transactions.values():
        instead = lost.get(txn.owner)
        if txn.fate in (Fate.ABORTED, Fate.UNASKED) and instead is not None:
            shown = next((write for write in txn.writes if write.value in facts.first_read), None)
            if shown is not None:
                text = f"{shown.value} of {txn.name} is visible, and {instead.name} of {txn.owner} is lost"
                yield Violation(15, shown.line, text)


def is_lost(facts: Facts, txn: Transaction) -> bool:
    """True for a transaction that belongs in some view, and of which no view has anything."""
    if any(write.value in facts.first_read for write in txn.writes):
        return False
    return any(view.lacks(write) for view in facts.views if txn.acknowledged < view.invoked for write in txn.definite)


def durability(facts: Facts) -> Iterator[Violation]:
    """I20: what was acknowledged, or read, before a fault is in every view after it."""
    faults = sorted((fault.invoked, line) for line, fault in facts.history.of(Fault))
    moments = [moment for moment, _ in faults]
    sure = {txn.name: sure_at(facts, txn) for txn in facts.transactions.values()}
    for view in facts.views:
        before = bisect_left(moments, view.invoked) - 1
        if before < 0:
            continue
        for txn in facts.transactions.values():
            if sure[txn.name] < moments[before]:
                for write in lacking(view, txn):
                    text = f"{write.value} of {txn.name} is not in {view.name}, after the fault"
                    yield Violation(20, write.line, f"{text} of line {faults[before][1]}")


def lacking(view: View, txn: Transaction) -> Iterator[Write]:
    return (write for write in txn.writes if view.lacks(write))


def sure_at(facts: Facts, txn: Transaction) -> float:
    """Return the first moment at which a client knew that a transaction is committed."""
    if txn.fate in (Fate.ABORTED, Fate.UNASKED):
        return math.inf
    read_at = min((facts.first_read.get(write.value, math.inf) for write in txn.writes), default=math.inf)
    return min(txn.acknowledged, read_at)


def unsteady_snapshots(facts: Facts) -> Iterator[Violation]:
    """I19: numbers and ends of snapshots never fall, a snapshot never changes, and deltas lead from one to the next."""
    rows: dict[str, dict[str, tuple[Record, ...]]] = defaultdict(dict)
    starts: dict[str, dict[str, int]] = defaultdict(dict)
    first: dict[str, tuple[float, float]] = {}
    numbers: dict[str, dict[str, Seen]] = defaultdict(dict)
    for line, each in facts.history.of(Snapshot):
        if not each.is_ok:
            continue
        times = first.setdefault(each.snapshot, (each.invoked, each.end))
        for k, records in each.records.items():
            shown = tuple(sorted(records))
            if rows[each.snapshot].setdefault(k, shown) != shown:
                yield Violation(19, line, f"snapshot {each.snapshot} shows other rows of {k} than it did")
        for k, (start, end) in each.spans.items():
            starts[each.snapshot][k] = start
            numbers[f"end of {k}"].setdefault(each.snapshot, Seen(line, *times, end))
        if each.csn is not None:
            numbers["csn"].setdefault(each.snapshot, Seen(line, *times, each.csn))
    for name, told in numbers.items():
        for seen, before in with_highest_before(told.values()):
            if before is not None and seen.number < before.number:
                yield Violation(19, seen.line, f"{name} fell from {before.number} to {seen.number}")
    yield from wrong_deltas(facts, rows, starts)


def wrong_deltas(
    facts: Facts, rows: Mapping[str, Mapping[str, tuple[Record, ...]]], starts: Mapping[str, Mapping[str, int]]
) -> Iterator[Violation]:
    for line, delta in facts.history.of(Delta):
        if delta.type is not Outcome.OK or not {delta.since, delta.until} <= rows.keys():
            continue
        for k, until in rows[delta.until].items():
            start = starts[delta.until].get(k, 0)
            since = (record for record in rows[delta.since].get(k, ()) if record[0] >= start)
            if tuple(sorted((*since, *delta.records.get(k, ())))) != until:
                yield Violation(19, line, f"{k}: {delta.since} and the delta are not {delta.until}")
