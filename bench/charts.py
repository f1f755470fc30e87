"""Charts of measurements: `python -m bench.charts RESULTS.json ... --dir docs/charts`.

Each file is what `python -m bench --json` wrote. A chart is drawn of the rows that the files hold, ours beside Kafka,
as an SVG with one group of bars for each row; a chart of which no row was measured is left out.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from xml.sax.saxutils import escape

_PLOT_WIDTH: Final = 640
_PLOT_HEIGHT: Final = 220
_LEFT: Final = 64
_TOP: Final = 56
_BOTTOM: Final = 44
_COLOURS: Final = ("#1f77b4", "#ff7f0e", "#7f7f7f", "#2ca02c")


@dataclass(frozen=True, slots=True)
class Series:
    """Bars of one colour: a contender, by its side and the beginning of its name."""

    label: str
    side: str
    contender: str


@dataclass(frozen=True, slots=True)
class Chart:
    """One drawing."""

    name: str
    title: str
    case: str
    rows: Mapping[str, str]
    """Label below a group of bars, by the label of its row."""
    series: Sequence[Series]
    quantity: str = "figure"
    """Median that is drawn, by its name in the JSON."""
    is_logarithmic: bool = False


_BY_PRODUCERS: Final = {
    f"3 x 1 KiB, {count} producer{'s' * (count > 1)}, commit": f"{count} producer{'s' * (count > 1)}"
    for count in (1, 16, 64, 256)
}
_COMMITS: Final = (
    Series("ours, flushed", "ours", "SDK"),
    Series("Kafka, not flushed", "kafka", "Java, stock"),
    Series("Kafka, flushed", "kafka", "Java, flushed"),
)
_OF_SPARK: Final = {"records of 1 KiB": "records of 1 KiB", "records of 100 B": "records of 100 B"}
CHARTS: Final = (
    Chart(
        "throughput",
        "Transactions of three records of 1 KiB per second",
        "transactions",
        _BY_PRODUCERS,
        _COMMITS,
    ),
    Chart(
        "latency",
        "99th percentile of a commit (ms, logarithmic)",
        "transactions",
        _BY_PRODUCERS,
        _COMMITS,
        quantity="p99_ms",
        is_logarithmic=True,
    ),
    Chart(
        "memory-beside-kafka",
        "Resident memory of the server (MiB)",
        "memory",
        {"idle, just started": "idle", "under load, 64 producers": "64 producers"},
        (Series("ours", "ours", "SDK"), Series("Kafka", "kafka", "Java, stock")),
    ),
    Chart(
        "spark",
        "Rows per second that Spark reads",
        "spark_read",
        _OF_SPARK,
        (
            Series("ours, batch", "ours", "txnlog source"),
            Series("ours, stream", "ours", "txnlog source, a stream"),
            Series("Kafka, batch", "kafka", "kafka source, stock"),
            Series("Kafka, stream", "kafka", "kafka source, a stream, stock"),
        ),
    ),
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw what the files hold."""
    parser = argparse.ArgumentParser(prog="python -m bench.charts", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("results", nargs="+", type=Path, metavar="RESULTS.json")
    parser.add_argument("--dir", type=Path, default=Path(), metavar="DIR", help="where the SVGs go [.]")
    asked = parser.parse_args(arguments)
    asked.dir.mkdir(parents=True, exist_ok=True)
    for name, drawing in drawings(json.loads(path.read_text()) for path in asked.results).items():
        (asked.dir / f"{name}.svg").write_text(drawing)
        print(asked.dir / f"{name}.svg")


def drawings(reports: Iterable[Mapping[str, Any]]) -> Mapping[str, str]:
    """Return the SVG of each chart of which something was measured, by name. A later report replaces an earlier one."""
    found: dict[tuple[str, str, str, str], Mapping[str, float]] = {}
    for report in reports:
        for result in report["results"]:
            place = result["case"], result["row"], result["side"], result["contender"]
            found[place] = result.get("median", {})
    drawn = {}
    for chart in CHARTS:
        groups = {
            label: [
                found.get((chart.case, row, each.side, each.contender), {}).get(chart.quantity) for each in chart.series
            ]
            for row, label in chart.rows.items()
        }
        if any(value is not None for values in groups.values() for value in values):
            drawn[chart.name] = bars(
                chart.title, [each.label for each in chart.series], groups, is_log=chart.is_logarithmic
            )
    return drawn


def bars(
    title: str, series: Sequence[str], groups: Mapping[str, Sequence[float | None]], *, is_log: bool = False
) -> str:
    """Return an SVG of grouped bars: a group for each label, with a value or None for each series."""
    height_of = _scale([value for values in groups.values() for value in values if value is not None], is_log=is_log)
    bottom, step = _TOP + _PLOT_HEIGHT, _PLOT_WIDTH / len(groups)
    width = step * 0.8 / len(series)
    parts = [_text(_LEFT, 18, title, "start", size=14)]
    for number, label in enumerate(series):
        left: float = _LEFT + number * 160
        parts += [_rectangle(left, 28, 12, 12, number), _text(left + 18, 39, label, "start")]
    parts.append(f'<path d="M{_LEFT},{_TOP} V{bottom} H{_LEFT + _PLOT_WIDTH}" fill="none" stroke="black"/>')
    for place, (label, values) in enumerate(groups.items()):
        left = _LEFT + place * step + step * 0.1
        parts.append(_text(left + step * 0.4, bottom + 20, label, "middle"))
        for number, value in enumerate(values):
            at = left + number * width
            if value is None:
                parts.append(_text(at + width / 2, bottom - 4, "n/a", "middle", size=10))
            else:
                parts += _bar(at, bottom, width * 0.9, height_of(value), number, _short(value))
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{_LEFT + _PLOT_WIDTH + 24}" height="{bottom + _BOTTOM}"'
    white = '<rect width="100%" height="100%" fill="white"/>'
    return "\n".join([f'{head} font-family="sans-serif" font-size="12">', white, *parts, "</svg>", ""])


def _scale(values: Sequence[float], *, is_log: bool) -> Callable[[float], float]:
    """Return the height of a bar for a value: in proportion, or by its logarithm from a tenth of the least value on."""
    largest = max(values)
    if not is_log:
        return lambda value: value / largest * (_PLOT_HEIGHT - 16)
    least = min(values) / 10
    return lambda value: math.log(value / least) / math.log(largest / least) * (_PLOT_HEIGHT - 16)


def _bar(left: float, bottom: float, width: float, height: float, number: int, text: str) -> list[str]:
    top = bottom - height
    return [_rectangle(left, top, width, height, number), _text(left + width / 2, top - 4, text, "middle", size=10)]


def _rectangle(left: float, top: float, width: float, height: float, number: int) -> str:
    colour = _COLOURS[number % len(_COLOURS)]
    return f'<rect x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{colour}"/>'


def _text(left: float, top: float, text: str, anchor: str, size: int = 12) -> str:
    return f'<text x="{left:.1f}" y="{top:.1f}" text-anchor="{anchor}" font-size="{size}">{escape(text)}</text>'


def _short(value: float) -> str:
    if value >= 1_000_000:
        return f"{value / 1_000_000:.2f} M"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


if __name__ == "__main__":
    main(sys.argv[1:])
