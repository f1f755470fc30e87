"""All invariants of spec log-and-runtime 6.2 that a history of clients can show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeAlias

from msgspec import Struct

from tests.histories import offsets, producers, reads, views
from tests.histories.facts import Facts, Violation, of_history, readings
from tests.histories.form import Committed, Fault, History, Init, Poll, Send, SendOffsets, Snapshot

Rule: TypeAlias = Callable[[Facts], Iterator[Violation]]

RULES: Final[Mapping[int, tuple[str, Rule]]] = {
    1: ("aborted read", reads.aborted_reads),
    2: ("precommitted read", reads.precommitted_reads),
    3: ("intermediate read", views.intermediate_reads),
    4: ("circular information flow", reads.circular_flows),
    5: ("lost write", reads.lost_writes),
    6: ("unseen", views.unseen),
    7: ("duplicate", offsets.duplicates),
    8: ("torn transaction", views.torn_transactions),
    9: ("inconsistent offsets", offsets.inconsistent_offsets),
    10: ("non-monotonic poll", reads.unsteady_polls),
    11: ("non-monotonic send", offsets.unsteady_sends),
    12: ("falling watermark", offsets.falling_marks),
    13: ("sentinel offset", offsets.sentinels),
    14: ("fate of an unknown commit", views.fates_of_unknown),
    15: ("wrong transaction ended", views.wrong_ends),
    16: ("fencing", producers.fenced_operations),
    17: ("offsets with a transaction", producers.wrong_positions),
    18: ("bounded completion", producers.hanging_transactions),
    19: ("unsteady snapshot", views.unsteady_snapshots),
    20: ("durability", views.durability),
}


class Report(Struct, frozen=True):
    """Findings of the checker, and the extent of its work."""

    operations: int
    violations: tuple[Violation, ...]
    without_material: frozenset[int]
    """Invariants about which the history says nothing."""

    @property
    def counts(self) -> Mapping[int, int]:
        return Counter(each.invariant for each in self.violations)


def check(history: History) -> Report:
    """Return all violations, ordered by invariant and line."""
    facts = of_history(history)
    found = sorted(violation for _, rule in RULES.values() for violation in rule(facts))
    return Report(len(history.operations), tuple(found), without_material(facts))


def without_material(facts: Facts) -> frozenset[int]:
    """Return the invariants that nothing in the history can break."""
    kinds = {type(each) for _, each in facts.history.operations}
    answers = [each for _, each in readings(facts.history)]
    has = {
        (1, 2): bool(answers),
        (4,): any(isinstance(each, Poll) and each.txn is not None for each in answers),
        (5, 10): Poll in kinds or bool(facts.views),
        (3, 8, 14, 15): bool(facts.views),
        (6,): any(view.is_final for view in facts.views),
        (7, 9): bool(answers) or Send in kinds,
        (11, 13): any(isinstance(each, Send) and each.offsets for _, each in facts.history.operations),
        (12, 18): any(each.marks for each in answers),
        (16,): Init in kinds,
        (17,): bool({Committed, SendOffsets} & kinds),
        (19,): Snapshot in kinds,
        (20,): Fault in kinds and bool(facts.views),
    }
    return frozenset(number for numbers, present in has.items() if not present for number in numbers)
