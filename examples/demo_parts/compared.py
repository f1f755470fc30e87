"""Comparison of the records of a topic with the data set that they come from."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.json

from coordinator_client import ReadRecord
from examples.demo_parts.check import KEY, compare_rows
from examples.demo_parts.flights import SCHEMA, expected_flights


def compare(records: Iterable[ReadRecord], rows: int) -> tuple[int, list[str]]:
    """Return the number of correct flights, and all differences from the first `rows` of the data set."""
    found = [*records]
    lines = b"\n".join(record.value or b"" for record in found)
    options = pyarrow.json.ParseOptions(explicit_schema=SCHEMA, unexpected_field_behavior="error")
    flights = pyarrow.json.read_json(pa.BufferReader(lines), parse_options=options)
    keys = pa.array([(record.key or b"").decode() for record in found])
    comparison = compare_rows(expected_flights(rows), flights.append_column(KEY, keys))
    return comparison.matching, comparison.differences
