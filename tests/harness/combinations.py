"""Combinations of choices for the servers of tests, in which any two choices meet: pairwise.

A server may use the fast path or not, end transactions in one batch or in two phases, run on either transport, and on
the lowest or the newest libraries that we promise to work with. All sixteen combinations would be too many to run. In
`COMBINATIONS` each value of each choice meets each value of every other one in at least one row, which is where nearly
all bugs show that no single choice has.

Tests choose by the fixtures `every_combination` and `combination` (tests/conftest.py). What a test itself says of its
server wins over the row.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from itertools import combinations, product
from pathlib import Path
from types import ModuleType
from typing import Any, Final
from zlib import crc32

import pytest
from _pytest.mark.structures import ParameterSet

from coordinator_server.grpc_front.transports import TransportName
from tests.harness.transports import VARIABLE as TRANSPORT_VARIABLE
from txn_coordinator.config import TwoPhase

LANE_VARIABLE: Final = "TXN_LANE"
TWO_PHASE_VARIABLE: Final = "TXN_TWO_PHASE"
CHOICES: Final = ("lane", "two_phase", "transport", "libraries")
_ROOT: Final = Path(__file__).resolve().parent.parent.parent


class Libraries(StrEnum):
    """The versions that are installed."""

    LOWEST = "lowest"
    NEWEST = "newest"


@dataclass(frozen=True, slots=True)
class Combination:
    """One value of each choice."""

    lane: bool
    two_phase: TwoPhase
    transport: TransportName
    libraries: Libraries

    def __str__(self) -> str:
        """Return the parts that a test can choose; the libraries are those of the whole run."""
        return f"{'lane' if self.lane else 'no lane'}-{self.two_phase}-{self.transport}"

    @property
    def environment(self) -> Mapping[str, str]:
        """Variables that give the combination to servers."""
        return {
            LANE_VARIABLE: str(self.lane).lower(),
            TWO_PHASE_VARIABLE: self.two_phase,
            TRANSPORT_VARIABLE: self.transport if is_installed(self.transport) else TransportName.GRPC,
        }


_FUSED, _SPLIT = TwoPhase.FUSED, TwoPhase.SPLIT
_GRPC, _NATIVE = TransportName.GRPC, TransportName.NATIVE
_LOWEST, _NEWEST = Libraries.LOWEST, Libraries.NEWEST

COMBINATIONS: Final = (
    Combination(True, _FUSED, _NATIVE, _NEWEST),
    Combination(False, _SPLIT, _GRPC, _NEWEST),
    Combination(True, _SPLIT, _GRPC, _LOWEST),
    Combination(False, _FUSED, _GRPC, _LOWEST),
    Combination(False, _SPLIT, _NATIVE, _LOWEST),
)
"""Five are as few as there can be. Without the compiled transport its rows run on the other one, and the rest still
meets."""


def rows_here() -> Sequence[Combination]:
    """The rows of the libraries that are installed."""
    return [row for row in COMBINATIONS if row.libraries is installed_libraries()]


def rows_of(test: pytest.Function, seed: int) -> Sequence[Combination | ParameterSet]:
    """The rows of a test that runs in every one: long but for one that the seed chooses, with another one for the next
    test; all alike if the test kills servers."""
    rows = rows_here()
    if test.get_closest_marker("kill"):
        return rows
    turn = (seed + crc32(test.name.encode())) % len(rows)
    marks = pytest.mark.slow, pytest.mark.long
    return [row if place == turn else pytest.param(row, marks=marks) for place, row in enumerate(rows)]


def row_in_turn(module: ModuleType, test: str) -> Combination:
    """The row of a test that runs once, whatever the libraries: the first test of a module has the first row, and so
    on."""
    place = [name for name in vars(module) if name.startswith("test_")].index(test)
    return COMBINATIONS[place % len(COMBINATIONS)]


def row_of_case(number: int, two_phase: str) -> Combination:
    """The row of the nth case of a table whose cases say themselves how transactions end."""
    rows = [row for row in COMBINATIONS if row.two_phase == two_phase]
    return rows[number % len(rows)]


def chosen(row: Combination, monkeypatch: pytest.MonkeyPatch) -> Combination:
    """Let the servers of a test hear of its row."""
    for name, value in row.environment.items():
        monkeypatch.setenv(name, value)
    return row


def missing_pairs(rows: Iterable[Any], names: Iterable[str]) -> set[tuple[object, ...]]:
    """Values of two of these choices that no row has together."""
    found, values = list(rows), _values()
    return {
        (one, a, other, b)
        for one, other in combinations(names, 2)
        for a, b in product(values[one], values[other])
        if not any((getattr(row, one), getattr(row, other)) == (a, b) for row in found)
    }


def wanted_lane() -> bool:
    """Return whether the servers of this test have a fast path, unless it says so itself."""
    return os.environ.get(LANE_VARIABLE, "true") == "true"


def wanted_two_phase() -> TwoPhase:
    """Return the way in which the servers of this test end transactions, unless it says so itself."""
    return TwoPhase(os.environ.get(TWO_PHASE_VARIABLE, TwoPhase.FUSED))


def wanted_environment() -> Mapping[str, str]:
    """Return the variables of this test's row, for processes that it starts; none without a row."""
    return {name: os.environ[name] for name in (LANE_VARIABLE, TWO_PHASE_VARIABLE) if name in os.environ}


def is_installed(transport: TransportName) -> bool:
    return transport is not TransportName.NATIVE or importlib.util.find_spec("txn_native_transport") is not None


@cache
def installed_libraries() -> Libraries:
    """Return the one of the two locks that this environment was made from."""
    lock = (_ROOT / "requirements" / "lowest.txt").read_text()
    pinned = dict(re.findall(r"^([\w-]+)==(\S+)", lock, re.MULTILINE))
    same = all(importlib.metadata.version(name) == pinned[name] for name in ("grpcio", "protobuf"))
    return Libraries.LOWEST if same else Libraries.NEWEST


def _values() -> Mapping[str, Sequence[object]]:
    return {
        "lane": (True, False),
        "two_phase": tuple(TwoPhase),
        "transport": (_GRPC, _NATIVE),
        "libraries": tuple(Libraries),
    }
