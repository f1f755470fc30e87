"""Batch job: reads topics up to a fixed end, writes the rows, and accounts for every offset of each partition.

The range of every partition is fixed before Spark starts. So the report covers exactly the read ranges, and mistakes
such as a wrong topic are reported at once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from coordinator_client.admin.admin import Admin
from coordinator_client.clock import SystemClock
from coordinator_client.progress import ProgressShown
from coordinator_client.transport.connection import Connection
from pyspark_txnlog.advice import ALIASES, OPTIONS
from pyspark_txnlog.bounds import InvalidOption, Position, offsets_json
from pyspark_txnlog.connections import CLIENT_ID, tls_of
from pyspark_txnlog.job_parts.account import PartitionSummary, Summary
from pyspark_txnlog.job_parts.job_progress import JobProgress
from pyspark_txnlog.job_parts.job_settings import CONSOLE, PARQUET, JobFailed, JobSettings
from pyspark_txnlog.job_parts.spark_session import job_session
from pyspark_txnlog.job_parts.targets import Target, check_connector, rows_written, target_of
from pyspark_txnlog.options import FORMAT, Report, SourceOptions, parse_options, topic_ids_json
from pyspark_txnlog.read.planning import SPLIT_STEP_BYTES, measured_steps, plan_read
from pyspark_txnlog.read.ranges import OffsetRange

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_Counts = dict[tuple[str, int], tuple[int, ...]]


def run_job(
    settings: JobSettings,
    *,
    say: Callable[[str], None] = lambda _line: None,
    spark: SparkSession | None = None,
    shown: ProgressShown = ProgressShown.NOWHERE,
) -> Summary:
    """Read, write and audit; return the account. Spark is stopped at the end if it was started here.

    `say` is called with a line for each step, and `shown` says where the progress of a step is shown.

    Raises JobFailed if the output differs from the log or cannot be written. Also raises InvalidOption, UnknownTopic,
    DataLoss, JavaMissing and PySparkException, and TransactionError if the server refuses or is out of reach.
    """
    started_ms = SystemClock().monotonic_ms()
    options = parse_options(settings.options)
    if settings.format == PARQUET and not settings.is_overwriting and Path(settings.output).exists():
        raise JobFailed(f"{settings.output} exists already; choose another directory, or say --overwrite")
    target = target_of(settings)
    planned, standing = planned_and_standing(options)
    offsets = sum(found.offset_count for found in planned)
    say(f"{len(planned)} partitions with {offsets:,} offsets to read as {options.isolation} from {options.endpoint}")
    with job_session(settings, spark, say) as session:
        check_connector(session, settings.format)
        fixed = _fixed(settings.options, planned)
        progress = JobProgress(session, shown)
        # The console shows the first rows only.
        is_counted = progress.is_shown and settings.format != CONSOLE
        visible = _visible_records(options, planned) if is_counted else None
        say(f"writing {settings.format} to {target.place}")
        with progress.step("written", "records", visible):
            target.write(target.prepared(session.read.format(FORMAT).options(**fixed).load()))
        with progress.step("counted", "rows", visible):
            written = rows_written(target, session)
        hidden: _Counts = {}
        if settings.is_audited:
            say("counting what is hidden")
            with progress.step("checked", "offsets", offsets):
                hidden = _audited(session, fixed, target, written)
        if planned:
            say(f"the next read goes on behind this one with --starting-offsets '{fixed['endingOffsets']}'")
    partitions = tuple(
        _summary_of(found, standing[found.topic, found.partition], written, hidden.get((found.topic, found.partition)))
        for found in planned
    )
    return Summary(
        isolation=options.isolation, partitions=partitions, elapsed_ms=SystemClock().monotonic_ms() - started_ms
    )


def _visible_records(options: SourceOptions, planned: Sequence[OffsetRange]) -> int:
    """Return the number of records that the ranges show, as the server measures it. Raises: TransactionError."""
    with Connection(options.endpoint, client_id=CLIENT_ID, wait_ms=None, tls=tls_of(options)) as connection:
        measured = measured_steps(connection, options, planned, step_bytes=SPLIT_STEP_BYTES)
    return sum(step.records for steps in measured for step in steps)


Standings = dict[tuple[str, int], tuple[int, int]]
"""Last stable offset and high watermark of each partition."""


def planned_and_standing(options: SourceOptions, *, may_lack: bool = False) -> tuple[list[OffsetRange], Standings]:
    """Return the ranges to read, and the positions of their partitions.

    `may_lack` is passed to `plan_read`. Raises the errors of `plan_read`, and InvalidOption for a snapshot."""
    if options.is_snapshot:
        raise InvalidOption(
            "the job accounts for every offset up to an end, and a snapshot has none: leave isolationLevel out, "
            "or read the snapshot with spark.read"
        )
    with Connection(options.endpoint, client_id=CLIENT_ID, wait_ms=None, tls=tls_of(options)) as connection:
        planned = plan_read(connection, options, may_lack=may_lack)
        # Requested after the ends were taken, so that no position is below them: positions only grow.
        return planned, standing_of(connection, options, [found.topic for found in planned])


def standing_of(connection: Connection, options: SourceOptions, topics: Sequence[str]) -> Standings:
    """Return the positions of all partitions of the topics. Raises: TransactionError."""
    names = tuple(dict.fromkeys(topics))
    described = Admin(connection, deadline_ms=options.rpc_timeout_ms).describe_topics(names) if names else []
    return {
        (topic.name, found.partition): (found.last_stable_offset, found.high_watermark)
        for topic in described
        for found in topic.partitions
    }


PLACES: Final = frozenset(
    name.lower()
    for name in (*OPTIONS, *ALIASES)
    if name.startswith(("starting", "ending", "groupId")) or ALIASES.get(name) == "groupId"
)
"""Options that define start and end of a read. Once the ranges are known, offsets replace them."""

TOPICS: Final = frozenset({"subscribe", "subscribepattern", "assign"})
"""Options that choose the partitions to read."""


def without(options: dict[str, str], names: frozenset[str]) -> dict[str, str]:
    """Return the options without those in `names`, which are in lower case."""
    return {name: value for name, value in options.items() if name.lower() not in names}


def _fixed(options: dict[str, str], planned: list[OffsetRange]) -> dict[str, str]:
    """Return options that make Spark read exactly these ranges, even if records arrive meanwhile."""
    kept = without(options, PLACES)
    if not planned:
        return kept
    ending: dict[str, dict[int, Position]] = {}
    for found in planned:
        ending.setdefault(found.topic, {})[found.partition] = Position(found.end_offset, found.leader_epoch)
    return without(kept, TOPICS) | {
        "assign": json.dumps({topic: list(partitions) for topic, partitions in ending.items()}),
        "startingOffsets": starting_offsets(planned),
        "endingOffsets": offsets_json(ending),
        "topicIds": topic_ids_json({found.topic: found.topic_id for found in planned}),
    }


def starting_offsets(ranges: Sequence[OffsetRange]) -> str:
    """Return the starts of the ranges in the format of startingOffsets."""
    starting: dict[str, dict[int, Position]] = {}
    for found in ranges:
        starting.setdefault(found.topic, {})[found.partition] = Position(found.start_offset)
    return offsets_json(starting)


def _audited(
    spark: SparkSession,
    fixed: dict[str, str],
    target: Target,
    written: dict[tuple[str, int], int] | None,
) -> _Counts:
    """Return the counts of each range: visible, aborted, markers, corrupt. Raises JobFailed if the output has other
    rows."""
    asked = without(fixed, frozenset({"columns", "includeheaders", "minpartitions", "maxrecordsperpartition"}))
    report = spark.read.format(FORMAT).options(**asked, report=Report.RANGES.value).load()
    counts: _Counts = {
        (row.topic, row.partition): (row.rows, row.abortedRecords, row.controlRecords, row.corruptOffsets)
        for row in report.collect()
    }
    if written is not None:
        compare_written(target, {place: rows for place, (rows, *_) in counts.items()}, written)
    return counts


def compare_written(
    target: Target, read: Mapping[tuple[str, int], int], written: Mapping[tuple[str, int], int]
) -> None:
    """Check that the output has the rows that were read. Raises: JobFailed."""
    for (topic, partition), rows in read.items():
        found = written.get((topic, partition), 0)
        if found != rows:
            raise JobFailed(
                f"{target.place} holds {found} rows of {topic}-{partition} and the log {rows}: do not use it, and "
                "report this"
            )


def _summary_of(
    found: OffsetRange,
    standing: tuple[int, int],
    written: dict[tuple[str, int], int] | None,
    hidden: tuple[int, ...] | None,
) -> PartitionSummary:
    last_stable_offset, high_watermark = standing
    in_output = None if written is None else written.get((found.topic, found.partition), 0)
    rows, aborted, control, corrupt = hidden or (in_output, None, None, None)
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
        written=in_output,
    )
