"""Charts of curves: one SVG for each axis, with a panel for each figure, logarithmic in both directions.

A dashed line of slope 1 through the first point is the reference; for a rate it has the slope -1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from xml.sax.saxutils import escape

from bench.curves.curve import Curve
from bench.curves.figures import FIGURES, Figure
from bench.curves.verdicts import Place, amount

_COLUMNS: Final = 2
_WIDTH: Final = 300
_HEIGHT: Final = 170
_LEFT: Final = 60
_TOP: Final = 64
_GAP: Final = 66


def drawing(curve: Curve) -> str:
    """Return the SVG of a curve that has points."""
    names = curve.figure_names()
    panels: list[str] = []
    for at, name in enumerate(names):
        row, column = divmod(at, _COLUMNS)
        left, top = _LEFT + column * (_WIDTH + _GAP), _TOP + row * (_HEIGHT + _GAP)
        panels += _Panel(FIGURES[name], curve.values(name), left, top).drawn()
    rows = -(-len(names) // _COLUMNS)
    width, height = _COLUMNS * (_WIDTH + _GAP) + 16, _TOP + rows * (_HEIGHT + _GAP) - 20
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif"'
    title = _text(_LEFT, 22, f"{curve.title} ({curve.unit})", "start", size=14)
    white = '<rect width="100%" height="100%" fill="white"/>'
    return "\n".join([f'{head} font-size="12">', white, title, *panels, "</svg>", ""])


@dataclass(frozen=True, slots=True)
class _Range:
    """Whole decades, or parts of them, around values."""

    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> _Range:
        low, high = 10 ** math.floor(math.log10(min(values))), 10 ** math.ceil(math.log10(max(values)))
        return cls(low, high if high > low else low * 10)

    def share(self, value: float) -> float:
        """Return the place of a value: 0 at the low end, 1 at the high one."""
        return math.log(value / self.low) / math.log(self.high / self.low)

    def marks(self) -> Sequence[float]:
        """Return the powers of ten in it."""
        first, last = round(math.log10(self.low)), round(math.log10(self.high))
        return [10.0**power for power in range(first, last + 1)]


class _Panel:
    """One figure against the work."""

    def __init__(self, figure: Figure, values: Sequence[Place], left: float, top: float) -> None:
        self._figure, self._values, self._left, self._top = figure, values, left, top
        self._works = _Range.of([work for work, _ in values])
        self._costs = _Range.of([value for _, value in values])

    def drawn(self) -> list[str]:
        bottom = self._top + _HEIGHT
        points = " ".join(f"{self._x(work):.1f},{self._y(value):.1f}" for work, value in self._values)
        marks = [_text(self._x(mark), bottom + 16, amount(mark), "middle") for mark in self._works.marks()]
        marks += [_text(self._left - 6, self._y(mark) + 4, amount(mark), "end") for mark in self._costs.marks()]
        lines = "".join(f"M{self._left},{self._y(mark):.1f} h{_WIDTH} " for mark in self._costs.marks())
        dots = [
            f'<circle cx="{self._x(work):.1f}" cy="{self._y(value):.1f}" r="3" fill="#1f77b4"/>'
            for work, value in self._values
        ]
        return [
            _text(self._left, self._top - 10, f"{self._figure.title} ({self._figure.unit})", "start"),
            f'<path d="{lines}" stroke="#e0e0e0"/>',
            f'<path d="M{self._left},{self._top} V{bottom} H{self._left + _WIDTH}" fill="none" stroke="black"/>',
            self._reference(),
            f'<polyline fill="none" stroke="#1f77b4" stroke-width="2" points="{points}"/>',
            *dots,
            *marks,
        ]

    def _reference(self) -> str:
        """Return the line of linear growth from the first point on, as far as it lies in the panel."""
        (work, value), (last, _) = self._values[0], self._values[-1]
        room = value / self._costs.low if self._figure.is_rate else self._costs.high / value
        times = max(1.0, min(last / work, room))
        end = value / times if self._figure.is_rate else value * times
        path = f"M{self._x(work):.1f},{self._y(value):.1f} L{self._x(work * times):.1f},{self._y(end):.1f}"
        return f'<path class="linear" d="{path}" stroke="#7f7f7f" stroke-dasharray="5 4"/>'

    def _x(self, work: float) -> float:
        return self._left + self._works.share(work) * _WIDTH

    def _y(self, value: float) -> float:
        return self._top + (1 - self._costs.share(value)) * _HEIGHT


def _text(left: float, top: float, text: str, anchor: str, size: int = 12) -> str:
    return f'<text x="{left:.1f}" y="{top:.1f}" text-anchor="{anchor}" font-size="{size}">{escape(text)}</text>'
