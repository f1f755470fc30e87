"""Parts of a dashboard: kinds of panels, and their queries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

CHOSEN: Final = 'job="txn-coordinator", instance=~"$instance"'
"""Filter of every query."""
NOT_ACTIVE: Final = 'state!="active"'
WINDOW: Final = "[5m]"


@dataclass(frozen=True, slots=True)
class Query:
    """One line, or one family of lines, of a panel."""

    expr: str
    legend: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """A graph over time."""

    title: str
    meaning: str
    unit: str
    queries: Sequence[Query]
    is_stacked: bool = False


@dataclass(frozen=True, slots=True)
class Latency:
    """Heat map of the distribution of a duration over time."""

    title: str
    meaning: str
    histogram: str
    labels: str = ""


@dataclass(frozen=True, slots=True)
class Number:
    """Current value, red if it is bad."""

    title: str
    meaning: str
    expr: str
    bad_from: float
    unit: str = "short"


def chosen(metric: str, labels: str = "") -> str:
    return f"{metric}{{{CHOSEN}{', ' if labels else ''}{labels}}}"


def rate(metric: str, by: str = "", labels: str = "") -> str:
    return f"sum by (instance{', ' if by else ''}{by}) (rate({chosen(metric, labels)}{WINDOW}))"


def rates(metric: str, *labels: str) -> Query:
    """Return the rate of a metric by labels, with a line and a legend for each of their values."""
    return Query(rate(metric, ", ".join(labels)), ", ".join(f"{{{{{label}}}}}" for label in labels))


def worst(metric: str, by: str = "") -> str:
    return f"max by (instance{', ' if by else ''}{by}) ({chosen(metric)})"
