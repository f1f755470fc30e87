"""Two checkers of storms, written apart: the check of `kill_storm`, and that of `tests/histories`.

They read the same recorded history of a real storm (`recorded_storm.jsonl`: three kills, under producers of librdkafka
and over stubs), agree that it is right, and both find what is planted into it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeAlias

import pytest
from msgspec.structs import replace

from tests.histories.checker import check
from tests.histories.form import AnyOperation, Committed, FinalRead, History, Poll, Record, read
from tests.kafka_front import kill_storm
from tests.kafka_front.kill_storm import Told
from tests.kafka_front.storm_history import POSITION, told_in, values_in

RECORDED: Final = Path(__file__).parent / "recorded_storm.jsonl"
READER: Final = "Kafka consumer"
Rows: TypeAlias = dict[str, tuple[Record, ...]]
Change: TypeAlias = Callable[[Rows], Rows]


@pytest.fixture(scope="module")
def recorded() -> History:
    return read(RECORDED)


def check_by_first(history: History) -> None:
    """Raise AssertionError for what the check of the storm finds."""
    told, values = told_in(history), values_in(history, READER)
    kill_storm.check(told, values, READER)
    for _, each in history.of(Committed):
        of_group = [one for one in told if one.group == each.group]
        kill_storm.check_offset(of_group, each.positions[POSITION], {*values})


def test_both_agree_that_the_recorded_storm_is_right(recorded: History) -> None:
    check_by_first(recorded)
    report = check(recorded)
    assert report.violations == ()
    # There are no reads within transactions, no watermarks in answers, and no snapshots.
    assert report.without_material == {4, 12, 18, 19}
    assert {each.fate for each in told_in(recorded)} == {"committed", "aborted", "unknown"}


def a_lost_record(history: History) -> History:
    (value,) = oldest(history, "committed", least=1, most=1).values
    return with_reads(history, lambda rows: without(rows, value))


def a_doubled_record(history: History) -> History:
    value = oldest(history, "committed").values[0]
    return with_reads(history, lambda rows: with_row(rows, value), FinalRead)


def an_aborted_record_read(history: History) -> History:
    value = oldest(history, "aborted").values[0]
    return with_reads(history, lambda rows: with_row(rows, value), FinalRead)


def a_torn_transaction(history: History) -> History:
    value = oldest(history, "committed", least=2).values[-1]
    return with_reads(history, lambda rows: without(rows, value))


def a_torn_transaction_of_unknown_end(history: History) -> History:
    first, *others = oldest(history, "unknown", least=2).values
    return with_reads(history, lambda rows: with_row(without(rows, first, *others), first), FinalRead)


def a_record_of_nobody(history: History) -> History:
    return with_reads(history, lambda rows: with_row(rows, "stranger"), FinalRead)


def a_lost_position(history: History) -> History:
    return changed(history, Committed, lambda each: replace(each, positions={POSITION: each.positions[POSITION] - 1}))


PLANTED: Final[dict[Callable[[History], History], set[int]]] = {
    a_lost_record: {5, 6, 20},
    a_doubled_record: {7},
    an_aborted_record_read: {1},
    a_torn_transaction: {6, 8, 20},
    a_torn_transaction_of_unknown_end: {8, 14},
    a_record_of_nobody: {1},
    a_lost_position: {17},
}
"""Anomalies, and the invariants of spec log-and-runtime 6.2 that they break."""


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_both_find_what_is_planted(plant: Callable[[History], History], recorded: History) -> None:
    planted = plant(recorded)
    with pytest.raises(AssertionError):
        check_by_first(planted)
    assert {*check(planted).counts} >= PLANTED[plant]


def oldest(history: History, fate: str, *, least: int = 1, most: int = 99) -> Told:
    """Return the first transaction with this fate and so many values."""
    return next(each for each in told_in(history) if each.fate == fate and least <= len(each.values) <= most)


def with_reads(history: History, change: Change, *kinds: type[Poll | FinalRead]) -> History:
    """Change the rows of reads of some kinds, by default of all."""
    for kind in kinds or (Poll, FinalRead):
        history = changed(history, kind, lambda each: replace(each, records=change(each.records)))
    return history


def changed(history: History, kind: type, change: Callable[..., AnyOperation]) -> History:
    return History(tuple((line, change(each) if isinstance(each, kind) else each) for line, each in history.operations))


def without(rows: Rows, *values: str) -> Rows:
    return {k: tuple(row for row in each if row[1] not in values) for k, each in rows.items()}


def with_row(rows: Rows, value: str) -> Rows:
    """Return rows with one more, behind the others of its partition."""
    return {**rows, POSITION: (*rows[POSITION], (rows[POSITION][-1][0] + 1, value))}
