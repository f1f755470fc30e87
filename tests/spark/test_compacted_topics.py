"""Spark on a topic that its server has compacted: rows, splits, limits and lag go on over offsets that are gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from coordinator_client import Producer
from coordinator_client import read as read_topic
from coordinator_client.admin.admin import Admin
from coordinator_client.values import TopicPartition
from tests.harness.compacted_topic import EAGER, END, LEFT, left_from, make_compacted
from tests.harness.patience import looks
from tests.harness.server_process import ServerProcess
from tests.spark.streams import Stream
from tests.spark.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.spark]

TOPIC = "compacted"


@pytest.fixture(scope="session")
def compacted(server: ServerProcess) -> str:
    make_compacted(server.address, TOPIC)
    return TOPIC


def read(spark: SparkSession, topics: Topics, **options: str) -> DataFrame:
    return spark.read.format("txnlog").options(endpoint=topics.endpoint, subscribe=TOPIC, **options).load()


def keys(frame: DataFrame) -> dict[int, bytes]:
    return {row.offset: bytes(row.key) for row in frame.select("offset", "key").collect()}


@pytest.mark.usefixtures("compacted")
def test_a_batch_read_has_what_is_left_however_it_is_split(spark: SparkSession, topics: Topics) -> None:
    assert keys(read(spark, topics)) == LEFT
    for records_max in (1, 2, 5):
        split = read(spark, topics, maxRecordsPerPartition=str(records_max))
        assert keys(split) == LEFT
        sizes = [len(part) for part in split.rdd.glom().collect()]
        assert max(sizes) <= records_max
    assert keys(read(spark, topics, minPartitions="4")) == LEFT
    assert keys(read(spark, topics, isolationLevel="snapshot")) == LEFT


@pytest.mark.usefixtures("compacted")
@pytest.mark.parametrize(("start", "end"), [(2, END), (8, END), (24, END), (0, 5), (5, 13), (12, 13)])
def test_a_range_may_begin_and_end_where_nothing_is_left(
    spark: SparkSession, topics: Topics, start: int, end: int
) -> None:
    places = {"startingOffsets": f'{{"{TOPIC}":{{"0":{start}}}}}', "endingOffsets": f'{{"{TOPIC}":{{"0":{end}}}}}'}
    assert sorted(keys(read(spark, topics, **places))) == left_from(start, end)
    (report,) = read(spark, topics, report="ranges", **places).collect()
    assert (report.startOffset, report.endOffset, report.rows) == (start, end, len(left_from(start, end)))


@pytest.mark.long
@pytest.mark.parametrize(
    "limit", [{"maxRecordsPerTrigger": "2"}, {"maxOffsetsPerTrigger": "4"}, {"maxBytesPerTrigger": "200"}]
)
def test_a_stream_with_a_limit_goes_on_past_holes(
    spark: SparkSession, compacted: str, stream: Stream, limit: dict[str, str]
) -> None:
    query = stream(compacted, **limit)
    written = spark.read.parquet(str(stream.output)).select("offset").collect()
    assert sorted(row.offset for row in written) == list(LEFT)
    assert len(stream.batches()) > 1
    if "maxRecordsPerTrigger" in limit:
        assert all(progress["numInputRows"] <= 2 for progress in query.recentProgress)


@pytest.mark.long
def test_a_stream_publishes_an_end_without_lag(compacted: str, stream: Stream, admin: Admin) -> None:
    stream(compacted, groupId="a stream of what is left")
    # The last commit comes with the next trigger.
    stream(compacted, groupId="a stream of what is left")
    (lag,) = admin.group_lag("a stream of what is left")
    assert lag.offset.partition == TopicPartition(TOPIC, 0)
    assert lag.lag is not None
    assert lag.lag.to_last_stable_offset == 0


@pytest.mark.long
def test_limits_are_not_wasted_on_offsets_that_are_gone(
    spark: SparkSession, server: ServerProcess, topics: Topics, admin: Admin, stream: Stream
) -> None:
    """The topic has 39 records at 420 offsets. Four or five micro-batches of ten take them."""
    topic = make_sparse(server, admin)
    query = stream(topic, maxRecordsPerTrigger="10")
    rows = [progress["numInputRows"] for progress in query.recentProgress]
    assert sum(rows) == len(spark.read.parquet(str(stream.output)).collect())
    assert max(rows) <= 10
    assert len(rows) <= 5, rows
    split = spark.read.format("txnlog").options(endpoint=topics.endpoint, subscribe=topic, maxRecordsPerPartition="10")
    sizes = [len(part) for part in split.load().rdd.glom().collect()]
    assert max(sizes) <= 10
    assert len(sizes) <= 5, sizes


def make_sparse(server: ServerProcess, admin: Admin) -> str:
    """A topic of batches of 20 offsets, of each of which one record is left; the last batch is whole."""
    topic = "sparse"
    admin.create_topic(topic, config=EAGER)
    with Producer(server.address, transactional_id="writer of the sparse topic") as producer:
        for number in range(20):
            with producer.transaction() as transaction:
                for place in range(20):
                    key = b"own %d" % number if place == 7 else b"shared %d" % place
                    transaction.send(topic, b"v", key=key, partition=0)
    for _ in looks("the compaction"):
        if len(list(read_topic(topic, server.address))) == 20 + 19:
            break
    return topic
