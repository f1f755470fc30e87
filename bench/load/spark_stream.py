"""Reads a topic with Spark as a stream and discards the rows, or waits at its end for records that do not come.

Operations are rows, or empty triggers. It runs in the environment of either side, as `spark_scan` does.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from bench.load.spark_scan import WARM_UP_SCANS, session
from bench.load.spark_scan import Load as Scan
from bench.processes import processor_seconds
from bench.results import LoadFailed, Run
from bench.window import Window

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

TRIGGER_MS: Final = 100
_SETTLED_S: Final = 5
"""Pause before an idle stream is measured (s), because Spark's first triggers compile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load(Scan):
    """Settings of the load: the source and its options."""

    idle_s: float = 0
    """Time to wait at the end of the topic (s); 0 = read all of it."""


def measure(load: Load) -> Run:
    """Measure a stream once the JVM has compiled the reading code. For an idle stream, measure the server's processor
    time of an empty trigger (us), less the time that it takes without a stream."""
    spark = session(load)
    try:
        return _idle(spark, load) if load.idle_s else _through(spark, load)
    finally:
        spark.stop()


def _through(spark: SparkSession, load: Load) -> Run:
    for _ in range(WARM_UP_SCANS):
        _finish(_start(spark, load))
    window = Window(load.server_process_id)
    query = _start(spark, load)
    _finish(query)
    # Work at the start of a stream is done once, and is not part of its rate.
    filled = [progress for progress in query.recentProgress if progress["numInputRows"]]
    rows = sum(progress["numInputRows"] for progress in filled)
    run = window.close(rows)
    return replace(run, figure=rows / sum(progress["durationMs"]["triggerExecution"] for progress in filled) * 1_000)


def _idle(spark: SparkSession, load: Load) -> Run:
    before = _spent_us(load)
    time.sleep(load.idle_s)
    alone = _spent_us(load) - before
    triggers = _Triggers.on(spark)
    query = _start(spark, load)
    time.sleep(_SETTLED_S)
    seen, window, before = triggers.count, Window(load.server_process_id), _spent_us(load)
    time.sleep(load.idle_s)
    count, spent = triggers.count - seen, _spent_us(load) - before
    run = window.close(count)
    query.stop()
    if count < load.idle_s / TRIGGER_MS * 1_000 / 2:
        raise LoadFailed(f"only {count} triggers ran in {load.idle_s:.0f} s")
    return replace(run, figure=max(0.0, spent - alone) / count)


class _Triggers:
    """Counts the triggers without new records."""

    def __init__(self) -> None:
        self.count = 0

    @classmethod
    def on(cls, spark: SparkSession) -> _Triggers:
        """Begin to count."""
        from pyspark.sql.streaming.listener import StreamingQueryListener

        made = cls()

        class Listener(StreamingQueryListener):
            def onQueryStarted(self, event: object) -> None:  # noqa: N802 - Spark's name
                """Ignored: it is not a trigger."""

            def onQueryProgress(self, event: object) -> None:  # noqa: N802 - Spark's name
                """Ignored: it is not an empty trigger."""

            def onQueryIdle(self, event: object) -> None:  # noqa: N802 - Spark's name
                made.count += 1

            def onQueryTerminated(self, event: object) -> None:  # noqa: N802 - Spark's name
                """Ignored: it is not a trigger."""

        spark.streams.addListener(Listener())
        return made


def _start(spark: SparkSession, load: Load) -> StreamingQuery:
    # Report every empty trigger, not one in ten seconds.
    spark.conf.set("spark.sql.streaming.noDataProgressEventInterval", "0")
    start = "latest" if load.idle_s else "earliest"
    frame = spark.readStream.format(load.format).options(**{**load.options, "startingOffsets": start}).load()
    writer = frame.writeStream.format("noop").option("checkpointLocation", tempfile.mkdtemp(prefix="bench-checkpoint-"))
    if load.idle_s:
        return writer.trigger(processingTime=f"{TRIGGER_MS} milliseconds").start()
    return writer.trigger(availableNow=True).start()


def _finish(query: StreamingQuery) -> None:
    query.awaitTermination()


def _spent_us(load: Load) -> float:
    found = processor_seconds(load.server_process_id)
    if found is None:
        raise LoadFailed("this system does not tell the processor time of a process as Linux does")
    return found * 1e6
