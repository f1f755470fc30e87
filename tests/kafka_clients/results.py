"""Results of suites: one outcome for each case, compared with what `expected.toml` expects."""

from __future__ import annotations

import enum
import fnmatch
import re
import tomllib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

EXPECTED: Final = Path(__file__).parent / "expected.toml"


_OF_JAVA: Final = re.compile(r"(?P<class>[\w.]+)\.[\w ]+(?:\(|\[|$)")


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
    """Name of a suite; `*` matches any text, here and in cases."""
    cases: tuple[str, ...]
    reason: str

    def matches(self, suite: str, case: str) -> bool:
        return fnmatch.fnmatchcase(suite, self.suite) and any(
            fnmatch.fnmatchcase(case, pattern) for pattern in self.cases
        )


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


class Tally(msgspec.Struct, frozen=True):
    """Outcomes of the cases of one class of tests."""

    name: str
    passed: int
    failed: int
    skipped: int


class Record(msgspec.Struct, frozen=True):
    """What is kept of a run of a suite: its numbers, and the cases that did not pass."""

    suite: str
    client: str
    version: str
    content: str
    total: Tally
    classes: tuple[Tally, ...]
    """Numbers by class, of suites that have classes."""
    not_passed: tuple[Case, ...]
    duration_s: int
    date: str
    commit: str


class Records(msgspec.Struct, frozen=True):
    """Content of a file of results: the newest record of each suite."""

    suites: tuple[Record, ...] = ()


def read_expectations() -> Expectations:
    """Return the expectations. Raises: msgspec.ValidationError."""
    return msgspec.convert(tomllib.loads(EXPECTED.read_text()), Expectations)


def unexpected_failures(result: SuiteResult, expectations: Expectations) -> list[Case]:
    """Return the failures without a reason. A suite without any case is one, too: it did not run."""
    if not result.cases:
        return [Case(result.suite, Outcome.FAILED, "no case ran")]
    return [each for each in result.having(Outcome.FAILED) if expectations.reason_for(result.suite, each.name) is None]


def record(result: SuiteResult, *, date: str, commit: str) -> Record:
    """Return what is kept of a run."""
    classes: dict[str, list[Case]] = {}
    for case in result.cases:
        classes.setdefault(_class(case.name), []).append(case)
    return Record(
        suite=result.suite,
        client=result.client,
        version=result.version,
        content=result.content,
        total=_tally("", result.cases),
        classes=tuple(_tally(name, cases) for name, cases in sorted(classes.items()) if name),
        not_passed=tuple(each for each in result.cases if each.outcome is not Outcome.PASSED),
        duration_s=result.duration_s,
        date=date,
        commit=commit,
    )


def _class(case: str) -> str:
    """Return the class in the name of a test in Java; empty for names of other kinds."""
    found = _OF_JAVA.match(case)
    return found["class"] if found is not None else ""


def _tally(name: str, cases: Sequence[Case]) -> Tally:
    counts = Counter(each.outcome for each in cases)
    return Tally(name, counts[Outcome.PASSED], counts[Outcome.FAILED], counts[Outcome.SKIPPED])


def merged(older: Records, newer: Sequence[Record]) -> Records:
    """Return the newer records, and the older ones of other suites, in the older order."""
    found = {each.suite: each for each in newer}
    kept = [found.pop(each.suite, each) for each in older.suites]
    return Records((*kept, *found.values()))


def read_records(path: Path) -> Records:
    """Return the content of a file of results; empty if there is none. Raises: msgspec.ValidationError."""
    return msgspec.json.decode(path.read_bytes(), type=Records) if path.exists() else Records()


def write_records(path: Path, records: Records) -> None:
    """Replace a file of results."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode(records), indent=1) + b"\n")


def table(records: Sequence[Record]) -> str:
    """Return the numbers as a Markdown table, one row for each suite."""
    rows = ["| client | version | what ran | passed | failed | skipped |", "| --- | --- | --- | --- | --- | --- |"]
    for each in records:
        numbers = f"{each.total.passed} | {each.total.failed} | {each.total.skipped}"
        rows.append(f"| {each.client} | {each.version} | {each.content} | {numbers} |")
    return "\n".join(rows)
