"""Conditions of queries: what they leave to be read is never less than the rows that meet them."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from pyspark_txnlog.read.pushdown import EVERYTHING, Narrowing, narrowed, narrowing_of
from pyspark_txnlog.read.ranges import OffsetRange


def at(milliseconds: float) -> dt.datetime:
    return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(milliseconds=milliseconds)


@pytest.mark.parametrize(
    ("conditions", "wanted"),
    [
        ([], EVERYTHING),
        ([IsNotNull(("offset",)), Not(EqualTo(("partition",), 1)), EqualTo(("value",), b"x")], EVERYTHING),
        ([EqualTo(("offset",), None), EqualNullSafe(("offset",), None)], EVERYTHING),
        ([EqualTo(("partition",), 1)], Narrowing(partitions=frozenset({1}))),
        ([In(("partition",), (1, 2)), In(("partition",), (2, 3, None))], Narrowing(partitions=frozenset({2}))),
        ([EqualTo(("partition",), 1), EqualTo(("partition",), 2)], Narrowing(partitions=frozenset())),
        ([EqualTo(("topic",), "t"), EqualNullSafe(("topic",), "t")], Narrowing(topics=frozenset({"t"}))),
        ([GreaterThan(("offset",), 4), LessThan(("offset",), 9)], Narrowing(start_offset=5, end_offset=9)),
        ([GreaterThanOrEqual(("offset",), -4), LessThanOrEqual(("offset",), -9)], Narrowing(end_offset=0)),
        ([LessThanOrEqual(("offset",), 9), LessThan(("offset",), 12)], Narrowing(end_offset=10)),
        ([In(("offset",), (7, 3))], Narrowing(start_offset=3, end_offset=8)),
        ([GreaterThan(("timestamp",), at(5.5)), LessThan(("timestamp",), at(9))], Narrowing(since_ms=5)),
        ([EqualTo(("timestamp",), at(7)), GreaterThan(("timestamp",), at(3))], Narrowing(since_ms=7)),
        ([In(("timestamp",), (at(7), at(4)))], Narrowing(since_ms=4)),
    ],
)
def test_conditions_that_hold_together_narrow_what_is_read(conditions: list[Filter], wanted: Narrowing) -> None:
    assert narrowing_of(conditions) == wanted


PARTITION_COUNT, END = 3, 12
comparisons = st.builds(
    lambda kind, column, value: kind((column,), value),
    st.sampled_from((EqualTo, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)),
    st.sampled_from(("partition", "offset")),
    st.integers(-1, END + 1),
)
memberships = st.builds(
    lambda column, values: In((column,), tuple(values)),
    st.sampled_from(("partition", "offset")),
    st.lists(st.integers(-1, END + 1), max_size=3),
)
MEETS: dict[type, Any] = {
    EqualTo: lambda number, value: number == value,
    GreaterThan: lambda number, value: number > value,
    GreaterThanOrEqual: lambda number, value: number >= value,
    LessThan: lambda number, value: number < value,
    LessThanOrEqual: lambda number, value: number <= value,
    In: lambda number, value: number in value,
}


@given(st.lists(st.one_of(comparisons, memberships), max_size=4))
def test_every_row_that_meets_all_conditions_is_read(conditions: list[Any]) -> None:
    whole = [
        OffsetRange(topic="t", topic_id=bytes(16), partition=number, start_offset=2, end_offset=END)
        for number in range(PARTITION_COUNT)
    ]
    left = narrowed(whole, narrowing_of(conditions), {})
    read = {(found.partition, offset) for found in left for offset in range(found.start_offset, found.end_offset)}
    for partition in range(PARTITION_COUNT):
        for offset in range(2, END):
            row = {"partition": partition, "offset": offset}
            if all(MEETS[type(each)](row[each.attribute[0]], each.value) for each in conditions):
                assert (partition, offset) in read


def test_what_lies_before_the_first_batch_of_a_time_is_passed_over() -> None:
    (found,) = narrowed(
        [OffsetRange(topic="t", topic_id=bytes(16), partition=0, start_offset=2, end_offset=9)],
        Narrowing(since_ms=5),
        {("t", 0): 20},
    )
    assert (found.start_offset, found.end_offset) == (9, 9)
