"""Expectations as text tables: one row per case, one column per question, the answer in the cell."""

from __future__ import annotations


def cells(table: str) -> list[tuple[str, str, str]]:
    """(row, column, cell) of a table like

                  | first | second
        row name  | cell  | cell
        other row | cell  | cell

    A cell with a dash asks nothing."""
    found: list[tuple[str, str, str]] = []
    lines = [line for line in table.splitlines() if line.strip()]
    columns = [column.strip() for column in lines[0].split("|")[1:]]
    for line in lines[1:]:
        row, *values = (part.strip() for part in line.split("|"))
        assert len(values) == len(columns), f"the row {row!r} has {len(values)} cells for {len(columns)} columns"
        found.extend((row, column, cell) for column, cell in zip(columns, values, strict=True) if cell != "-")
    return found
