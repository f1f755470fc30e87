"""Writes docs/reference/conformance.md: what the suites say about the cases, counted and row by row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from tests.conformance.groups.cases import SUITE as GROUPS
from tests.conformance.suite import Case, Row, State, Suite
from tests.conformance.transactions.cases import SUITE as TRANSACTIONS

_HEAD: Final = """\
# Conformance

Every row is one acceptance case. Most come from Apache Kafka's own tests, restated; the rest are ours, for places where
Kafka is silent or wrong. A case is in one of four states:

- **holds**: a test of ours shows it;
- **differs by decision**: we answer otherwise on purpose; the test shows our answer, the row says why;
- **not drivable**: nothing here could be in that situation; the row says why;
- **open**: what it needs is not built yet.

The tests are found by the number: `tests/conformance/transactions/` and `tests/conformance/groups/`, `@case(13)`; a
number that is missing is not a case. `cases.tsv` beside them names the test of Kafka that each comes from.
"""


_TRANSACTIONS: Final = """\
## Transactions

TV1 and TV2 are clients without and with an epoch bump per transaction.

Expected answers are Kafka's error codes, 0 is success; E is the stored epoch, L the one before it. Where a case looks
at a decided and unfinished transaction, the server runs with `two_phase = "split"` and the client asks for an answer at
once (`refuse_concurrent`). Tests that need the last epoch have a server whose epochs end at 4.
"""

_GROUPS: Final = """\
## Groups

Unless a case says otherwise: the initial rebalance delay
is 3,000, the session of a classic member 5,000 and its rebalance timeout 10,000, the session of a consumer 45,000 and
its heartbeat interval 5,000; targets are computed at once; there are topics foo (6 partitions), bar (3) and zar (1).
All times are milliseconds, and T+n is n after the step before. "Two-step" is a JoinGroup without an id that is answered
MEMBER_ID_REQUIRED, and another one with that id; "one-step" is a client from before. A parked call is still open.
"""


def conformance_page() -> str:
    """The page, without the notice that it is generated."""
    return f"{_HEAD}\n{_TRANSACTIONS}\n{_suite(TRANSACTIONS)}\n{_GROUPS}\n{_suite(GROUPS)}"


def _suite(suite: Suite) -> str:
    cases = {case.number: case for case in suite.load()}
    parts = [_counts(suite, cases)]
    for letter, title in suite.sections.items():
        rows = [row for row in suite.rows if row.section == letter]
        parts.append(f"### {letter}. {title}\n\n" + "\n".join(_table(rows, cases)) + "\n")
    return "\n".join(parts)


def _counts(suite: Suite, cases: dict[int, Case]) -> str:
    lines = [_line(["", *State, "all"]), _line(["---"] * (len(State) + 2))]
    for letter, title in suite.sections.items():
        numbers = [row.number for row in suite.rows if row.section == letter]
        lines.append(_count_line(f"{letter}. {title}", [cases[number].state for number in numbers]))
    lines.append(_count_line("**all**", [case.state for case in cases.values()]))
    return "\n".join(lines) + "\n"


def _count_line(title: str, states: Sequence[State]) -> str:
    counts = Counter(states)
    return _line([title, *(str(counts[state]) for state in State), str(len(states))])


def _table(rows: Sequence[Row], cases: dict[int, Case]) -> Iterator[str]:
    yield _line(["#", "case", "expected", "state"])
    yield _line(["---"] * 4)
    for row in rows:
        case = cases[row.number]
        told = "; ".join(part for part in (row.given, row.when) if part)
        state = str(case.state) + (f": {case.reason}" if case.reason else "")
        yield _line([str(row.number), told, row.expected, state])


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
