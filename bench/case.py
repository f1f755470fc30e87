"""The parts of a case: rows, and in each row the contenders that do the same thing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from bench.arena import Arena
from bench.results import Run, Side, Unit

FLUSHED: Final = "flushed before every answer"
"""The durability of our server, which has no other."""


@dataclass(frozen=True, slots=True)
class Contender:
    """One way to do what the row measures."""

    side: Side
    name: str
    durability: str
    measure: Callable[[], Run]
    """Measure once. Raises: CannotRun, LoadFailed."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of comparison."""

    label: str
    unit: Unit
    contenders: Sequence[Contender]


@dataclass(frozen=True, slots=True)
class Case:
    """A name on the command line. Making its rows starts nothing; only measuring does."""

    name: str
    summary: str
    rows: Callable[[Arena], Sequence[Row]]
