"""Streaming job: reads records after the checkpoint, writes micro-batches, and accounts for what this run read.

The start of the stream is noted beside the checkpoint before it begins. Spark stores the offsets at which micro-batches
end, and asks again for the start of the first one. By then "latest" would lie after records that a first run read but
did not finish.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from coordinator_client.clock import SystemClock
from coordinator_client.errors import TransactionError
from coordinator_client.progress import rate_and_left
from coordinator_client.settings import RAISE
from coordinator_client.transport.connection import Connection
from pyspark_txnlog.bounds import EARLIEST
from pyspark_txnlog.connections import CLIENT_ID, tls_of
from pyspark_txnlog.job_parts.account import PartitionSummary, Summary
from pyspark_txnlog.job_parts.committed_read import (
    PLACES,
    Standings,
    compare_written,
    planned_and_standing,
    standing_of,
    starting_offsets,
    without,
)
from pyspark_txnlog.job_parts.job_settings import PARQUET, JobFailed, JobSettings, Mode
from pyspark_txnlog.job_parts.spark_session import job_session
from pyspark_txnlog.job_parts.targets import Target, check_connector, rows_written, target_of
from pyspark_txnlog.options import FORMAT, SourceOptions, parse_options
from pyspark_txnlog.read.deleted_topics import existing, without_deleted
from pyspark_txnlog.read.planning import SPLIT_STEP_BYTES, measured_steps
from pyspark_txnlog.read.ranges import OffsetRange
from pyspark_txnlog.read.splitting import SplitStep
from pyspark_txnlog.read.stream_offsets import PartitionKey, StreamPosition, Vector, from_json, lose, standings, to_json

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_LOOK_S: Final = 1
"""Interval of checks for progress and for a request to stop (s)."""

_NOTE: Final = "txnlog-job"
"""Directory in the checkpoint with the note about start and output of the stream."""


def run_stream(
    settings: JobSettings,
    *,
    say: Callable[[str], None] = lambda _line: None,
    spark: SparkSession | None = None,
    is_stopping: Callable[[], bool] = lambda: False,
) -> Summary:
    """Read all records after the checkpoint, or continue until `is_stopping`; return the account of this run.

    A micro-batch that is under way when the job stops is given up. The next run repeats it, and no record is in the
    output twice.

    Raises the errors of `run_job`.
    """
    started_ms = SystemClock().monotonic_ms()
    options = parse_options(settings.options, is_stream=True)
    target = target_of(settings)
    with Connection(options.endpoint, client_id=CLIENT_ID, wait_ms=None, tls=tls_of(options)) as connection:
        planned, _ = planned_and_standing(options, may_lack=not options.is_loss_fatal)
        with job_session(settings, spark, say) as session:
            check_connector(session, settings.format)
            begun = _begun(session, settings, options, planned, say)
            query = _started(session, settings, target, beginnings_of(planned, begun))
            run = _Run(connection, options, dict(begun))
            _watch(query, run, is_stopping, say)
            read = run.accounted(say)
            written = rows_written(target, session, read) if run.rows.total() and settings.is_audited else None
        standing = standing_of(connection, options, [found.topic for found in read])
    if written is not None and options.on_corrupt_batch == RAISE:
        places = {(found.topic, found.partition) for found in read}
        compare_written(target, {place: rows for place, rows in run.rows.items() if place in places}, written)
    return Summary(
        isolation=options.isolation,
        partitions=tuple(_summary_of(found, standing, run.rows, written) for found in read),
        elapsed_ms=SystemClock().monotonic_ms() - started_ms,
    )


def beginnings_of(planned: Sequence[OffsetRange], begun: Vector) -> Vector:
    """Return the start of the stream in each partition that exists now.

    That is its original start. Partitions that were added since start at their beginning, and so do those of a topic
    that was created again. Spark asks for the start of all partitions even to repeat a micro-batch without the new
    ones."""
    return {
        place: begun[place] if place in begun and begun[place].topic_id == at.topic_id else at._replace(offset=EARLIEST)
        for place, at in standings(planned).items()
    }


def lost_since(planned: Sequence[OffsetRange], begun: Vector) -> list[str]:
    """Return the topics that were there at the start of the stream, and that are now gone or replaced."""
    ids = {found.topic: found.topic_id for found in planned}
    return sorted({topic for (topic, _), at in begun.items() if ids.get(topic) != at.topic_id})


def _started(spark: SparkSession, settings: JobSettings, target: Target, begun: Vector) -> StreamingQuery:
    options = without(settings.options, PLACES - {"groupid", "kafka.group.id"})
    options["startingOffsets"] = starting_offsets(ranges_between(begun, begun)) if begun else "earliest"
    frame: DataFrame = target.prepared(spark.readStream.format(FORMAT).options(**options).load())
    writer = frame.writeStream.queryName("txnlog")
    if settings.checkpoint:
        writer = writer.option("checkpointLocation", settings.checkpoint)
    if settings.mode is Mode.AVAILABLE_NOW:
        return target.start(writer.trigger(availableNow=True))
    return target.start(writer.trigger(processingTime=settings.trigger_interval))


def _begun(
    spark: SparkSession,
    settings: JobSettings,
    options: SourceOptions,
    planned: list[OffsetRange],
    say: Callable[[str], None],
) -> Vector:
    """Return the start of the stream: here, or as the note in the checkpoint says. Raises JobFailed if checkpoint and
    output do not belong together."""
    from pyspark.sql.functions import lit

    begins = standings(planned)
    if not settings.checkpoint:
        return begins
    path = f"{settings.checkpoint}/{_NOTE}"
    into = f"{settings.format} {settings.output}"
    for line in _lines(spark, path):
        note = json.loads(line)
        if note["into"] != into:
            raise JobFailed(
                f"the checkpoint {settings.checkpoint} is of a stream into {note['into']}, and this one goes into "
                f"{into}: name another --checkpoint, or that --output"
            )
        has_written = settings.format == PARQUET and _lines(spark, f"{settings.checkpoint}/commits")
        if has_written and not _is_there(spark, settings.output):
            raise JobFailed(
                f"{settings.output} is gone, and the checkpoint {settings.checkpoint} says what was written there: "
                "put it back, or begin anew with another --checkpoint"
            )
        say(f"going on behind the checkpoint {settings.checkpoint}")
        begun = from_json(note["begins"])
        # Once Spark has offsets of its own, the stream compares with those.
        if not _lines(spark, f"{settings.checkpoint}/offsets"):
            for topic in lost_since(planned, begun):
                lose(options, f"the topic {topic} in which the stream began was deleted, and perhaps created again")
        return begun
    if settings.format == PARQUET and _is_there(spark, settings.output):
        # Spark's file sink would treat the first micro-batches as repeated ones, and leave them out.
        raise JobFailed(
            f"{settings.output} exists already and the checkpoint {settings.checkpoint} does not know of it; choose "
            "another directory, or the checkpoint that it was written with"
        )
    if not any(name.lower().startswith("starting") for name in settings.options):
        say("the stream begins at the end of its topics; with --starting-offsets earliest it takes what is there too")
    note = json.dumps({"into": into, "begins": to_json(begins)})
    # An unfinished note has no rows, and nothing was read with it.
    spark.range(1).select(lit(note).alias("value")).write.mode("overwrite").text(path)
    return begins


def _lines(spark: SparkSession, path: str) -> list[str]:
    """Return the lines of the files in a directory on any file system of Spark; empty if there is no directory."""
    return [row.value for row in spark.read.text(path).collect()] if _is_there(spark, path) else []


def _is_there(spark: SparkSession, path: str) -> bool:
    from pyspark.errors import AnalysisException

    try:
        # Spark Connect looks for the path only when the schema is used.
        _ = spark.read.text(path).schema
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
        return False
    return True


def _watch(query: StreamingQuery, run: _Run, is_stopping: Callable[[], bool], say: Callable[[str], None]) -> None:
    """Wait for the end of the stream and report its micro-batches. Raises: PySparkException, TransactionError."""
    try:
        is_over = False
        while not is_over:
            if is_stopping():
                say("stopping; the checkpoint says where the next run goes on")
                query.stop()
            is_over = bool(query.awaitTermination(_LOOK_S))
            for progress in query.recentProgress:
                told = run.take(progress)
                if told:
                    say(told)
    finally:
        query.stop()


@dataclass(slots=True)
class _Run:
    """Account of a stream since its start.

    Ranges are measured as they come. Later they may be gone from the log, and a job that must stop has no time to read
    them again."""

    connection: Connection
    options: SourceOptions
    first: dict[PartitionKey, StreamPosition]
    """Start of this run in each partition."""
    at: dict[PartitionKey, StreamPosition] = field(default_factory=dict)
    rows: Counter[PartitionKey] = field(default_factory=Counter)
    unaccounted: set[str] = field(default_factory=set)
    """Topics that were created again during the run."""
    _last_batch: int = -1

    def take(self, progress: Mapping[str, Any]) -> str:
        """Add a micro-batch to the account, unless it is there already. Returns the line to print about it, or an empty
        text. Raises: TransactionError."""
        if progress["batchId"] <= self._last_batch:
            return ""
        source = progress["sources"][0]
        start, end, latest = (
            from_json(json.loads(found)) if found and found != "null" else {}
            for found in (source["startOffset"], source["endOffset"], source["latestOffset"])
        )
        if not self.at:
            # Spark reports no start for its very first micro-batch; it is the start of the stream.
            self.first = start or self.first
            self.at = self.first
        for place, at in end.items():
            if place not in self.first or self.first[place].topic_id != at.topic_id:
                if place in self.first:
                    self.unaccounted.add(place[0])
                self.first[place] = at._replace(offset=0)
        ranges = ranges_between(self.at, end)
        offsets = sum(found.offset_count for found in ranges)
        if not offsets:
            # No new records. For a repeated micro-batch that its sink knows, Spark counts no rows, but it is counted
            # here.
            return ""
        ranges, steps = self._measured(ranges)
        counts = [sum(step.records for step in found) for found in steps]
        for found, count in zip(ranges, counts, strict=True):
            self.rows[found.topic, found.partition] += count
        self.at, self._last_batch = end, progress["batchId"]
        behind = sum(found.offset_count for found in ranges_between(end, latest))
        read = sum(counts)
        pace = rate_and_left(offsets, behind, progress.get("durationMs", {}).get("triggerExecution", 0))
        told = f"micro-batch {self._last_batch}: {read:,} read, {offsets - read:,} hidden, {behind:,} offsets behind"
        return f"{told}, {pace}" if pace else told

    def accounted(self, say: Callable[[str], None]) -> list[OffsetRange]:
        """Return the ranges of this run, for topics that are the same as at its start. For other topics there is no log
        to compare the output with. Raises: TransactionError."""
        read = [found for found in ranges_between(self.first, self.at) if found.offset_count]
        left = [found for found in existing(self.connection, self.options, read) if found.topic not in self.unaccounted]
        gone = sorted(self.unaccounted | {found.topic for found in read} - {found.topic for found in left})
        if gone:
            say(f"not in the account, because they were deleted meanwhile: {', '.join(gone)}")
        return left

    def _measured(self, ranges: list[OffsetRange]) -> tuple[list[OffsetRange], list[list[SplitStep]]]:
        while True:
            try:
                return ranges, measured_steps(self.connection, self.options, ranges, step_bytes=SPLIT_STEP_BYTES)
            except TransactionError as error:
                ranges = without_deleted(self.connection, self.options, ranges, error)


def ranges_between(start: Vector, end: Vector) -> list[OffsetRange]:
    """Return the ranges between two positions of a stream. A partition that the first does not know starts at its
    beginning."""
    ranges = []
    for (topic, partition), found in end.items():
        before = start.get((topic, partition))
        first = before.offset if before and before.topic_id == found.topic_id else 0
        ranges.append(
            OffsetRange(
                topic=topic,
                topic_id=found.topic_id,
                partition=partition,
                start_offset=min(first, found.offset),
                end_offset=found.offset,
            )
        )
    return ranges


def _summary_of(
    found: OffsetRange,
    standing: Standings,
    rows: Mapping[PartitionKey, int],
    written: Mapping[PartitionKey, int] | None,
) -> PartitionSummary:
    place = (found.topic, found.partition)
    last_stable_offset, high_watermark = standing[place]
    return PartitionSummary(
        topic=found.topic,
        partition=found.partition,
        start_offset=found.start_offset,
        end_offset=found.end_offset,
        last_stable_offset=last_stable_offset,
        high_watermark=high_watermark,
        rows=rows.get(place, 0),
        written=None if written is None else written.get(place, 0),
    )
