"""The source in a real Spark session, against a real server."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from pyspark_txnlog import read_committed
from pyspark_txnlog.options import topic_ids_json
from tests.spark.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

Read = Callable[..., "DataFrame"]


@pytest.fixture
def read(spark: SparkSession, topics: Topics) -> Read:
    """Reads a topic by the name of the format alone: nothing was registered."""

    def reading(topic: str, **options: str) -> DataFrame:
        source = spark.read.format("txnlog").option("endpoint", topics.endpoint)
        return source.options(**({"subscribe": topic} | options)).load()

    return reading


def values(frame: DataFrame) -> list[str]:
    rows = frame.select("partition", "offset", frame["value"].cast("string").alias("text")).collect()
    return [row.text for row in sorted(rows)]


def offsets(topic: str, **by_partition: int) -> str:
    return json.dumps({topic: {name.removeprefix("p"): offset for name, offset in by_partition.items()}})


def test_the_format_is_found_without_registration_and_has_the_columns_of_the_kafka_source(
    read: Read, topics: Topics
) -> None:
    topic = topics.create()
    topics.commit(topic, ["a"])

    frame = read(topic)

    assert frame.dtypes == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
    ]
    (row,) = frame.collect()
    assert (bytes(row.key), bytes(row.value)) == (b"key", b"a")
    assert (row.topic, row.partition, row.offset, row.timestampType) == (topic, 0, 0, 0)
    assert row.timestamp.astimezone(dt.UTC) == dt.datetime.fromtimestamp(1.5, dt.UTC)


def test_only_committed_records_are_read_unless_others_are_asked_for(read: Read, topics: Topics) -> None:
    topic = topics.create(2)
    topics.commit(topic, ["a", "b"])
    topics.abort(topic, ["x", "y"])
    topics.commit(topic, ["c"], partition=1)
    topics.commit(topic, ["d"])
    topics.leave_open(topic, ["open"])
    topics.commit(topic, ["behind the open one"])

    assert values(read(topic)) == ["a", "b", "d", "c"]
    uncommitted = read(topic, isolationLevel="read_uncommitted")
    assert values(uncommitted) == ["a", "b", "x", "y", "d", "open", "behind the open one", "c"]


@pytest.mark.parametrize("encoding", ["records", "arrow"])
def test_both_encodings_are_read_packed_or_not(read: Read, topics: Topics, encoding: str) -> None:
    topic = topics.create()
    topics.commit(topic, ["plain"], encoding=encoding)
    topics.packed(topic, ["packed", "too"], encoding=encoding)
    assert values(read(topic)) == ["plain", "packed", "too"]


def test_columns_select_and_order(read: Read, topics: Topics) -> None:
    topic = topics.create()
    topics.commit(topic, ["a", "b"])
    frame = read(topic, columns="offset,topic")
    assert [tuple(row) for row in frame.collect()] == [(0, topic), (1, topic)]


def test_starting_and_ending_offsets_bound_the_read(read: Read, topics: Topics) -> None:
    topic = topics.create(2)
    topics.commit(topic, [f"{number}" for number in range(10)])
    topics.commit(topic, ["other"], partition=1)

    within = read(topic, startingOffsets=offsets(topic, p0=3, p1=-2), endingOffsets=offsets(topic, p0=6, p1=-1))

    assert values(within) == ["3", "4", "5", "other"]


def test_partitions_can_be_assigned_and_topics_matched(read: Read, topics: Topics) -> None:
    first, second = topics.create(2), topics.create()
    topics.commit(first, ["a"])
    topics.commit(first, ["b"], partition=1)
    topics.commit(second, ["c"])

    def reading(**options: str) -> DataFrame:
        frame = read(first)
        source = frame.sparkSession.read.format("txnlog").option("endpoint", topics.endpoint)
        return source.options(**options).load()

    assert values(reading(assign=json.dumps({first: [1]}))) == ["b"]
    assert sorted(values(reading(subscribePattern=f"{first[:-1]}\\d"))) == ["a", "b", "c"]
    assert sorted(values(reading(subscribe=f"{first},{second}"))) == ["a", "b", "c"]


def test_headers_come_on_request(read: Read, topics: Topics) -> None:
    topic = topics.create()
    topics.with_headers(topic, "a", [("trace", b"1"), ("trace", None)])
    topics.with_headers(topic, "b", [])

    first, second = read(topic, includeHeaders="true").orderBy("offset").collect()

    assert [(header.key, header.value) for header in first.headers] == [("trace", bytearray(b"1")), ("trace", None)]
    assert second.headers is None


def test_an_empty_topic_is_no_rows(read: Read, topics: Topics) -> None:
    assert read(topics.create(3)).collect() == []


def test_a_range_of_aborted_records_is_no_rows_and_does_not_wait(read: Read, topics: Topics) -> None:
    topic = topics.create()
    topics.commit(topic, ["a"])
    topics.abort(topic, [f"{number}" for number in range(50)])
    aborted_only = read(topic, startingOffsets=offsets(topic, p0=2), rpcTimeoutMs="5000")
    assert aborted_only.collect() == []


def test_the_report_accounts_for_every_offset_of_a_range(read: Read, topics: Topics) -> None:
    topic = topics.create(2)
    topics.commit(topic, ["a", "b"])
    topics.abort(topic, ["x", "y", "z"])
    topics.commit(topic, ["c"], partition=1)

    rows = [tuple(row) for row in read(topic, report="ranges").orderBy("partition").collect()]

    assert rows == [(topic, 0, 0, 7, 2, 3, 2, 0, 0, 0), (topic, 1, 0, 2, 1, 0, 1, 0, 0, 0)]


def test_a_read_goes_on_behind_another_and_fails_where_that_is_of_another_log(read: Read, topics: Topics) -> None:
    topic = topics.create()
    topics.commit(topic, ["a"])
    (row,) = read(topic, report="ranges").collect()
    topics.commit(topic, ["b"])

    def behind(offset: int, leader_epoch: int) -> DataFrame:
        position = {"offset": offset, "leaderEpoch": leader_epoch}
        return read(topic, startingOffsets=json.dumps({topic: {"0": position}}))

    assert values(behind(row.endOffset, row.leaderEpoch)) == ["b"]
    with pytest.raises(
        Exception, match=r"DataLoss: startingOffsets is of a log of .* went another way from offset 4 on"
    ):
        behind(9, row.leaderEpoch).collect()


def test_more_tasks_read_the_same_records(read: Read, topics: Topics) -> None:
    topic = topics.create()
    for start in range(0, 60, 20):
        topics.commit(topic, [f"{number:02}" for number in range(start, start + 20)])
        topics.abort(topic, ["aborted"] * 7)

    frame = read(topic, minPartitions="9")

    assert frame.rdd.getNumPartitions() == 9
    assert values(frame) == [f"{number:02}" for number in range(60)]


def test_the_end_is_fixed_when_the_query_is_planned(read: Read, topics: Topics) -> None:
    topic = topics.create()
    topics.commit(topic, ["a"])
    planned = read(topic)
    planned.rdd.getNumPartitions()
    topics.commit(topic, ["b"])
    assert planned.rdd.count() == 1
    assert read(topic).count() == 2


@pytest.mark.long
def test_conditions_of_a_query_cut_the_read(spark: SparkSession, read: Read, topics: Topics) -> None:
    topic = topics.create(3)
    for partition in range(3):
        topics.commit_at(topic, [(1_000, "a"), (2_000, "b")], partition=partition)
        topics.commit_at(topic, [(3_000, "c"), (4_000, "d")], partition=partition)
    frame = read(topic, pushdown="true")
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        narrow = frame.where("partition in (0, 2) and offset < 4 and timestamp >= timestamp_millis(2500)")
        assert (narrow.rdd.getNumPartitions(), values(narrow)) == (2, ["c", "c"])
        assert values(frame.where("partition = 1 and timestamp < timestamp_millis(3500)")) == ["a", "b", "c"]
        assert frame.where("offset > 90").collect() == []
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")
    with pytest.raises(Exception, match=r"spark\.sql\.python\.filterPushdown\.enabled"):
        read(topic, pushdown="true").where("partition = 1").collect()
    # Without the option the source has nothing that Spark could refuse.
    assert values(read(topic).where("partition = 1 and offset = 0")) == ["a"]


def test_an_error_says_what_is_wrong_before_anything_else(spark: SparkSession, read: Read, topics: Topics) -> None:
    topic = topics.create()

    def told(line: int) -> list[str]:
        told: list[str] = []
        for reading in (lambda: read(topic, colums="key"), lambda: read("no-such-topic").collect()):
            with pytest.raises(Exception, match=r"InvalidOption|UNKNOWN_TOPIC") as error:
                reading()
            told.append(str(error.value).splitlines()[line])
        return told

    reasons = [r"InvalidOption: the option colums does not exist; did you mean columns\?", "UNKNOWN_TOPIC_OR_PARTITION"]
    # Behind the place of one line of the source.
    for line, reason in zip(told(3), reasons, strict=True):
        assert re.search(reason, line), line
    spark.conf.set("spark.sql.execution.pyspark.udf.hideTraceback.enabled", "true")
    try:
        for line, reason in zip(told(0), reasons, strict=True):
            assert re.search(reason, line), line
    finally:
        spark.conf.unset("spark.sql.execution.pyspark.udf.hideTraceback.enabled")


def test_an_unknown_topic_is_named(read: Read) -> None:
    with pytest.raises(Exception, match=r"UNKNOWN_TOPIC_OR_PARTITION.*'no-such-topic'"):
        read("no-such-topic").collect()


def test_a_recreated_topic_is_not_taken_for_the_old_one(read: Read, topics: Topics) -> None:
    topic = topics.create()
    topics.commit(topic, ["a"])
    old = topics.topic_id(topic)
    planned = read(topic)
    planned.rdd.getNumPartitions()
    topics.recreate(topic)
    topics.commit(topic, ["b"])

    with pytest.raises(Exception, match=r"UNKNOWN_TOPIC_ID|INCONSISTENT_TOPIC_ID"):
        planned.rdd.count()
    with pytest.raises(Exception, match="is gone; another one of that name was created"):
        read(topic, topicIds=topic_ids_json({topic: old})).collect()
    assert values(read(topic, topicIds=topic_ids_json({topic: topics.topic_id(topic)}))) == ["b"]


def test_a_wrong_option_is_told_at_load(read: Read) -> None:
    with pytest.raises(Exception, match="the option colums does not exist; did you mean columns"):
        read("any", colums="key")


def test_a_schema_of_the_users_own_is_refused(spark: SparkSession, topics: Topics) -> None:
    topic = topics.create()
    own = spark.read.format("txnlog").schema("value string").option("endpoint", topics.endpoint)
    with pytest.raises(Exception, match="the columns of this source are fixed"):
        own.option("subscribe", topic).load().collect()


def test_one_call_reads_what_is_committed(spark: SparkSession, topics: Topics) -> None:
    topic = topics.create()
    topics.commit(topic, ["a", "b"])
    topics.abort(topic, ["x"])
    assert values(read_committed(spark, topics.endpoint, topic, columns="partition,offset,value")) == ["a", "b"]


def test_records_that_were_deleted_are_a_loss_where_they_were_asked_for_and_else_none(
    read: Read, topics: Topics
) -> None:
    topic = topics.create()
    topics.commit(topic, ["a", "b"])
    topics.commit(topic, ["c"])
    topics.delete_records(topic, 3)
    assert values(read(topic)) == ["c"]
    with pytest.raises(Exception, match="failOnDataLoss"):
        read(topic, startingOffsets=offsets(topic, p0=1)).collect()
    assert values(read(topic, startingOffsets=offsets(topic, p0=1), failOnDataLoss="false")) == ["c"]


@pytest.mark.long
def test_a_batch_that_cannot_be_read_fails_its_task_and_is_named(read: Read, topics: Topics) -> None:
    topic = _with_a_corrupt_batch(topics)
    with pytest.raises(Exception, match=rf"CorruptBatch.*CORRUPT_MESSAGE.*{topic}-1 at offset 3.*onCorruptBatch=skip"):
        read(topic).collect()
    # Other partitions stay readable.
    assert values(read(topic, startingOffsets=offsets(topic, p0=-2, p1=5))) == ["a", "d"]


def test_a_batch_that_cannot_be_read_is_skipped_and_accounted_for(read: Read, topics: Topics) -> None:
    topic = _with_a_corrupt_batch(topics)
    assert values(read(topic, onCorruptBatch="skip")) == ["a", "b", "c", "d"]
    rows = read(topic, onCorruptBatch="skip", report="ranges").orderBy("partition").collect()
    assert [(row.partition, row.corruptBatches, row.corruptOffsets) for row in rows] == [(0, 0, 0), (1, 1, 2)]


def _with_a_corrupt_batch(topics: Topics) -> str:
    """Nothing is wrong with partition 0. In partition 1 two records and a marker lie before offset 3, and one record
    from offset 5 on; between them is a batch that no reader can decode."""
    topic = topics.create(2, validate_payload="header")
    topics.commit(topic, ["a"])
    topics.commit(topic, ["b", "c"], partition=1)
    topics.corrupt(topic, 2, partition=1)
    topics.commit(topic, ["d"], partition=1)
    return topic


def test_all_actions_on_one_frame_read_what_was_there_at_the_first(read: Read, topics: Topics) -> None:
    """Spark plans the source once for a frame and all that is derived of it; a frame that is loaded anew reads on."""
    topic = topics.create()
    topics.commit(topic, ["a"])
    frame = read(topic)
    topics.commit(topic, ["b"])
    assert values(frame) == ["a", "b"], "it is the first action that counts, not load()"
    topics.commit(topic, ["c"])
    assert values(frame) == ["a", "b"]
    frame.createOrReplaceTempView("kept_frame")
    assert frame.where("offset >= 0").count() == frame.sparkSession.table("kept_frame").count() == 2
    assert values(read(topic)) == ["a", "b", "c"]
