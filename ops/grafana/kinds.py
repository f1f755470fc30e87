"""What a dashboard is made of: kinds of panels, and the queries in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

CHOSEN: Final = 'job="txn-coordinator", instance=~"$instance"'
"""The filter that every query has."""
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
    """A heat map over time: how a duration is distributed."""

    title: str
    meaning: str
    histogram: str
    labels: str = ""


@dataclass(frozen=True, slots=True)
class Number:
    """The current value, red if it is not what it should be."""

    title: str
    meaning: str
    expr: str
    bad_from: float
    unit: str = "short"


def chosen(metric: str, labels: str = "") -> str:
    return f"{metric}{{{CHOSEN}{', ' if labels else ''}{labels}}}"


def rate(metric: str, by: str = "", labels: str = "") -> str:
    return f"sum by (instance{', ' if by else ''}{by}) (rate({chosen(metric, labels)}{WINDOW}))"


def worst(metric: str, by: str = "") -> str:
    return f"max by (instance{', ' if by else ''}{by}) ({chosen(metric)})"
