"""The sink in a real Spark session, against a real server: what a query writes is visible whole and once. A crash of
the driver is made by taking away the last file of `commits`: then Spark writes the micro-batch again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import AnalysisException, PySparkException, StreamingQueryException
from pyspark.sql import functions as f

from coordinator_client import Connection, read
from tests.harness.patience import looks
from tests.spark.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.spark


@pytest.fixture
def values(topics: Topics) -> Callable[[str], list[str]]:
    """Returns what readers of committed records see in a topic, in the order of partitions and offsets."""

    def reading(topic: str) -> list[str]:
        with Connection(topics.endpoint) as connection:
            found = sorted(read(topic, connection), key=lambda record: (record.partition, record.offset))
            return ["" if record.value is None else bytes(record.value).decode() for record in found]

    return reading


@pytest.fixture
def save(topics: Topics) -> Callable[..., None]:
    """Writes rows to a topic."""

    def saving(rows: DataFrame, topic: str = "", **options: str) -> None:
        named = {"topic": topic} if topic else {}
        rows.write.format("txnlog").options(endpoint=topics.endpoint, **named, **options).mode("append").save()

    return saving


Save = Callable[..., None]
Values = Callable[[str], list[str]]


def rows(spark: SparkSession, *values: str, tasks: int = 1) -> DataFrame:
    return spark.createDataFrame([(value,) for value in values], "value string").repartition(tasks)


def test_a_batch_is_written_whole(spark: SparkSession, topics: Topics, save: Save, values: Values) -> None:
    topic = topics.create(2)
    save(rows(spark, *map(str, range(50)), tasks=3), topic)
    assert sorted(values(topic), key=int) == [str(number) for number in range(50)]


def test_nothing_is_written_where_a_task_fails(spark: SparkSession, topics: Topics, save: Save, values: Values) -> None:
    topic = topics.create()
    broken = rows(spark, "0", "1", "2", "3", tasks=2).withColumn(
        "value", f.when(f.col("value") == "3", f.raise_error(f.lit("broken"))).otherwise(f.col("value"))
    )
    with pytest.raises(PySparkException, match="broken"):
        save(broken, topic)
    save(rows(spark, "after"), topic)
    assert values(topic) == ["after"]


ROWS_AT_ONCE = 10_000
"""Rows that Spark hands to a Python worker in one batch."""


@pytest.mark.long
def test_readers_go_on_behind_a_write_whose_query_failed_in_its_only_task(
    spark: SparkSession, topics: Topics, save: Save, values: Values
) -> None:
    """The query fails between two batches of rows, which the worker does not see as an error: a test of Spark's worker,
    too. A stream's driver does not know which batch it was; its task must see to it."""
    topic = topics.create()
    failing = f.when(f.col("id") >= ROWS_AT_ONCE, f.raise_error(f.lit("broken"))).otherwise(f.col("id"))
    value = failing.cast("string").alias("value")
    with pytest.raises(PySparkException, match="broken"):
        save(spark.range(0, ROWS_AT_ONCE + 1, 1, 1).select(value), topic)
    save(rows(spark, "behind the batch"), topic)
    assert values(topic) == ["behind the batch"]


@pytest.mark.long
def test_readers_go_on_behind_a_stream_that_failed_or_was_stopped_while_it_wrote(
    spark: SparkSession, topics: Topics, save: Save, values: Values, tmp_path: Path
) -> None:
    topic = topics.create()
    source = spark.readStream.format("rate-micro-batch").options(rowsPerBatch=ROWS_AT_ONCE * 2, numPartitions=1).load()
    broken = f.when(f.col("value") >= ROWS_AT_ONCE, f.raise_error(f.lit("broken"))).otherwise(f.repeat(f.lit("x"), 512))
    endless = f.when(f.col("value") >= ROWS_AT_ONCE, f.expr("java_method('java.lang.Thread', 'sleep', 1000L)"))

    def start(value: Column, name: str) -> StreamingQuery:
        writing = source.select(value.cast("string").alias("value")).writeStream.format("txnlog")
        writing = writing.options(endpoint=topics.endpoint, topic=topic)
        return writing.option("checkpointLocation", str(tmp_path / name)).start()

    with pytest.raises(StreamingQueryException, match="broken"):
        start(broken, "broken").awaitTermination()
    save(rows(spark, "behind the one that failed"), topic)
    assert values(topic) == ["behind the one that failed"]

    running = start(endless.otherwise(f.repeat(f.lit("x"), 512)), "endless")
    await_hold(topics, topic, is_held=True)
    running.stop()
    save(rows(spark, "behind the one that was stopped"), topic)
    await_hold(topics, topic, is_held=False)
    assert values(topic) == ["behind the one that failed", "behind the one that was stopped"]


