"""The demo's comparison is worth something only if it notices every kind of difference."""

from __future__ import annotations

import pyarrow as pa
import pytest

from examples.demo_parts.check import KEY, Distance, compare_distances, compare_rows, distances

EXPECTED = pa.table(
    {
        "row": [1, 2, 3, 4],
        "carrier": ["UA", "AA", "UA", "B6"],
        "tailnum": ["N14228", None, "N24211", "N804JB"],
        "distance": [1400, 1416, 719, 1576],
    }
)


def read(*rows: int, **changes: tuple[int, object]) -> pa.Table:
    """Build a possible result of Spark: these rows in this order, each change (row, value) in the field it names."""
    flights = EXPECTED.take([row - 1 for row in rows]).to_pylist()
    for flight in flights:
        flight[KEY] = flight["carrier"]
        for name, (row, value) in changes.items():
            if flight["row"] == row:
                flight[name] = value
    return pa.Table.from_pylist(flights, schema=EXPECTED.schema.append(pa.field(KEY, pa.string())))


def test_equal_rows_in_any_order_are_equal() -> None:
    comparison = compare_rows(EXPECTED, read(3, 1, 4, 2))
    assert comparison.differences == []
    assert (comparison.matching, comparison.missing, comparison.duplicated) == (4, 0, 0)


def test_a_missing_row_is_named() -> None:
    comparison = compare_rows(EXPECTED, read(1, 2, 4))
    assert comparison.differences == ["1 rows are missing: 3"]
    assert (comparison.matching, comparison.missing, comparison.duplicated) == (3, 1, 0)


def test_a_row_that_came_three_times_is_two_too_many() -> None:
    comparison = compare_rows(EXPECTED, read(1, 2, 2, 3, 4, 2))
    assert comparison.differences == ["1 rows came more than once: 2"]
    assert (comparison.missing, comparison.duplicated) == (0, 2)


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        ({"distance": (3, 720)}, "distance differs in 1 rows: row 3: 719, read 720"),
        ({"tailnum": (2, "N00000")}, "tailnum differs in 1 rows: row 2: None, read 'N00000'"),
        ({"tailnum": (1, None)}, "tailnum differs in 1 rows: row 1: 'N14228', read None"),
        ({KEY: (4, "UA")}, "the record's key differs in 1 rows: row 4: 'B6', read 'UA'"),
    ],
)
def test_a_changed_field_is_named_with_both_values(change: dict[str, tuple[int, object]], difference: str) -> None:
    comparison = compare_rows(EXPECTED, read(1, 2, 3, 4, **change))
    assert comparison.differences == [difference]
    assert comparison.matching == 3


@pytest.mark.parametrize("number", [0, 5, None])
def test_a_row_with_a_number_that_the_data_set_has_not_is_a_difference(number: int | None) -> None:
    comparison = compare_rows(EXPECTED, read(1, 2, 3, 4, row=(4, number)))
    assert comparison.differences == [
        "1 rows are missing: 4",
        f"1 rows have numbers that the data set has not: {number}",
    ]


def test_distances_are_summed_by_carrier() -> None:
    expected = distances(EXPECTED)
    assert expected == {"UA": Distance(2, 2119), "AA": Distance(1, 1416), "B6": Distance(1, 1576)}
    assert compare_distances(expected, dict(expected)) == []
    assert compare_distances(expected, {"UA": Distance(2, 2118), "AA": Distance(1, 1416)}) == [
        "carrier B6: the data set says Distance(flights=1, miles=1576), Spark says None",
        "carrier UA: the data set says Distance(flights=2, miles=2119), Spark says Distance(flights=2, miles=2118)",
    ]
