"""Spark reads of the topics of the case `consume`, once and as a stream.

Our source reads from our server, Kafka's source from Kafka. A third source reads nothing, and is the limit for sources
written in Python."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench.arena import Arena
from bench.case import Case, Row
from bench.contenders import kafka, own
from bench.filled import FullTopic, fill_kafka, fill_own, full_topics
from bench.load.fill import ABORTED_OF_TEN, PARTITIONS
from bench.programs import load_command, output_of, run_of_output
from bench.results import ROWS_PER_SECOND, CannotRun, Run
from pyspark_txnlog.job_parts.spark_session import JavaMissing, check_java

if TYPE_CHECKING:
    from bench.kafka.broker import Broker


CEILING: Final = "constant batch"
STREAM: Final = "txnlog source, a stream"
UNIX_SOCKETS: Final = "txnlog source, Unix sockets"
_UNIX_SOCKETS: Final = {"spark.python.unix.domain.socket.enabled": "true"}
"""Setting for Unix sockets between Spark and its Python workers, which otherwise use TCP."""


def rows(arena: Arena) -> list[Row]:
    """Return a row for each record size; every column is read."""
    topics = full_topics(arena)
    return [_row(arena, topic) for topic in (topics[:1] if arena.scale.is_quick else topics)]


def _row(arena: Arena, topic: FullTopic) -> Row:
    ours = own("txnlog source", lambda: _measure_own(arena, topic))
    theirs = kafka(arena, "kafka source", lambda broker: _measure_kafka(arena, broker, topic))
    by_unix_sockets = own(UNIX_SOCKETS, lambda: _measure_own(arena, topic, settings=_UNIX_SOCKETS))
    ceiling = own(CEILING, lambda: _measure_ceiling(topic))
    streaming = own(STREAM, lambda: _measure_own(arena, topic, "spark_stream"))
    their_stream = kafka(
        arena, "kafka source, a stream", lambda broker: _measure_kafka(arena, broker, topic, "spark_stream")
    )
    return Row(topic.label, ROWS_PER_SECOND, [ours, by_unix_sockets, streaming, ceiling, *theirs, *their_stream])


def _measure_ceiling(topic: FullTopic) -> Run:
    need_java()
    # As many rows as a committed reader of the topic gets.
    rows = topic.records * (10 - ABORTED_OF_TEN) // 10 // PARTITIONS
    options = {"rows": str(rows), "valueBytes": str(topic.value_bytes), "partitions": str(PARTITIONS)}
    return scan({"format": "constant", "options": options})


def need_java() -> None:
    """Check that Java is installed. Raises: CannotRun."""
    try:
        check_java()
    except JavaMissing as problem:
        raise CannotRun(str(problem)) from None


def _measure_own(arena: Arena, topic: FullTopic, program: str = "spark_scan", **more: object) -> Run:
    need_java()
    server = fill_own(arena, topic)
    options = {"endpoint": server.endpoint, "subscribe": topic.name}
    load = {"format": "txnlog", "options": options, "server_process_id": server.process_id, **more}
    return scan(load, program=program)


def _measure_kafka(arena: Arena, broker: Broker, topic: FullTopic, program: str = "spark_scan") -> Run:
    fill_kafka(arena, broker, topic)
    return kafka_scan(arena, broker, topic.name, program)


def kafka_scan(arena: Arena, broker: Broker, topic: str, program: str, **more: object) -> Run:
    """Run a load program with Spark's Kafka source. Raises: CannotRun, LoadFailed."""
    python, jars = arena.toolchain().spark()
    options = {
        "kafka.bootstrap.servers": broker.bootstrap,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "kafka.isolation.level": "read_committed",
    }
    names = [str(jar) for jar in jars]
    settings = {"format": "kafka", "options": options, "jars": names, "server_process_id": broker.process_id, **more}
    return scan(settings, python, program)


def scan(settings: Mapping[str, object], python: Path | None = None, program: str = "spark_scan") -> Run:
    """Run a load program of Spark, in this Python or in another. Raises: LoadFailed."""
    command, environment = load_command(program, settings, python)
    return run_of_output(output_of(command, "reading with Spark", environment))


CASE: Final = Case("spark_read", "rows per second that Spark reads, once and as a stream", rows)
