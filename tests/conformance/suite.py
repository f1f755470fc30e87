"""A list of cases from outside, and where each of them is answered in our suite.

Every case of the list is in exactly one of four states. *Holds* and *differs by decision* have a test that runs; *not
drivable* and *open* have a reason. `docs/reference/conformance.md` is written from this, so its numbers are right.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

TestT = TypeVar("TestT", bound=Callable[..., Any])


class State(StrEnum):
    """Verdict on a case."""

    HOLDS = "holds"
    """The expected answer is ours; for a case inside Kafka, what it protects is protected."""
    DIFFERS = "differs by decision"
    """We answer otherwise, on purpose, and the test shows our answer."""
    NOT_DRIVABLE = "not drivable"
    """There is nothing here that the case could happen to."""
    OPEN = "open"
    """A part that it needs is not built yet."""


@dataclass(frozen=True, slots=True)
class Row:
    """One case as its list tells it."""

    number: int
    section: str
    source: str
    given: str
    when: str
    expected: str


@dataclass(frozen=True, slots=True)
class Case:
    """Our verdict on a row."""

    number: int
    state: State
    reason: str
    """Empty where the case simply holds."""
    test: str
    """`module::function`; empty where there is none."""


class Suite:
    """The cases of one list: its rows beside the package, its tests in the package."""

    def __init__(self, package: str, table: Path, sections: dict[str, str]) -> None:
        self.package = package
        self.sections = sections
        """Titles by letter, in order."""
        self.rows = _read(table)
        self.cases: dict[int, Case] = {}

    def case(self, number: int, *, differs: str = "") -> Callable[[TestT], TestT]:
        """Marks the test of a case; `differs` says by which decision we answer otherwise."""

        def mark(test: TestT) -> TestT:
            name = f"{test.__module__.rpartition('.')[2]}::{test.__name__}"
            self._note(Case(number, State.DIFFERS if differs else State.HOLDS, differs, name))
            return test

        return mark

    def not_drivable(self, number: int, why: str) -> None:
        """Nothing here can be in the situation of the case."""
        self._note(Case(number, State.NOT_DRIVABLE, why, ""))

    def still_open(self, number: int, why: str) -> None:
        """Note that a part which the case needs does not exist yet."""
        self._note(Case(number, State.OPEN, why, ""))

    def load(self) -> Sequence[Case]:
        """Every case, by number, once all modules of the package are imported."""
        package = importlib.import_module(self.package)
        for module in pkgutil.iter_modules(package.__path__):
            importlib.import_module(f"{self.package}.{module.name}")
        return [self.cases[number] for number in sorted(self.cases)]

    def _note(self, case: Case) -> None:
        known = self.cases.setdefault(case.number, case)
        assert known == case, f"case {case.number} is answered twice: {known.test or known.reason!r}, {case.test!r}"


def _read(table: Path) -> list[Row]:
    _head, *lines = table.read_text().splitlines()
    rows = []
    for line in lines:
        number, *texts = line.split("\t")
        rows.append(Row(int(number), *texts))
    return rows