def await_hold(topics: Topics, topic: str, *, is_held: bool) -> None:
    for _ in looks("whether readers wait"):
        if topics.is_held_up(topic) is is_held:
            return


def test_records_have_what_the_columns_say(spark: SparkSession, topics: Topics, save: Save) -> None:
    topic, other = topics.create(3), topics.create(1)
    frame = spark.createDataFrame(
        [
            (topic, 2, "k", "a", [("h", b"1"), ("i", None)]),
            (topic, None, "k", "b", []),
            (other, None, None, None, None),
        ],
        "topic string, partition int, key string, value string, headers array<struct<key string, value binary>>",
    )
    save(frame)
    with Connection(topics.endpoint) as connection:
        found = {record.value: record for name in (topic, other) for record in read(name, connection)}
    assert (found[b"a"].partition, found[b"a"].key, found[b"a"].headers) == (2, b"k", (("h", b"1"), ("i", None)))
    assert (found[b"b"].key, found[b"b"].headers) == (b"k", ())
    assert (found[None].topic, found[None].key) == (other, None)


@pytest.mark.long
def test_what_cannot_be_written_is_refused_before_anything_is(
    spark: SparkSession, topics: Topics, save: Save, values: Values
) -> None:
    topic, frame = topics.create(), rows(spark, "a")
    for broken, options, reason in (
        (frame, {"topic": ""}, "no topic is named"),
        (frame.withColumnRenamed("value", "values"), {}, "no column value"),
        (frame.withColumn("more", f.lit(1)), {}, "column more"),
        (frame.withColumn("key", f.lit(1)), {}, "column key is int"),
        (frame, {"subscribe": "t"}, "to write, use topic"),
        (frame, {"sinkname": "x", "sinkNam": "y"}, "did you mean sinkName"),
        (frame, {"txnAppId": "x"}, "go together"),
        (frame, {"delivery": "at-most-once"}, "exactly-once or at-least-once"),
    ):
        with pytest.raises(PySparkException, match=reason):
            save(broken, **({"topic": topic} | options))
    for broken, reason in (
        (frame.withColumn("partition", f.lit(7)), "partition has 7, and topic .* has partitions 0 to 0"),
        (frame.withColumn("partition", f.lit(-1)), "partition has -1"),
    ):
        with pytest.raises(PySparkException, match=reason):
            save(broken, topic)
    with pytest.raises(PySparkException, match="does not exist; create it first"):
        save(frame, "no-such-topic")
    with pytest.raises(PySparkException, match="only ever appended to"):
        frame.write.format("txnlog").options(endpoint=topics.endpoint, topic=topic).mode("overwrite").save()
    with pytest.raises(AnalysisException, match=r"(?i)errorifexists"):
        frame.write.format("txnlog").options(endpoint=topics.endpoint, topic=topic).save()
    assert values(topic) == []


def test_a_write_that_has_a_version_is_not_repeated(
    spark: SparkSession, topics: Topics, save: Save, values: Values
) -> None:
    topic = topics.create()
    for version, value in (("0", "a"), ("0", "a again"), ("3", "b"), ("2", "late")):
        save(rows(spark, value), topic, txnAppId="nightly-" + topic, txnVersion=version)
    assert values(topic) == ["a", "b"]


def test_at_least_once_is_there_for_those_who_want_it(
    spark: SparkSession, topics: Topics, save: Save, values: Values
) -> None:
    topic = topics.create()
    save(rows(spark, "a", "b"), topic, delivery="at-least-once")
    assert values(topic) == ["a", "b"]


