"""One job: read topics up to a fixed end, put them somewhere, and account for every offset, partition by partition.

The range of every partition is fixed before Spark starts, so the report is about exactly what was read, and mistakes
like a wrong topic are told at once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from coordinator_client.admin.admin import Admin
from coordinator_client.clock import SystemClock
from coordinator_client.transport.connection import Connection
from pyspark_txnlog.advice import ALIASES, OPTIONS
from pyspark_txnlog.bounds import InvalidOption, Position, offsets_json
from pyspark_txnlog.job_parts.account import PartitionSummary, Summary
from pyspark_txnlog.job_parts.job_settings import PARQUET, JobFailed, JobSettings
from pyspark_txnlog.job_parts.spark_session import job_session
from pyspark_txnlog.job_parts.targets import Target, check_connector, rows_written, target_of
from pyspark_txnlog.options import FORMAT, Report, SourceOptions, parse_options, topic_ids_json
from pyspark_txnlog.read.planning import CLIENT_ID, plan_read, tls_of
from pyspark_txnlog.read.ranges import OffsetRange

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_Counts = dict[tuple[str, int], tuple[int, ...]]


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
    target = target_of(settings)
    planned, standing = planned_and_standing(options)
    offsets = sum(found.offset_count for found in planned)
    say(f"{len(planned)} partitions with {offsets:,} offsets to read as {options.isolation} from {options.endpoint}")
    with job_session(settings, spark, say) as session:
        check_connector(session, settings.format)
        fixed = _fixed(settings.options, planned)
        say(f"writing {settings.format} to {target.place}")
        target.write(target.prepared(session.read.format(FORMAT).options(**fixed).load()))
        written = rows_written(target, session)
        hidden = _audited(session, fixed, target, written, say) if settings.is_audited else {}
        if planned:
            say(f"the next read goes on behind this one with --starting-offsets '{fixed['endingOffsets']}'")
    partitions = tuple(
        _summary_of(found, standing[found.topic, found.partition], written, hidden.get((found.topic, found.partition)))
        for found in planned
    )
    return Summary(
        isolation=options.isolation, partitions=partitions, elapsed_ms=SystemClock().monotonic_ms() - started_ms
    )


Standings = dict[tuple[str, int], tuple[int, int]]
"""The last stable offset and the high watermark of each partition."""


def planned_and_standing(options: SourceOptions, *, may_lack: bool = False) -> tuple[list[OffsetRange], Standings]:
    """Return what there is to read, and where its partitions stand. `may_lack`: as for `plan_read`. Raises: as
    `plan_read`; InvalidOption for a snapshot."""
    if options.is_snapshot:
        raise InvalidOption(
            "the job accounts for every offset up to an end, and a snapshot has none: leave isolationLevel out, "
            "or read the snapshot with spark.read"
        )
    with Connection(options.endpoint, client_id=CLIENT_ID, wait_ms=None, tls=tls_of(options)) as connection:
        planned = plan_read(connection, options, may_lack=may_lack)
        # Asked after the ends were taken: the positions of a partition only grow.
        return planned, standing_of(connection, options, [found.topic for found in planned])


def standing_of(connection: Connection, options: SourceOptions, topics: Sequence[str]) -> Standings:
    """Return where all partitions of the topics stand. Raises: TransactionError."""
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
"""Options that say where a read begins and ends. Once that is known, offsets say it."""

TOPICS: Final = frozenset({"subscribe", "subscribepattern", "assign"})
"""Options that say which partitions are read."""


def without(options: dict[str, str], names: frozenset[str]) -> dict[str, str]:
    """Return the options without some, whose names are in lower case."""
    return {name: value for name, value in options.items() if name.lower() not in names}


def _fixed(options: dict[str, str], planned: list[OffsetRange]) -> dict[str, str]:
    """Return the options that make Spark read exactly these ranges, whatever comes meanwhile."""
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
    """Return where the ranges begin, as startingOffsets has it."""
    starting: dict[str, dict[int, Position]] = {}
    for found in ranges:
        starting.setdefault(found.topic, {})[found.partition] = Position(found.start_offset)
    return offsets_json(starting)


def _audited(
    spark: SparkSession,
    fixed: dict[str, str],
    target: Target,
    written: dict[tuple[str, int], int] | None,
    say: Callable[[str], None],
) -> _Counts:
    """Return the records of each range by what became of them. Raises: JobFailed where the output has other ones."""
    say("counting what is hidden")
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
    """Check that the output holds the rows that were read. Raises: JobFailed."""
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
