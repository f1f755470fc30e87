"""No case is forgotten, and none is counted twice."""

from __future__ import annotations

from tests.conformance.suite import State
from tests.conformance.transactions.cases import SUITE


def test_every_row_of_the_list_has_exactly_one_answer() -> None:
    numbers = [row.number for row in SUITE.rows]
    assert len(set(numbers)) == len(numbers), "the list names a number twice"
    assert [case.number for case in SUITE.load()] == sorted(numbers)


def test_every_row_belongs_to_a_section() -> None:
    assert {row.section for row in SUITE.rows} == set(SUITE.sections)


def test_what_does_not_simply_hold_says_why() -> None:
    for case in SUITE.load():
        assert case.state is State.HOLDS or len(case.reason) > 20, f"case {case.number} needs a reason"
        assert bool(case.test) is (case.state in (State.HOLDS, State.DIFFERS))


def test_what_has_a_test_has_one_that_runs() -> None:
    for case in SUITE.load():
        module, _, name = case.test.partition("::")
        assert not case.test or (module.startswith("test_") and name.startswith("test_")), case
