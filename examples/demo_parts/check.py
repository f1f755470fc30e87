"""Comparison of the rows that Spark read with the data set: every field of every row, and the distances of each
carrier."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from examples.demo_parts.flights import ROW

KEY: Final = "key"
EXAMPLES_MAX: Final = 5
"""Number of shown examples of a difference: enough to see a pattern, few enough to read."""


@dataclass(frozen=True, slots=True)
class Distance:
    """Flights and miles of one carrier."""

    flights: int
    miles: int


@dataclass(slots=True)
class Comparison:
    """Differences between the rows that were read and those of the data set."""

    matching: int = 0
    missing: int = 0
    duplicated: int = 0
    """Rows beyond the first with the same number."""
    differences: list[str] = field(default_factory=list)
    """Every kind of difference in words, with examples; empty if there is none."""


def compare_rows(expected: pa.Table, found: pa.Table) -> Comparison:
    """Compare all fields of all rows by row number. `found` has the columns of `expected` and the record's key."""
    counts = Counter(found[ROW].to_pylist())
    wanted = set(expected[ROW].to_pylist())
    missing = sorted(wanted - counts.keys())
    unknown = [row for row in counts if row not in wanted]
    repeated = [row for row, count in counts.items() if count > 1 and row in wanted]
    result = Comparison(missing=len(missing), duplicated=sum(counts[row] - 1 for row in repeated))
    if missing:
        result.differences.append(f"{len(missing)} rows are missing: {_examples(missing)}")
    if repeated:
        result.differences.append(f"{len(repeated)} rows came more than once: {_examples(sorted(repeated))}")
    if unknown:
        result.differences.append(f"{len(unknown)} rows have numbers that the data set has not: {_examples(unknown)}")
    wrong = _different_rows(expected, found, result) if not unknown else set()
    result.matching = len(wanted) - len(missing) - len(wrong)
    return result


def distances(flights: pa.Table) -> dict[str, Distance]:
    """Return the number of flights and the sum of their distances for each carrier."""
    sums = flights.group_by("carrier").aggregate([("distance", "sum"), ([], "count_all")]).to_pylist()
    return {found["carrier"]: Distance(found["count_all"], found["distance_sum"]) for found in sums}


def compare_distances(expected: dict[str, Distance], found: dict[str, Distance]) -> list[str]:
    """Return one line for each carrier that differs."""
    return [
        f"carrier {carrier}: the data set says {expected.get(carrier)}, Spark says {found.get(carrier)}"
        for carrier in sorted(expected.keys() | found.keys())
        if expected.get(carrier) != found.get(carrier)
    ]


def _different_rows(expected: pa.Table, found: pa.Table, result: Comparison) -> set[int]:
    """Note every field that differs; return the numbers of the differing rows."""
    found = found.sort_by(ROW)
    # Put each found row beside the expected row of its number. The number is its position, because rows are counted
    # from 1.
    expected = expected.take(pc.subtract(found[ROW], 1))
    wrong: set[int] = set()
    pairs = [(name, expected[name], found[name]) for name in expected.column_names]
    for name, wanted, seen in [*pairs, (f"the record's {KEY}", expected["carrier"], found[KEY])]:
        if wanted.equals(seen):
            continue
        rows = zip(found[ROW].to_pylist(), wanted.to_pylist(), seen.to_pylist(), strict=True)
        here = [(row, right, left) for row, right, left in rows if right != left]
        wrong.update(row for row, _, _ in here)
        shown = "; ".join(f"row {row}: {right!r}, read {left!r}" for row, right, left in here[:EXAMPLES_MAX])
        result.differences.append(f"{name} differs in {len(here)} rows: {shown}")
    return wrong


def _examples(rows: list[int]) -> str:
    shown = ", ".join(map(str, rows[:EXAMPLES_MAX]))
    return shown if len(rows) <= EXAMPLES_MAX else f"{shown}, ..."
