"""Parts of a case: rows, and in each row the contenders that do the same work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from bench.arena import Arena
from bench.results import Run, Side, Unit

FLUSHED: Final = "flushed before every answer"
"""Durability of our server, which has no other."""


@dataclass(frozen=True, slots=True)
class Contender:
    """One way to do the work of a row."""

    side: Side
    name: str
    durability: str
    measure: Callable[[], Run]
    """Measures once. Raises: CannotRun, LoadFailed."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of comparison."""

    label: str
    unit: Unit
    contenders: Sequence[Contender]


@dataclass(frozen=True, slots=True)
class Case:
    """A named set of rows. Making its rows starts nothing; only measuring does."""

    name: str
    summary: str
    rows: Callable[[Arena], Sequence[Row]]
