"""No case is forgotten, and none is counted twice."""

from __future__ import annotations

import pytest

from tests.conformance.groups.cases import SUITE as GROUPS
from tests.conformance.suite import State, Suite
from tests.conformance.transactions.cases import SUITE as TRANSACTIONS

both_suites = pytest.mark.parametrize("suite", [TRANSACTIONS, GROUPS], ids=["transactions", "groups"])


@both_suites
def test_every_row_has_exactly_one_answer(suite: Suite) -> None:
    assert [case.number for case in suite.load()] == sorted(row.number for row in suite.rows)


@both_suites
def test_the_list_names_no_number_twice(suite: Suite) -> None:
    numbers = [row.number for row in suite.rows]
    assert len(set(numbers)) == len(numbers)


@both_suites
def test_every_row_belongs_to_a_section(suite: Suite) -> None:
    assert {row.section for row in suite.rows} == set(suite.sections)


@both_suites
def test_what_does_not_simply_hold_says_why(suite: Suite) -> None:
    for case in suite.load():
        assert case.state is State.HOLDS or len(case.reason) > 20, f"case {case.number} needs a reason"
        assert bool(case.test) is (case.state in (State.HOLDS, State.DIFFERS))


@both_suites
def test_what_has_a_test_has_one_that_runs(suite: Suite) -> None:
    for case in suite.load():
        module, _, name = case.test.partition("::")
        assert not case.test or (module.startswith("test_") and name.startswith("test_")), case
