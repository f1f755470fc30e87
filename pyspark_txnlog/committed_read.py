"""One job: read topics up to a fixed end, put them somewhere, and account for every offset.

The range of every partition is fixed before Spark starts, so the report is about exactly what was read, and mistakes
like a wrong topic are told at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from coordinator_client.admin import Admin
from coordinator_client.clock import SystemClock
from coordinator_client.connection import Connection
from pyspark_txnlog.offsets import offsets_json
from pyspark_txnlog.options import ReadOptions, Report, parse_options, topic_ids_json
from pyspark_txnlog.planning import CLIENT_ID, plan_read
from pyspark_txnlog.ranges import OffsetRange
from pyspark_txnlog.source import FORMAT
from pyspark_txnlog.spark_session import start_spark
from pyspark_txnlog.summary import PartitionSummary, Summary

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARQUET: Final = "parquet"
CONSOLE: Final = "console"

_Counts = dict[tuple[str, int], tuple[int, ...]]


class JobFailed(RuntimeError):
    """The job cannot do what it was asked for, or did not; the message is for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSettings:
    """The settings of a job: what to read and where to put it."""

    options: dict[str, str]
    """Options of the source, by name."""

    format: str = CONSOLE
    """`parquet` writes a directory, `console` prints rows."""

    output: str = ""
    """The directory that Parquet is written to."""

    is_overwriting: bool = False
    """Whether to replace what is in the directory; otherwise it must not exist."""

    rows_shown: int = 20
    """How many rows are printed on the console."""

    is_audited: bool = True
    """Whether to read the ranges once more, without their records reaching Spark, to count what is hidden and why."""

    master: str | None = None
    """Where Spark runs, unless spark-submit says so. Default: local[*]."""


def run_job(
    settings: JobSettings, *, say: Callable[[str], None] = lambda _line: None, spark: SparkSession | None = None
) -> Summary:
    """Read, write, audit; return the account. Spark is stopped at the end if it was started here.

    `say` is told each step. Raises: JobFailed where the output is not what the log holds or cannot be written there;
    InvalidOption, UnknownTopic, DataLoss; JavaMissing; TransactionError where the server refuses or is out of reach;
    PySparkException.
    """
    started_ms = SystemClock().monotonic_ms()
    options = parse_options(settings.options)
    if settings.format == PARQUET and not settings.is_overwriting and Path(settings.output).exists():
        raise JobFailed(f"{settings.output} exists already; choose another directory, or say --overwrite")
    planned, standing = _plan(options)
    offsets = sum(found.offset_count for found in planned)
    say(f"{len(planned)} partitions with {offsets:,} offsets to read as {options.isolation} from {options.endpoint}")
    is_own = spark is None
    if spark is None:
        say("starting Spark")
        spark = start_spark("txnlog committed read", master=settings.master)
    try:
        fixed = settings.options | _fixed(planned)
        _put(spark, settings, fixed, say)
        counts = _account(spark, settings, fixed, say)
    finally:
        if is_own:
            spark.stop()
    partitions = tuple(
        _summary_of(found, standing[found.topic, found.partition], counts.get((found.topic, found.partition), ()))
        for found in planned
    )
    return Summary(
        isolation=options.isolation, partitions=partitions, elapsed_ms=SystemClock().monotonic_ms() - started_ms
    )


def _plan(options: ReadOptions) -> tuple[list[OffsetRange], dict[tuple[str, int], tuple[int, int]]]:
    with Connection(options.endpoint, client_id=CLIENT_ID, wait_ms=None) as connection:
        planned = plan_read(connection, options)
        names = tuple(dict.fromkeys(found.topic for found in planned))
        # Asked after the ends were taken: the positions of a partition only grow.
        described = Admin(connection, deadline_ms=options.rpc_timeout_ms).describe_topics(names) if names else []
    standing = {
        (topic.name, found.partition): (found.last_stable_offset, found.high_watermark)
        for topic in described
        for found in topic.partitions
    }
    return planned, standing


def _fixed(planned: list[OffsetRange]) -> dict[str, str]:
    """Return the options that make Spark read exactly these ranges of exactly these topics."""
    starting: dict[str, dict[int, int]] = {}
    ending: dict[str, dict[int, int]] = {}
    for found in planned:
        starting.setdefault(found.topic, {})[found.partition] = found.start_offset
        ending.setdefault(found.topic, {})[found.partition] = found.end_offset
    if not planned:
        return {}
    return {
        "startingOffsets": offsets_json(starting),
        "endingOffsets": offsets_json(ending),
        "topicIds": topic_ids_json({found.topic: found.topic_id for found in planned}),
    }


def _put(spark: SparkSession, settings: JobSettings, fixed: dict[str, str], say: Callable[[str], None]) -> None:
    frame = spark.read.format(FORMAT).options(**fixed).load()
    if settings.format == PARQUET:
        say(f"writing Parquet to {settings.output}")
        frame.write.mode("overwrite" if settings.is_overwriting else "errorifexists").parquet(settings.output)
        return
    shown = [name for name in ("key", "value") if name in frame.columns]
    frame.withColumns({name: frame[name].cast("string") for name in shown}).show(settings.rows_shown, truncate=100)


def _account(spark: SparkSession, settings: JobSettings, fixed: dict[str, str], say: Callable[[str], None]) -> _Counts:
    """Return the rows of each partition, and with an audit its hidden records too. Raises: JobFailed where they
    disagree."""
    written: _Counts = {}
    is_countable = settings.format == PARQUET
    if is_countable:
        output = spark.read.parquet(settings.output)
        is_countable = {"topic", "partition"} <= set(output.columns)
        written = _rows_by_partition(output) if is_countable else {}
    if not settings.is_audited:
        return written
    say("counting what is hidden")
    unneeded = {"columns", "includeheaders", "minpartitions"}
    asked = {name: value for name, value in fixed.items() if name.lower() not in unneeded}
    asked["report"] = Report.RANGES.value
    report = spark.read.format(FORMAT).options(**asked).load()
    counts: _Counts = {
        (row.topic, row.partition): (row.rows, row.abortedRecords, row.controlRecords, row.corruptOffsets)
        for row in report.collect()
    }
    for (topic, partition), (rows, *_hidden) in counts.items():
        (found,) = written.get((topic, partition), (0,))
        if is_countable and found != rows:
            raise JobFailed(
                f"{settings.output} holds {found} rows of {topic}-{partition} and the log {rows}: do not use it, and "
                "report this"
            )
    return counts


def _rows_by_partition(frame: DataFrame) -> _Counts:
    counted = frame.groupBy("topic", "partition").count().collect()
    return {(row["topic"], row["partition"]): (row["count"],) for row in counted}


def _summary_of(found: OffsetRange, standing: tuple[int, int], counts: tuple[int, ...]) -> PartitionSummary:
    last_stable_offset, high_watermark = standing
    rows, aborted, control, corrupt = (*counts, None, None, None, None)[:4]
    return PartitionSummary(
        topic=found.topic,
        partition=found.partition,
        start_offset=found.start_offset,
        end_offset=found.end_offset,
        last_stable_offset=last_stable_offset,
        high_watermark=high_watermark,
        rows=rows,
        aborted_records=aborted,
        control_records=control,
        corrupt_offsets=corrupt,
    )