# Streams


@pytest.fixture
def run(spark: SparkSession, topics: Topics, tmp_path: Path) -> Callable[..., None]:
    """Copies a topic to another, from the checkpoint to what is there."""

    def running(source: str, target: str, **options: str) -> None:
        asked = {"endpoint": topics.endpoint, "subscribe": source, "startingOffsets": "earliest", "columns": "value"}
        frame = spark.readStream.format("txnlog").options(**asked).load()
        writing = frame.writeStream.format("txnlog").options(endpoint=topics.endpoint, topic=target, **options)
        query = writing.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        query.awaitTermination()

    return running


def forget_last_commit(tmp_path: Path) -> None:
    """Leave the checkpoint as a driver does that died between the decision and Spark's own note of it."""
    commits = tmp_path / "checkpoint" / "commits"
    last = max(commits.glob("[0-9]*"), key=lambda path: int(path.name))
    last.unlink()
    (commits / f".{last.name}.crc").unlink()


@pytest.mark.long
def test_a_stream_from_topic_to_topic_writes_each_record_once(
    run: Callable[..., None], topics: Topics, values: Values, tmp_path: Path
) -> None:
    source, target = topics.create(2), topics.create()
    topics.commit(source, ["a", "b"])
    topics.abort(source, ["x"])
    topics.commit(source, ["c"], partition=1)
    run(source, target)
    forget_last_commit(tmp_path)
    topics.commit(source, ["d"])
    run(source, target)
    run(source, target)
    assert sorted(values(target)) == ["a", "b", "c", "d"]


@pytest.mark.long
def test_another_checkpoint_is_another_sink(
    spark: SparkSession, run: Callable[..., None], topics: Topics, values: Values, tmp_path: Path
) -> None:
    source, target = topics.create(), topics.create()
    topics.commit(source, ["a"])
    run(source, target)
    (tmp_path / "checkpoint").rename(tmp_path / "old")
    run(source, target)
    assert values(target) == ["a", "a"]


def test_a_stream_without_a_checkpoint_or_of_whole_results_is_refused(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    source = topics.create()
    asked = {"endpoint": topics.endpoint, "subscribe": source}
    frame = spark.readStream.format("txnlog").options(**asked).load()
    writing = frame.select("value").writeStream.format("txnlog").options(endpoint=topics.endpoint, topic=source)
    with pytest.raises(AnalysisException, match="checkpointLocation"):
        writing.start()
    counted = frame.groupBy().count().selectExpr("cast(count as string) value")
    complete = counted.writeStream.format("txnlog").options(endpoint=topics.endpoint, topic=source)
    query = complete.outputMode("complete").option("checkpointLocation", str(tmp_path / "c")).start()
    with pytest.raises(StreamingQueryException, match="only ever appended to"):
        query.awaitTermination()


@pytest.mark.long
def test_for_each_batch_every_write_has_a_name_and_is_there_once(
    spark: SparkSession, topics: Topics, values: Values, tmp_path: Path
) -> None:
    source, one, other = topics.create(), topics.create(), topics.create()
    topics.commit(source, ["a", "b"])

    def run(*names: str) -> None:
        def write(frame: DataFrame, _batch_id: int) -> None:
            for target, name in zip((one, other), names, strict=True):
                named = {"sinkName": name} if name else {}
                to = frame.select("value").write.format("txnlog").mode("append")
                to.options(endpoint=topics.endpoint, topic=target, **named).save()

        asked = {"endpoint": topics.endpoint, "subscribe": source, "startingOffsets": "earliest"}
        frame = spark.readStream.format("txnlog").options(**asked).load()
        writing = frame.writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path / "checkpoint"))
        writing.trigger(availableNow=True).start().awaitTermination()

    with pytest.raises(StreamingQueryException, match="set sinkName, another one for each write"):
        run("", "")
    run("one", "other")
    forget_last_commit(tmp_path)
    run("one", "other")
    assert (values(one), values(other)) == (["a", "b"], ["a", "b"])
    topics.commit(source, ["c"])
    with pytest.raises(StreamingQueryException, match="committed by this run already"):
        run("one", "one")
