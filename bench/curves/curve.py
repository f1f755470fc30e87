"""Curves: what was measured along an axis, and the JSON of all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from bench.curves.figures import FIGURES
from bench.curves.verdicts import Place, Verdict, judge


@dataclass(frozen=True, slots=True)
class Point:
    """Figures at one amount of work, by the names of `FIGURES`."""

    at: float
    figures: Mapping[str, float]
    other_cores: float = 0.0
    """Processors that other programs kept busy meanwhile."""


@dataclass(frozen=True, slots=True)
class Curve:
    """All points of an axis. Its words are kept with it, so that a page can be made of the JSON alone."""

    axis: str
    title: str
    unit: str
    subject: str
    """Server that the points were measured at."""
    points: list[Point] = field(default_factory=list)
    ended: str = ""
    """Reason for the end of a curve before its last point; empty if it has all."""
    is_failure: bool = False

    def figure_names(self) -> Sequence[str]:
        """Return the measured figures, in the order of `FIGURES`."""
        return [name for name in FIGURES if any(name in point.figures for point in self.points)]

    def values(self, figure: str) -> Sequence[Place]:
        """Return the amounts of work with the value of a figure."""
        return [(point.at, point.figures[figure]) for point in self.points if point.figures.get(figure, 0.0) > 0]

    def verdict(self, figure: str) -> Verdict:
        """Return the verdict on the cost behind a figure."""
        return judge([(at, FIGURES[figure].cost(value)) for at, value in self.values(figure)])

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> Self:
        """Return the curve of its JSON."""
        return cls(**{**found, "points": [Point(**each) for each in found["points"]]})


@dataclass(frozen=True, slots=True)
class Curves:
    """All curves of a run, with the machine, the versions and the command."""

    machine: Mapping[str, str]
    versions: Mapping[str, str]
    command: str
    began: str
    is_quick: bool
    curves: Sequence[Curve]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> Self:
        """Return the curves of their JSON."""
        return cls(**{**found, "curves": [Curve.of(each) for each in found["curves"]]})
