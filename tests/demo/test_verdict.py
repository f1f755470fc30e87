"""The demo says OK only if everything adds up: what producers report, what the job read, and what it hid."""

from __future__ import annotations

from dataclasses import replace

import pytest

from examples.demo_parts.check import Comparison, Distance
from examples.demo_parts.load import Killed, Loaded, Outage, Tally, Zombie
from examples.demo_parts.reading import Contrast, SparkResult
from examples.demo_parts.report import problems, verdict
from pyspark_txnlog.job_parts.account import PartitionSummary, Summary

ROWS = 1_000


def loaded(**changes: object) -> Loaded:
    tally = Tally(committed=10, committed_rows=ROWS, aborted=3, aborted_rows=300)
    for name, value in changes.items():
        setattr(tally, name, value)
    zombie = Zombie(rows=100, refusal="PRODUCER_FENCED (90)", tally=Tally())
    return Loaded(tally, 1.0, Outage(500, 0.0, 0.5, 0.6), zombie, Killed(rows=100, seconds=2.5, tally=Tally()))


def partition(rows: int = ROWS, aborted: int = 300) -> PartitionSummary:
    return PartitionSummary(
        topic="flights",
        partition=0,
        start_offset=0,
        end_offset=1_313,
        last_stable_offset=1_313,
        high_watermark=1_313,
        rows=rows,
        aborted_records=aborted,
        control_records=13,
    )


def read(
    job: PartitionSummary | None = None, comparison: Comparison | None = None, contrast_rows: int = ROWS + 300
) -> SparkResult:
    return SparkResult(
        Summary(isolation="read_committed", partitions=(job or partition(),), elapsed_ms=1),
        comparison or Comparison(matching=ROWS),
        {"UA": Distance(ROWS, 2_000)},
        Contrast(rows=contrast_rows, miles=2_600, repeated=300),
    )


def test_the_last_line_is_the_promised_one() -> None:
    assert problems(ROWS, loaded(), read()) == []
    assert (
        verdict(ROWS, read()) == "demo: OK, 1000 of 1000 flights, 0 missing, 0 duplicated, 300 aborted records hidden"
    )


@pytest.mark.parametrize(
    ("load", "result", "problem"),
    [
        (loaded(committed_rows=999), read(), "the producers committed 999 rows, not 1000"),
        (loaded(), read(job=partition(rows=1_001)), "the Spark job read 1001 rows, not 1000"),
        (loaded(), read(comparison=Comparison(matching=998)), "998 of 1000 rows are as in the data set"),
        (loaded(), read(comparison=Comparison(ROWS, differences=["miles"])), "miles"),
        (loaded(aborted_rows=400), read(), "300 aborted records are hidden, and producers aborted 400"),
        (loaded(aborted_rows=200), read(), "300 aborted records are hidden, and producers aborted 200"),
        (loaded(), read(contrast_rows=ROWS), "read_uncommitted shows 1000 rows, not 1000 and 300 aborted ones"),
    ],
)
def test_whatever_does_not_add_up_is_named(load: Loaded, result: SparkResult, problem: str) -> None:
    assert problems(ROWS, load, result) == [problem]


def test_nothing_hidden_shows_nothing() -> None:
    found = problems(ROWS, loaded(aborted_rows=0), read(job=partition(aborted=0), contrast_rows=ROWS))
    assert found == ["no aborted record was hidden, so nothing was shown"]


def test_records_of_unforeseen_aborts_may_be_hidden_too() -> None:
    surprised = replace(loaded(aborted_rows=200, surprises=["timed out while the server was dead"]))
    assert problems(ROWS, surprised, read()) == []
