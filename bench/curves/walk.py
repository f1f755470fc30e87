"""The way along an axis: grow to a point, measure there, and go on."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, Protocol

from bench.curves.axes import Axis
from bench.curves.curve import Curve, Point
from bench.curves.growths.growth import NoRoom
from bench.curves.verdicts import amount
from bench.results import LoadFailed

INTERRUPTED: Final = "interrupted"
"""End of a curve by Ctrl-C."""


class Subject(Protocol):
    """A server that is grown and measured."""

    def grow(self, have: float, to: float) -> float:
        """Go from one amount of work to the next, and return the time of it (s). Raises: NoRoom, LoadFailed."""
        ...

    def measure(self, at: float) -> Point:
        """Return the figures at this amount. Raises: LoadFailed."""
        ...


def walk(axis: Axis, points: Sequence[float], subject: Subject, say: Callable[[str], None]) -> Curve:
    """Return the curve through these points. What was measured is kept, whatever ends the curve early."""
    measured: list[Point] = []
    ended, is_failure, growing_s, have = "", False, 0.0, 0.0
    began_s, expected_s = time.monotonic(), axis.expected_s(points)
    say(f"{axis.name}: {len(points)} points up to {amount(points[-1])} {axis.unit}, about {expected_s:.0f} s")
    try:
        for at in points:
            growing_s += subject.grow(have, at)
            found, have = subject.measure(at), at
            measured.append(replace(found, figures={**found.figures, "growing_s": growing_s}))
            so_far_s = time.monotonic() - began_s
            say(f"{axis.name}: {so_far_s:4.0f} of about {expected_s:.0f} s; {_words(measured[-1], axis.unit)}")
    except KeyboardInterrupt:
        ended = INTERRUPTED
    except NoRoom as full:
        ended = str(full)
    except LoadFailed as failure:
        ended, is_failure = str(failure), True
    if ended:
        say(f"{axis.name}: ends early: {ended}")
    return Curve(axis.name, axis.title, axis.unit, axis.subject, measured, ended, is_failure)


def _words(point: Point, unit: str) -> str:
    figures = ", ".join(f"{name} {value:.4g}" for name, value in point.figures.items())
    return f"{amount(point.at)} {unit}: {figures}"
