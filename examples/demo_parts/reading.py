"""Reads with Spark: the job's committed rows, compared with the data set, and read_uncommitted for contrast."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from examples.demo_parts.check import KEY, Comparison, Distance, compare_distances, compare_rows, distances
from examples.demo_parts.flights import ROW, SCHEMA, TEXTS, expected_flights
from examples.demo_parts.interrupts import Interrupts
from examples.demo_parts.plan import TOPIC
from pyspark_txnlog.job_parts.account import Summary

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CORES: Final = 2
JVM_END_SECONDS_MAX: Final = 120


@dataclass(frozen=True, slots=True)
class Contrast:
    """Rows that a reader with read_uncommitted gets."""

    rows: int
    miles: int
    repeated: int
    """Rows beyond the first with the same number."""


@dataclass(frozen=True, slots=True)
class SparkResult:
    """All that was read with Spark, and the comparisons."""

    job: Summary
    comparison: Comparison
    distances: dict[str, Distance]
    contrast: Contrast


@contextmanager
def spark_session(directory: Path, interrupts: Interrupts) -> Iterator[SparkSession]:
    """Start Spark on this machine, with its scratch files below the directory. Its JVM is gone at the end."""
    from pyspark_txnlog.job_parts.spark_session import start_spark

    os.environ["SPARK_LOCAL_DIRS"] = str(directory / "spark")
    session: SparkSession | None = None
    try:
        # If PySpark were interrupted while it starts, it would leave the JVM behind.
        with interrupts.held():
            session = start_spark("demo", master=f"local[{CORES}]")
        # As many reducers as cores: more would only add overhead for so little data.
        session.conf.set("spark.sql.shuffle.partitions", CORES)
        yield session
    finally:
        if session is not None:
            _stop(session)


def read_and_compare(spark: SparkSession, endpoint: str, rows: int, output: Path) -> SparkResult:
    """Run the Spark job on the topic, and compare its output with the first rows of the data set. A terminal shows the
    progress of both."""
    from coordinator_client.progress import ProgressShown
    from pyspark_txnlog.job_parts.committed_read import run_job
    from pyspark_txnlog.job_parts.job_progress import JobProgress
    from pyspark_txnlog.job_parts.job_settings import PARQUET, JobSettings

    progress = JobProgress(spark, ProgressShown.TERMINAL)
    source = {"endpoint": endpoint, "subscribe": TOPIC, "columns": "key,value,topic,partition"}
    job = run_job(
        JobSettings(options=source, format=PARQUET, output=str(output)), spark=spark, shown=ProgressShown.TERMINAL
    )
    flights = _flights(spark.read.parquet(str(output)))
    expected = expected_flights(rows)
    with progress.step("compared", "rows", rows):
        comparison = compare_rows(expected, flights.toArrow())
    with progress.step("added up", "rows", rows):
        by_carrier = _distances(flights)
    comparison.differences += compare_distances(distances(expected), by_carrier)
    uncommitted = {**source, "columns": "key,value", "isolationLevel": "read_uncommitted"}
    everything = spark.read.format("txnlog").options(**uncommitted).load()
    with progress.step("read uncommitted", "records"):
        contrast = _contrast(_flights(everything, names=[ROW, "distance"]))
    return SparkResult(job, comparison, by_carrier, contrast)


def _stop(session: SparkSession) -> None:
    gateway = session.sparkContext._gateway
    assert gateway is not None, "a session on this machine has one"
    session.stop()
    # The JVM runs as long as this pipe is open.
    gateway.proc.stdin.close()
    gateway.proc.wait(JVM_END_SECONDS_MAX)


def _flights(records: DataFrame, names: Sequence[str] = SCHEMA.names) -> DataFrame:
    """Return the fields of the JSON, each with its type. Invalid JSON becomes nulls, and so shows as a difference."""
    from pyspark.sql.functions import from_json

    fields = ", ".join(f"{name} {'STRING' if name in TEXTS else 'BIGINT'}" for name in names)
    flight = from_json(records["value"].cast("string"), fields).alias("flight")
    return records.select(records["key"].cast("string").alias(KEY), flight).select(KEY, "flight.*")


def _distances(flights: DataFrame) -> dict[str, Distance]:
    from pyspark.sql.functions import count, lit
    from pyspark.sql.functions import sum as sum_of

    sums = flights.groupBy("carrier").agg(count(lit(1)).alias("flights"), sum_of("distance").alias("miles"))
    return {row["carrier"]: Distance(row["flights"], row["miles"]) for row in sums.collect()}


def _contrast(flights: DataFrame) -> Contrast:
    from pyspark.sql.functions import count, lit
    from pyspark.sql.functions import sum as sum_of

    by_row = flights.groupBy("row").agg(count(lit(1)).alias("copies"), sum_of("distance").alias("miles"))
    (total,) = by_row.agg(
        sum_of("copies").alias("rows"), sum_of("miles").alias("miles"), sum_of(by_row["copies"] - 1).alias("repeated")
    ).collect()
    return Contrast(total["rows"], total["miles"], total["repeated"])
