"""Every flight is loaded by exactly one assignment, whatever the number of rows."""

from __future__ import annotations

import pytest

from examples.demo_parts.flights import ROWS
from examples.demo_parts.plan import LOADERS, ROWS_MIN, TRANSACTION_ROWS_MAX, plan


@pytest.mark.parametrize("rows", [ROWS_MIN, ROWS_MIN + 1, 12_345, ROWS])
def test_every_row_is_planned_once_in_transactions_of_bounded_size(rows: int) -> None:
    made = plan(rows, "127.0.0.1:1")
    assignments = [made.zombie, made.killed, *made.loaders]
    transactions = [transaction for assignment in assignments for transaction in assignment.transactions()]
    assert sorted(row for transaction in transactions for row in transaction) == list(range(1, rows + 1))
    assert max(map(len, transactions)) <= TRANSACTION_ROWS_MAX


@pytest.mark.parametrize("rows", [ROWS_MIN, ROWS])
def test_each_event_of_the_demo_has_its_place(rows: int) -> None:
    made = plan(rows, "127.0.0.1:1")
    assert len(made.zombie.transactions()) == len(made.killed.transactions()) == 1
    assert [loader.pauses_midway for loader in made.loaders] == [True] + [False] * (LOADERS - 1)
    assert all(len(loader.transactions()) > 10 for loader in made.loaders), "so each aborts one on purpose"
    assert len({made.zombie.transactional_id, made.killed.transactional_id}) == 2
    assert len({loader.transactional_id for loader in made.loaders}) == LOADERS
