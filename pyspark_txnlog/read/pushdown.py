"""Ranges that remain after the conditions of a query.

Spark still checks every condition on the rows, so leaving out too little is slow but never wrong. A partition that no
condition allows is not read. Offsets are cut exactly. Records before the first one of a start time are skipped. An end
time cuts nothing off: producers choose timestamps, and an older record may follow a younger one.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Final

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from pyspark_txnlog.read.ranges import OffsetRange

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MILLISECOND: Final = dt.timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Narrowing:
    """Conditions of a query on the records to read; all of them must hold."""

    topics: frozenset[str] | None = None
    """Wanted topics; None for any."""
    partitions: frozenset[int] | None = None
    """Wanted partitions; None for any."""
    start_offset: int = 0
    end_offset: int = 2**63 - 1
    since_ms: int | None = None
    """Earliest wanted time (Unix ms); None for no limit."""


EVERYTHING: Final = Narrowing()


def narrowing_of(filters: Iterable[Filter]) -> Narrowing:
    """Return the narrowing by all conditions that are understood."""
    return reduce(_narrower, filters, EVERYTHING)


def narrowed(
    ranges: Sequence[OffsetRange], wanted: Narrowing, first_offsets: Mapping[tuple[str, int], int]
) -> list[OffsetRange]:
    """Return the narrowed ranges. `first_offsets` has, by topic and partition, the first offset that may have a record
    as new as `since_ms`. A partition without an entry is not cut."""
    left: list[OffsetRange] = []
    for found in ranges:
        is_wanted = (wanted.topics is None or found.topic in wanted.topics) and (
            wanted.partitions is None or found.partition in wanted.partitions
        )
        if is_wanted:
            first = first_offsets.get((found.topic, found.partition), 0)
            end = min(found.end_offset, wanted.end_offset)
            start = max(found.start_offset, wanted.start_offset, first)
            left.append(replace(found, start_offset=min(start, end), end_offset=end))
    return left


def _narrower(so_far: Narrowing, condition: Filter) -> Narrowing:
    match condition:
        case EqualTo((column,), value) | EqualNullSafe((column,), value) if value is not None:
            return _among(so_far, column, [value])
        case In((column,), values):
            return _among(so_far, column, [value for value in values if value is not None])
        case GreaterThan((column,), value):
            return _at_least(so_far, column, value, beyond=1)
        case GreaterThanOrEqual((column,), value):
            return _at_least(so_far, column, value, beyond=0)
        case LessThan(("offset",), value):
            return replace(so_far, end_offset=min(so_far.end_offset, max(value, 0)))
        case LessThanOrEqual(("offset",), value):
            return replace(so_far, end_offset=min(so_far.end_offset, max(value + 1, 0)))
    return so_far


def _among(so_far: Narrowing, column: str, values: list[Any]) -> Narrowing:
    """Narrow to rows with one of the values in the column."""
    match column:
        case "topic":
            allowed = frozenset(values)
            return replace(so_far, topics=allowed if so_far.topics is None else so_far.topics & allowed)
        case "partition":
            allowed = frozenset(values)
            return replace(so_far, partitions=allowed if so_far.partitions is None else so_far.partitions & allowed)
        case "offset":
            end = max(values, default=-1) + 1
            least = _at_least(so_far, column, min(values, default=0), beyond=0)
            return replace(least, end_offset=min(so_far.end_offset, max(end, 0)))
        case "timestamp" if values:
            return _at_least(so_far, column, min(values), beyond=0)
    return so_far


def _at_least(so_far: Narrowing, column: str, value: object, *, beyond: int) -> Narrowing:
    match column, value:
        case "offset", int():
            return replace(so_far, start_offset=max(so_far.start_offset, value + beyond))
        case "timestamp", dt.datetime():
            # Spark counts microseconds and the log milliseconds, so the whole millisecond of the time is read.
            return replace(so_far, since_ms=max(so_far.since_ms or 0, (value - _EPOCH) // _MILLISECOND))
    return so_far
