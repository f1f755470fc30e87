"""Assignment of rows to producers, and the sizes of their transactions, decided before anything starts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

TOPIC: Final = "flights"
PARTITIONS: Final = 5
"""Number of partitions. None of them stays empty with it, although 16 carriers are few keys."""
LOADERS: Final = 4
ROWS_MIN: Final = 1_000
TRANSACTION_ROWS_MAX: Final = 2_000
TRANSACTIONS_MIN: Final = 80
"""Smallest number of transactions. A small subset gets smaller transactions, so that there are enough for every event
of the demo."""
ABORT_EVERY: Final = 10
"""Each loader sends every tenth of its transactions twice, and aborts the first attempt on purpose."""
TIMEOUT_MS: Final = 60_000
SHORT_TIMEOUT_MS: Final = 2_500
"""Transaction timeout of the producer that is killed (ms): the server does not wait longer for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """Rows `first` to `end` - 1 for one producer, and the way to load them."""

    endpoint: str
    transactional_id: str
    first: int
    end: int
    transaction_rows: int
    timeout_ms: int = TIMEOUT_MS
    aborts_on_purpose: bool = False
    pauses_midway: bool = False
    """True to report and wait in the middle of the middle transaction; then the server is killed."""

    def transactions(self) -> list[range]:
        """Return the rows of each transaction."""
        return [
            range(first, min(first + self.transaction_rows, self.end))
            for first in range(self.first, self.end, self.transaction_rows)
        ]


@dataclass(frozen=True, slots=True)
class Plan:
    """All assignments, which together have every row once."""

    zombie: Assignment
    """One transaction, first sent by a producer that stops in the middle of it."""
    killed: Assignment
    """One transaction, first sent by a producer that is killed in the middle of it."""
    loaders: tuple[Assignment, ...]
    """Assignments with the other rows."""


def plan(rows: int, endpoint: str) -> Plan:
    """Divide rows 1 to `rows`, of which there must be at least `ROWS_MIN`."""
    assert rows >= ROWS_MIN, "checked where the number comes in"
    size = min(TRANSACTION_ROWS_MAX, rows // TRANSACTIONS_MIN)
    bounds = [2 * size + 1 + index * (rows - 2 * size) // LOADERS for index in range(LOADERS + 1)]

    def assignment(name: str, first: int, end: int) -> Assignment:
        transactional_id = f"{TOPIC}-{name}"
        return Assignment(
            endpoint=endpoint, transactional_id=transactional_id, first=first, end=end, transaction_rows=size
        )

    return Plan(
        zombie=assignment("stopped", 1, size + 1),
        killed=replace(assignment("killed", size + 1, 2 * size + 1), timeout_ms=SHORT_TIMEOUT_MS),
        loaders=tuple(
            replace(
                assignment(str(index), bounds[index], bounds[index + 1]),
                aborts_on_purpose=True,
                pauses_midway=index == 0,
            )
            for index in range(LOADERS)
        ),
    )
