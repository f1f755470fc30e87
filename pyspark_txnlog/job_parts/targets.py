"""Outputs of a job: how to write rows once, how to write them as a stream, and how to read them again.

Each stream is written by a sink that recognises a repeated micro-batch by its number, so that no record is in the
output twice. Parquet uses the log of the file sink, and a Delta table its application id. An Iceberg table uses its
snapshots, and a topic the decisions of our own sink.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Protocol

from pyspark_txnlog.job_parts.job_settings import CONSOLE, DELTA, ICEBERG, PARQUET, TOPIC, JobFailed, JobSettings
from pyspark_txnlog.options import FORMAT
from pyspark_txnlog.read.ranges import OffsetRange
from pyspark_txnlog.write.sink_options import SINK_OPTIONS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_SHOWN_WIDTH: Final = 100
_CONNECTORS: Final = MappingProxyType(
    {
        DELTA: "io.delta:delta-spark_{spark}_2.13:VERSION, with spark.sql.extensions and "
        "spark.sql.catalog.spark_catalog set for it",
        ICEBERG: "org.apache.iceberg:iceberg-spark-runtime-{spark}_2.13:VERSION, with spark.sql.catalog.* "
        "for the catalog of the table",
    }
)


class Target(Protocol):
    """An output for rows."""

    @property
    def place(self) -> str:
        """Return its name for messages."""
        ...

    def prepared(self, frame: DataFrame) -> DataFrame:
        """Return the rows in the form in which they are written."""
        ...

    def write(self, frame: DataFrame) -> None:
        """Write all rows. Raises: PySparkException."""
        ...

    def start(self, writer: DataStreamWriter) -> StreamingQuery:
        """Write the rows of a stream, micro-batch by micro-batch. Raises: PySparkException."""
        ...

    def written(self, spark: SparkSession) -> DataFrame | None:
        """Return the written rows, or None if they cannot be read back. Raises PySparkException if there is no
        output."""
        ...


@dataclass(frozen=True, slots=True)
class Files:
    """A directory of Parquet files, or of a Delta table."""

    format: str
    place: str
    is_overwriting: bool = False

    def prepared(self, frame: DataFrame) -> DataFrame:
        return frame

    def write(self, frame: DataFrame) -> None:
        frame.write.format(self.format).mode("overwrite" if self.is_overwriting else "errorifexists").save(self.place)

    def start(self, writer: DataStreamWriter) -> StreamingQuery:
        return writer.format(self.format).start(self.place)

    def written(self, spark: SparkSession) -> DataFrame:
        return spark.read.format(self.format).load(self.place)


@dataclass(frozen=True, slots=True)
class Table:
    """An Iceberg table, by its name in a catalog."""

    place: str
    is_overwriting: bool = False

    def prepared(self, frame: DataFrame) -> DataFrame:
        return frame

    def write(self, frame: DataFrame) -> None:
        writer = frame.writeTo(self.place).using(ICEBERG)
        if self.is_overwriting:
            writer.createOrReplace()
        else:
            writer.create()

    def start(self, writer: DataStreamWriter) -> StreamingQuery:
        return writer.toTable(self.place, format=ICEBERG)

    def written(self, spark: SparkSession) -> DataFrame:
        return spark.table(self.place)


@dataclass(frozen=True, slots=True)
class TargetTopic:
    """A topic on the same server. Keys, values and headers are written; the key decides the partition."""

    place: str
    options: Mapping[str, str]
    """Options of the sink."""

    def prepared(self, frame: DataFrame) -> DataFrame:
        return frame.select([name for name in ("key", "value", "headers") if name in frame.columns])

    def write(self, frame: DataFrame) -> None:
        frame.write.format(FORMAT).options(**self.options).mode("append").save()

    def start(self, writer: DataStreamWriter) -> StreamingQuery:
        return writer.format(FORMAT).options(**self.options).start()

    def written(self, spark: SparkSession) -> None:
        del spark


@dataclass(frozen=True, slots=True)
class Console:
    """The standard output, for people: keys and values as text."""

    rows_shown: int
    place: str = "the console"

    def prepared(self, frame: DataFrame) -> DataFrame:
        shown = [name for name in ("key", "value") if name in frame.columns]
        return frame.withColumns({name: frame[name].cast("string") for name in shown})

    def write(self, frame: DataFrame) -> None:
        frame.show(self.rows_shown, truncate=_SHOWN_WIDTH)

    def start(self, writer: DataStreamWriter) -> StreamingQuery:
        return writer.format("console").option("numRows", self.rows_shown).option("truncate", _SHOWN_WIDTH).start()

    def written(self, spark: SparkSession) -> None:
        del spark


def target_of(settings: JobSettings) -> Target:
    """Return the output that the settings name."""
    if settings.format == CONSOLE:
        return Console(settings.rows_shown)
    if settings.format == ICEBERG:
        return Table(settings.output, settings.is_overwriting)
    if settings.format == TOPIC:
        shared = {name: value for name, value in settings.options.items() if name in SINK_OPTIONS}
        return TargetTopic(settings.output, {**shared, "topic": settings.output})
    return Files(settings.format, settings.output, settings.is_overwriting)


def rows_written(
    target: Target, spark: SparkSession, ranges: Sequence[OffsetRange] | None = None
) -> dict[tuple[str, int], int] | None:
    """Return the number of rows in the output by partition, within the ranges if they are given. None if its columns do
    not show that. Raises: PySparkException."""
    found = target.written(spark)
    needed = {"topic", "partition"} | ({"offset"} if ranges is not None else set())
    if found is None or not needed <= set(found.columns):
        return None
    if ranges is not None:
        within = (
            (found["topic"] == one.topic)
            & (found["partition"] == one.partition)
            & found["offset"].between(one.start_offset, one.end_offset - 1)
            for one in ranges
        )
        found = found.where(reduce(or_, within))
    counted = found.groupBy("topic", "partition").count().collect()
    return {(row["topic"], row["partition"]): row["count"] for row in counted}


def check_connector(spark: SparkSession, wanted: str) -> None:
    """Check that Spark has the connector of a format, before anything is read. Raises JobFailed with the name of the
    package."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    if wanted not in _CONNECTORS:
        return
    try:
        # The table does not exist; the question is only if Spark finds the connector. Spark Connect looks when the
        # schema is used.
        _ = spark.read.format(wanted).load("txnlog.none").schema
    except (PySparkException, Py4JError) as error:
        # Other problems of an existing connector show when it is used.
        if "DATA_SOURCE_NOT_FOUND" in str(error):
            needed = _CONNECTORS[wanted].format(spark=".".join(spark.version.split(".")[:2]))
            raise JobFailed(
                f"this Spark {spark.version} cannot write {wanted}: it lacks the package {needed}. Start the job with "
                f"spark-submit --packages, in a version with that build, or choose --format {PARQUET}"
            ) from None
