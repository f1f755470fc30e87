"""One job: read topics up to a fixed end, put them somewhere, and account for every offset, partition by partition.

The range of every partition is fixed before Spark starts, so the report is about exactly what was read, and mistakes
like a wrong topic are told at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from coordinator_client.admin import Admin
from coordinator_client.clock import SystemClock
from coordinator_client.connection import Connection
from pyspark_txnlog.advice import ALIASES, OPTIONS
from pyspark_txnlog.bounds import Position, offsets_json
from pyspark_txnlog.options import FORMAT, ReadOptions, Report, parse_options, topic_ids_json
from pyspark_txnlog.planning import CLIENT_ID, plan_read, tls_of
from pyspark_txnlog.ranges import OffsetRange
from pyspark_txnlog.spark_session import start_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSummary:
    """One partition: the range that was read, where the partition stood, and what became of the offsets."""

    topic: str
    partition: int
    start_offset: int
    end_offset: int
    last_stable_offset: int
    """The last stable offset when the read was planned."""
    high_watermark: int
    rows: int | None = None
    """Number of rows in the output; None where nobody counted."""
    aborted_records: int | None = None
    """Number of records of aborted transactions in the range, hidden from the read; None where nobody counted."""
    control_records: int | None = None
    """Number of markers in the range; they end transactions and are nobody's records."""
    corrupt_offsets: int | None = None
    """Number of offsets that were skipped because they cannot be read; only with onCorruptBatch=skip."""

    @property
    def hidden_records(self) -> int | None:
        """Number of offsets of the range without a row: hidden records, and offsets that have no record."""
        return None if self.rows is None else self.end_offset - self.start_offset - self.rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The account of a whole job."""

    isolation: str
    partitions: tuple[PartitionSummary, ...]
    elapsed_ms: int

    @property
    def rows(self) -> int | None:
        """Number of rows in the output."""
        return _sum(found.rows for found in self.partitions)

    @property
    def aborted_records(self) -> int | None:
        """Number of records of aborted transactions that were hidden."""
        return _sum(found.aborted_records for found in self.partitions)

    @property
    def control_records(self) -> int | None:
        """Number of markers that were passed over."""
        return _sum(found.control_records for found in self.partitions)

    @property
    def corrupt_offsets(self) -> int | None:
        """Number of offsets that were skipped because they cannot be read."""
        return _sum(found.corrupt_offsets for found in self.partitions)

    def table(self) -> str:
        """Return the partitions and their total as aligned text."""
        lines = [
            (
                found.topic,
                str(found.partition),
                *_shown(found.start_offset, found.end_offset, found.last_stable_offset, found.high_watermark),
                *_shown(found.rows, found.aborted_records, found.control_records, found.corrupt_offsets),
            )
            for found in self.partitions
        ]
        counted = _shown(self.rows, self.aborted_records, self.control_records, self.corrupt_offsets)
        total = ("total", "", "", "", "", "", *counted)
        return _aligned([_TITLES, *lines, total])


_TITLES = (
    "topic",
    "partition",
    "start",
    "end",
    "LSO",
    "high watermark",
    "rows",
    "aborted hidden",
    "markers hidden",
    "corrupt",
)


def _sum(numbers: Iterable[int | None]) -> int | None:
    known = list(numbers)
    return None if None in known else sum(number for number in known if number is not None)


def _shown(*numbers: int | None) -> tuple[str, ...]:
    return tuple("-" if number is None else f"{number:,}" for number in numbers)


def _aligned(lines: Sequence[Sequence[str]]) -> str:
    widths = [max(len(cell) for cell in column) for column in zip(*lines, strict=True)]
    rule = "  ".join("-" * width for width in widths)
    texts = [
        "  ".join(
            cell.ljust(width) if place == 0 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
    return "\n".join([texts[0], rule, *texts[1:-1], rule, texts[-1]])


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
        ranges = _fixed(planned)
        fixed = {name: value for name, value in settings.options.items() if name.lower() not in _PLACES} | ranges
        _put(spark, settings, fixed, say)
        counts = _account(spark, settings, fixed, say)
        if ranges:
            say(f"the next read goes on behind this one with --starting-offsets '{ranges['endingOffsets']}'")
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
    with Connection(options.endpoint, client_id=CLIENT_ID, wait_ms=None, tls=tls_of(options)) as connection:
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


_PLACES: Final = frozenset(
    name.lower()
    for name in (*OPTIONS, *ALIASES)
    if name.startswith(("starting", "ending", "groupId")) or ALIASES.get(name) == "groupId"
)
"""Options that say where a read begins and ends. Once that is known, offsets say it."""


def _fixed(planned: list[OffsetRange]) -> dict[str, str]:
    """Return the options that make Spark read exactly these ranges of exactly these topics."""
    starting: dict[str, dict[int, Position]] = {}
    ending: dict[str, dict[int, Position]] = {}
    for found in planned:
        starting.setdefault(found.topic, {})[found.partition] = Position(found.start_offset)
        ending.setdefault(found.topic, {})[found.partition] = Position(found.end_offset, found.leader_epoch)
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
    unneeded = {"columns", "includeheaders", "minpartitions", "maxrecordsperpartition"}
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
