"""Results of suites: one outcome for each case, compared with what `expected.toml` expects."""

from __future__ import annotations

import enum
import fnmatch
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

EXPECTED: Final = Path(__file__).parent / "expected.toml"


class Outcome(enum.StrEnum):
    """Verdict of a suite on one of its cases."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


class Case(msgspec.Struct, frozen=True):
    """One test of a suite, by its own name."""

    name: str
    outcome: Outcome
    detail: str = ""
    """First line of the failure, or the reason of the suite for a skip."""


class Reason(msgspec.Struct, frozen=True):
    """Cases of a suite that may fail, or that do not apply."""

    suite: str
    cases: tuple[str, ...]
    """Names of cases; `*` matches any text."""
    reason: str

    def matches(self, suite: str, case: str) -> bool:
        return suite == self.suite and any(fnmatch.fnmatchcase(case, pattern) for pattern in self.cases)


class Expectations(msgspec.Struct, frozen=True):
    """Content of `expected.toml`."""

    failures: tuple[Reason, ...] = ()
    not_applicable: tuple[Reason, ...] = ()

    def reason_for(self, suite: str, case: str) -> str | None:
        """Return the reason why this case may fail; None = it may not."""
        return next((each.reason for each in self.failures if each.matches(suite, case)), None)


class SuiteResult(msgspec.Struct, frozen=True):
    """All cases of one run of a suite."""

    suite: str
    client: str
    version: str
    content: str
    cases: tuple[Case, ...]
    duration_s: int = 0

    def having(self, outcome: Outcome) -> list[Case]:
        return [each for each in self.cases if each.outcome is outcome]


class Run(msgspec.Struct, frozen=True):
    """A run of the command: the content of its JSON file."""

    date: str
    commit: str
    suites: tuple[SuiteResult, ...]


def read_expectations() -> Expectations:
    """Return the expectations. Raises: msgspec.ValidationError."""
    return msgspec.convert(tomllib.loads(EXPECTED.read_text()), Expectations)


def unexpected_failures(result: SuiteResult, expectations: Expectations) -> list[Case]:
    """Return the failures without a reason. A suite without any case is one, too: it did not run."""
    if not result.cases:
        return [Case(result.suite, Outcome.FAILED, "no case ran")]
    return [each for each in result.having(Outcome.FAILED) if expectations.reason_for(result.suite, each.name) is None]


def merged(older: Run | None, newer: Run) -> Run:
    """Return the newer run with the suites that only the older one has, in the older order."""
    if older is None:
        return newer
    found = {each.suite: each for each in newer.suites}
    kept = [found.pop(each.suite, each) for each in older.suites]
    return msgspec.structs.replace(newer, suites=(*kept, *found.values()))


def table(results: Sequence[SuiteResult]) -> str:
    """Return the results as a Markdown table, one row for each suite."""
    rows = [
        "| suite | client | version | what ran | passed | failed | skipped |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for each in results:
        numbers = " | ".join(str(len(each.having(outcome))) for outcome in Outcome)
        rows.append(f"| {each.suite} | {each.client} | {each.version} | {each.content} | {numbers} |")
    return "\n".join(rows)
