"""Page of curves, and its charts, made of their JSON alone: docs/curves.md."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from bench.curves.axes import AXES
from bench.curves.curve import Curve, Curves
from bench.curves.drawing import drawing
from bench.curves.figures import FIGURES
from bench.curves.verdicts import CLEAR, LINEAR_MAX, amount
from bench.report import number

ROOT: Final = Path(__file__).resolve().parent.parent.parent
RESULTS: Final = "bench/history/curves.json"
"""Results that the page in docs is made of. There is no page as long as there are none."""
PAGE: Final = "docs/curves.md"
CHARTS: Final = "charts"
"""Folder of the charts, beside the page."""
_NOTICE: Final = f"<!-- Written by `make docs` from {RESULTS}. -->\n"
_NOISY_CORES: Final = 0.1
_HEAD: Final = f"""\
# Curves

Growth of costs with the amount of work. Each axis is one run of one server, which grows from point to point. At each
point 16 producers commit transactions of three records of 100 bytes, and the server's memory is read; then, where the
table says so, it is stopped and started, and killed and started again. Charts are logarithmic in both directions. The
dashed line is linear: the figure at the first point, times the work.

An exponent of 1 says that a cost grows as fast as the work. It is that of the cost above the first point, as soon as
that is {CLEAR:.0%} more than there. The cost behind a rate is the time of one operation. A cost is called worse than
linear from a point on if its exponent is above {LINEAR_MAX} both for the next step and for the whole way to the end.
"""


def files(root: Path = ROOT) -> Mapping[str, str]:
    """Return the content of the page and of its charts, by their names below the root; nothing without results."""
    if not (root / RESULTS).exists():
        return {}
    found = Curves.of(json.loads((root / RESULTS).read_text()))
    drawn = {f"docs/{CHARTS}/{name}": text for name, text in charts(found).items()}
    return {PAGE: _NOTICE + page(found), **drawn}


def chart_name(curve: Curve) -> str:
    """Return the file name of the chart of a curve."""
    return f"curve-{curve.axis}.svg"


def charts(found: Curves) -> Mapping[str, str]:
    """Return the SVGs by their names."""
    return {chart_name(curve): drawing(curve) for curve in found.curves if curve.points}


def page(found: Curves) -> str:
    """Return the page as Markdown."""
    settings = [f"- {name}: {value}" for part in (found.machine, found.versions) for name, value in part.items()]
    lines = [_HEAD, *settings, f"- `{found.command}`, {found.began}", ""]
    if found.is_quick:
        lines += ["**A quick run: it shows that everything works. Its figures are not for quoting.**", ""]
    lines += _summary(found.curves)
    for curve in found.curves:
        lines += _section(curve, has_chart=True)
    return "\n".join(lines).rstrip() + "\n"


def tables(found: Curves) -> Sequence[str]:
    """Return the summary and the tables, for a terminal."""
    return [*_summary(found.curves), *(line for curve in found.curves for line in _section(curve, has_chart=False))]


def _summary(curves: Sequence[Curve]) -> list[str]:
    """Return the verdicts on everything in one table."""
    rows = [
        f"| {curve.title} | {FIGURES[name].title} | {curve.verdict(name).words} |"
        for curve in curves
        for name in curve.figure_names()
        if curve.verdict(name).worse_from is not None
    ]
    if not rows:
        return ["No cost that was measured is worse than linear.", ""]
    return ["Worse than linear:", "", "| work | cost | |", "| --- | --- | --- |", *rows, ""]


def _section(curve: Curve, *, has_chart: bool) -> list[str]:
    lines = [f"## {curve.title}", ""]
    if has_chart and curve.points:
        lines += [f"![{curve.title}: cost against work]({CHARTS}/{chart_name(curve)})", ""]
    lines += [f"Measured at {curve.subject}.", ""]
    if curve.points:
        lines += [*_points(curve), "", *_verdicts(curve), ""]
    if curve.ended:
        lines += [f"Ended before its last point: {curve.ended}.", ""]
    if curve.axis in AXES and AXES[curve.axis].limit:
        lines += [AXES[curve.axis].limit, ""]
    if noisy := [amount(point.at) for point in curve.points if point.other_cores > _NOISY_CORES]:
        lines += [f"Others took more than {_NOISY_CORES} cores at {', '.join(noisy)} {curve.unit}.", ""]
    return lines


def _points(curve: Curve) -> list[str]:
    names = curve.figure_names()
    head = [curve.unit, *(f"{FIGURES[name].title}, {FIGURES[name].unit}" for name in names)]
    rows = [
        [amount(point.at), *(number(point.figures[name]) if name in point.figures else "" for name in names)]
        for point in curve.points
    ]
    return [_row(head), _row(["---"] * len(head)), *map(_row, rows)]


def _verdicts(curve: Curve) -> list[str]:
    lines = [_row(["cost", "exponent of each step", "verdict"]), _row(["---"] * 3)]
    for name in curve.figure_names():
        verdict = curve.verdict(name)
        steps = ", ".join(f"{each:.2f}" for each in verdict.exponents)
        lines.append(_row([FIGURES[name].title, steps, verdict.words]))
    return lines


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
