"""The tables of docs/kafka.md, from the newest recorded runs: `results.json`, and the reasons in `expected.toml`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from tests.kafka_clients.results import (
    Expectations,
    Outcome,
    Record,
    read_expectations,
    read_records,
    table,
)

RESULTS: Final = Path(__file__).parent / "results.json"
BEGIN: Final = "<!-- results of make kafka-clients -->"
END: Final = "<!-- end of results -->"


def with_client_tables(page: str) -> str:
    """Return the page with the tables between its marks. Raises ValueError without the marks."""
    before, _begin, rest = page.partition(BEGIN)
    _old, end, after = rest.partition(END)
    if not end:
        raise ValueError(f"the page has no {BEGIN} and {END}")
    return f"{before}{BEGIN}\n\n{client_tables()}\n\n{end}{after}"


def client_tables() -> str:
    """Return the tables: suites, classes of Kafka's tests, failures with their reasons, and what does not apply."""
    records, expectations = read_records(RESULTS).suites, read_expectations()
    parts = [table(records), *_by_class(records), _failures(records, expectations), _not_applicable(expectations)]
    return "\n\n".join(parts)


def _by_class(records: Sequence[Record]) -> Iterator[str]:
    for each in records:
        if each.classes:
            rows = [f"| {tally.name} | {tally.passed} | {tally.failed} | {tally.skipped} |" for tally in each.classes]
            head = f"| {each.client}: class | passed | failed | skipped |\n| --- | --- | --- | --- |"
            yield "\n".join([head, *rows])


def _failures(records: Sequence[Record], expectations: Expectations) -> str:
    """Return the reasons with the number of cases that failed for each. Reasons without a case are left out."""
    rows = ["| client | failed | why |", "| --- | --- | --- |"]
    for each in records:
        failed = [case.name for case in each.not_passed if case.outcome is Outcome.FAILED]
        reasons: dict[str, int] = {}
        for name in failed:
            reason = expectations.reason_for(each.suite, name) or "not explained yet"
            reasons[reason] = reasons.get(reason, 0) + 1
        rows += [f"| {each.client} | {count} | {reason} |" for reason, count in reasons.items()]
    return "\n".join(rows)


def _not_applicable(expectations: Expectations) -> str:
    rows = ["| not run | why |", "| --- | --- |"]
    rows += [f"| {', '.join(each.cases)} | {each.reason} |" for each in expectations.not_applicable]
    return "\n".join(rows)
