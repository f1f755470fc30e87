"""Charts of rates: coordinates for the drawings of the templates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from coordinator_client.admin.observing import RateHistory
from txnctl.page.words import duration, number, size

WIDTH: Final = 300
HEIGHT: Final = 64
"""Size of the plot, in units of the drawing."""
POINTS_MAX: Final = 360
"""Number of values of an hour, the whole width."""


@dataclass(frozen=True, slots=True)
class Chart:
    """One series as a drawing."""

    title: str
    now: str
    """The newest value, and its unit."""
    peak: str
    line: str
    """Points of the line, as SVG takes them."""
    area: str
    is_empty: bool = False


_PER_SECOND: Final = "/s"
_KINDS: Final[Sequence[tuple[str, str, Callable[[float], str]]]] = (
    ("commits", "Commits", lambda value: number(round(value, 1)) + _PER_SECOND),
    ("aborts", "Aborts", lambda value: number(round(value, 1)) + _PER_SECOND),
    ("open_transactions", "Open transactions", number),
    ("oldest_open_seconds", "Age of the oldest", lambda value: duration(value * 1_000)),
    ("appended_records", "Records written", lambda value: number(round(value, 1)) + _PER_SECOND),
    ("appended_bytes", "Bytes written", lambda value: size(value) + _PER_SECOND),
    ("served_records", "Records read", lambda value: number(round(value, 1)) + _PER_SECOND),
    ("calls", "Calls", lambda value: number(round(value, 1)) + _PER_SECOND),
    ("refused_calls", "Calls with an error", lambda value: number(round(value, 1)) + _PER_SECOND),
    ("fences", "Fences", lambda value: number(round(value, 2)) + _PER_SECOND),
)


def charts(history: RateHistory) -> list[Chart]:
    """Return the charts of all series, in their order on the page."""
    return [_chart(title, history.series.get(name, ()), words) for name, title, words in _KINDS]


def _chart(title: str, values: Sequence[float], words: Callable[[float], str]) -> Chart:
    if not values:
        return Chart(title, "no value yet", "", "", "", is_empty=True)
    peak = max(values)
    top = peak or 1.0
    step = WIDTH / (POINTS_MAX - 1)
    first = WIDTH - step * (len(values) - 1)
    points = [
        f"{first + step * at:.1f},{HEIGHT - 2 - (HEIGHT - 6) * max(0.0, value) / top:.1f}"
        for at, value in enumerate(values)
    ]
    line = " ".join(points)
    return Chart(title, words(values[-1]), words(peak), line, f"{first:.1f},{HEIGHT} {line} {WIDTH},{HEIGHT}")
