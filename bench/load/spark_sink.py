"""Writes a topic with Spark in batch mode, or copies it to another one as a stream, in small micro-batches.

Operations are rows, or micro-batches. It runs in the environment of either side, as `spark_scan` does.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from bench.load.spark_scan import Load as Scan
from bench.load.spark_scan import session
from bench.results import LoadFailed, Run
from bench.window import Window

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BATCH_ROWS: Final = 1_000
"""Rows of a micro-batch."""
_WARM_UP: Final = 20
"""Number of micro-batches before the first one that counts: Spark compiles while they run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load(Scan):
    """Settings of the load. `options` are those of the copy's source."""

    write_options: Mapping[str, str]
    source: str
    target: str
    rows: int
    value_bytes: int
    micro_batches: int = 0
    """Number of measured micro-batches of a copy; 0 = measure the writing in batch mode."""


def measure(load: Load) -> Run:
    """Measure the second of two writes, in rows per second; or the median of the micro-batches of a copy, in ms."""
    spark = session(load)
    try:
        return _copied(spark, load) if load.micro_batches else _written(spark, load)
    finally:
        spark.stop()


def _written(spark: SparkSession, load: Load) -> Run:
    _write(spark, load, load.rows)
    window = Window(load.server_process_id)
    _write(spark, load, load.rows)
    return window.close(load.rows)


def _write(spark: SparkSession, load: Load, rows: int) -> None:
    """Write rows that Spark makes itself, in two tasks."""
    made = spark.range(0, rows, 1, 2).selectExpr(f"repeat('v', {load.value_bytes}) AS value")
    written = made.write.format(load.format).options(**load.write_options).option("topic", load.source)
    written.mode("append").save()


def _copied(spark: SparkSession, load: Load) -> Run:
    _write(spark, load, (_WARM_UP + load.micro_batches) * BATCH_ROWS)
    # By default, Spark keeps only the last ones.
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", str(_WARM_UP + load.micro_batches + 1))
    limits = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": str(BATCH_ROWS)}
    copied = spark.readStream.format(load.format).options(**{**load.options, **limits}).load().select("key", "value")
    writer = copied.writeStream.format(load.format).options(**load.write_options).option("topic", load.target)
    writer = writer.option("checkpointLocation", tempfile.mkdtemp(prefix="bench-checkpoint-"))
    window = Window(load.server_process_id)
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    told: list[Any] = [progress for progress in query.recentProgress if progress["numInputRows"]]
    run = window.close(len(told))
    measured = told[_WARM_UP:]
    if len(measured) < load.micro_batches:
        raise LoadFailed(f"only {len(told)} micro-batches had rows")
    return replace(run, figure=statistics.median(each["durationMs"]["triggerExecution"] for each in measured))
