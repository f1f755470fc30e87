"""Snapshots in a real Spark session: batch reads and streams show each transaction in all partitions or in none."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from coordinator_client import Admin, TopicPartition
from pyspark_txnlog.bounds import InvalidOption
from pyspark_txnlog.job_parts.committed_read import planned_and_standing
from pyspark_txnlog.options import parse_options
from tests.spark.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def read(spark: SparkSession, topics: Topics) -> Callable[..., list[str]]:
    """Returns the values of a batch read, sorted."""

    def reading(topic: str, **options: Any) -> list[str]:
        asked = {"endpoint": topics.endpoint, "subscribe": topic, "isolationLevel": "snapshot"} | options
        rows = spark.read.format("txnlog").options(**asked).load().select("value").collect()
        return sorted(bytes(row.value).decode() for row in rows)

    return reading


@pytest.fixture
def stream(spark: SparkSession, topics: Topics, tmp_path: Path) -> Callable[..., list[list[str]]]:
    """Runs a stream of snapshots from its checkpoint to what is there; returns the values of all micro-batches so far,
    those of each sorted."""

    def streaming(topic: str, **options: str) -> list[list[str]]:
        asked = {"endpoint": topics.endpoint, "subscribe": topic, "startingOffsets": "earliest"} | options
        frame = spark.readStream.format("txnlog").options(**{"isolationLevel": "snapshot"} | asked).load()
        writing = frame.writeStream.foreachBatch(
            lambda batch, number: batch.select("value").write.mode("overwrite").parquet(str(tmp_path / f"out/{number}"))
        )
        writing = writing.option("checkpointLocation", str(tmp_path / "checkpoint"))
        writing.trigger(availableNow=True).start().awaitTermination()
        batches = sorted((tmp_path / "out").iterdir(), key=lambda path: int(path.name))
        read = [spark.read.schema("value binary").parquet(str(path)).collect() for path in batches]
        return [sorted(bytes(row.value).decode() for row in rows) for rows in read]

    return streaming


def test_a_batch_read_shows_what_lies_behind_an_open_transaction(
    read: Callable[..., list[str]], topics: Topics
) -> None:
    name = topics.create(2)
    with topics.being_written(name, {0: ["open"], 1: ["open"]}):
        topics.commit_everywhere(name, {0: ["a", "b"], 1: ["c"]})
        assert read(name, isolationLevel="read_committed") == []
        assert read(name) == ["a", "b", "c"]
        assert read(name, minPartitions="4", maxRecordsPerPartition="1") == ["a", "b", "c"]
        assert read(name, endingOffsets=json.dumps({name: {"0": 3, "1": 0}})) == ["a", "b"]
    assert read(name) == ["a", "b", "c", "open", "open"]


def is_held(topics: Topics, name: str) -> bool:
    """Return whether records of the topic cannot be deleted because of a reader."""
    with Admin(topics.endpoint) as admin:
        deleted = admin.delete_records({TopicPartition(name, 0): 0, TopicPartition(name, 1): 1})
        return any(each.held_back for each in deleted.values())


@pytest.mark.parametrize("tasks", ["1", "7"])
def test_a_batch_read_gives_its_snapshot_up_with_its_last_task(
    read: Callable[..., list[str]], topics: Topics, tasks: str
) -> None:
    name = topics.create(2)
    assert read(name, snapshotLease="1h") == []
    topics.commit_everywhere(name, {0: ["a", "b"], 1: ["c", "d"]})
    assert read(name, snapshotLease="1h", minPartitions=tasks) == ["a", "b", "c", "d"]
    assert not is_held(topics, name)


def test_a_batch_read_that_ends_early_leaves_its_snapshot_to_the_lease(spark: SparkSession, topics: Topics) -> None:
    name = topics.create(2)
    topics.commit_everywhere(name, {0: ["a", "b"], 1: ["c", "d"]})
    asked = {"endpoint": topics.endpoint, "subscribe": name, "isolationLevel": "snapshot", "snapshotLease": "1h"}
    frame = spark.read.format("txnlog").options(**asked).load()
    assert len(frame.limit(1).collect()) == 1
    assert is_held(topics, name)


@pytest.mark.long
def test_a_stream_of_snapshots_has_each_transaction_in_one_micro_batch(
    stream: Callable[..., list[list[str]]], topics: Topics
) -> None:
    name = topics.create(2)
    topics.commit_everywhere(name, {0: ["a"], 1: ["a"]})
    with topics.being_written(name, {0: ["open"], 1: ["open"]}):
        topics.commit_everywhere(name, {0: ["b"], 1: ["b"]})
        assert stream(name) == [["a", "a", "b", "b"]]
        assert stream(name) == [["a", "a", "b", "b"]], "nothing new"
        topics.commit_everywhere(name, {0: ["c"]})
    assert stream(name)[1:] == [["c", "open", "open"]]
    topics.abort(name, ["never"])
    assert len(stream(name)) == 2


@pytest.mark.long
def test_a_micro_batch_that_is_repeated_is_the_same(
    stream: Callable[..., list[list[str]]], topics: Topics, tmp_path: Path
) -> None:
    name = topics.create(2)
    with topics.being_written(name, {0: ["open"], 1: ["open"]}):
        topics.commit_everywhere(name, {0: ["a"], 1: ["a"]})
        stream(name)
    stream(name)
    topics.commit_everywhere(name, {0: ["b"]})
    before = [["a", "a"], ["open", "open"]]
    last = max(found for found in (tmp_path / "checkpoint/commits").iterdir() if found.name.isdigit())
    last.unlink()
    (last.parent / f".{last.name}.crc").unlink(missing_ok=True)
    assert stream(name) == [*before, ["b"]]


@pytest.mark.long
def test_a_checkpoint_of_snapshots_is_of_no_other_stream(
    stream: Callable[..., list[list[str]]], topics: Topics
) -> None:
    name = topics.create(1)
    with topics.being_written(name, {0: ["open"]}):
        topics.commit_everywhere(name, {0: ["a"]})
        stream(name)
        with pytest.raises(Exception, match="checkpoint is of a stream of snapshots"):
            stream(name, isolationLevel="read_committed")


@pytest.mark.parametrize(
    ("options", "is_stream", "why"),
    [
        ({"isolationLevel": "snapshot", "maxOffsetsPerTrigger": "5"}, True, "whole transactions"),
        ({"snapshotLease": "5m"}, False, "set isolationLevel to snapshot"),
        ({"isolationLevel": "snapshot", "snapshotLease": "2h"}, False, "at most 1h"),
        ({"isolationLevel": "snapshot", "snapshotLease": "soon"}, False, "must be a number"),
        ({"isolationLevel": "snapshots"}, False, "must be read_committed or snapshot or read_uncommitted"),
        ({"isolationLevel": "snapshot", "snapshotLease": "5m"}, True, "batch reads only"),
    ],
)
def test_options_that_do_not_go_together(options: dict[str, str], is_stream: bool, why: str) -> None:
    with pytest.raises(InvalidOption, match=why):
        parse_options({"endpoint": "h:1", "subscribe": "t"} | options, is_stream=is_stream)


def test_the_isolation_level_has_a_short_name() -> None:
    assert parse_options({"endpoint": "h:1", "subscribe": "t", "isolation": "snapshot"}).is_snapshot


def test_the_job_accounts_for_offsets_and_reads_no_snapshot() -> None:
    with pytest.raises(InvalidOption, match="accounts for every offset"):
        planned_and_standing(parse_options({"endpoint": "h:1", "subscribe": "t", "isolationLevel": "snapshot"}))
