"""The job as a function, in the session of the tests: edges that are not worth a process of their own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from pyspark_txnlog import register
from pyspark_txnlog.job_parts.account import PartitionSummary
from pyspark_txnlog.job_parts.committed_read import run_job
from pyspark_txnlog.job_parts.job_settings import PARQUET, JobFailed, JobSettings
from tests.spark.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def source_of(topics: Topics, topic: str, **options: str) -> dict[str, str]:
    return {"endpoint": topics.endpoint, "subscribe": topic} | options


def test_an_empty_topic_becomes_a_table_without_rows(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    output = tmp_path / "out"
    topic = topics.create(2)

    summary = run_job(JobSettings(options=source_of(topics, topic), format=PARQUET, output=str(output)), spark=spark)

    assert (summary.rows, summary.aborted_records, summary.control_records) == (0, 0, 0)
    assert pq.read_table(output).num_rows == 0
    assert "offset" in pq.read_schema(next(output.glob("*.parquet"))).names


def test_an_open_transaction_holds_the_end_back_and_the_summary_shows_where(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    topic = topics.create()
    topics.commit(topic, ["a", "b"])
    topics.leave_open(topic, ["open"])
    topics.commit(topic, ["behind"])

    summary = run_job(
        JobSettings(options=source_of(topics, topic, columns="value"), format=PARQUET, output=str(output)),
        spark=spark,
    )

    assert summary.partitions == (
        PartitionSummary(
            topic=topic,
            partition=0,
            start_offset=0,
            end_offset=3,
            last_stable_offset=3,
            high_watermark=6,
            rows=2,
            aborted_records=0,
            control_records=1,
            corrupt_offsets=0,
        ),
    )


def test_without_an_audit_the_rows_are_counted_in_the_output(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    topic = topics.create()
    topics.commit(topic, ["a"])
    topics.abort(topic, ["x", "y"])
    settings = JobSettings(options=source_of(topics, topic), format=PARQUET, output=str(output), is_audited=False)

    (found,) = run_job(settings, spark=spark).partitions

    assert (found.rows, found.hidden_records, found.aborted_records) == (1, 4, None)


def test_a_directory_is_replaced_only_on_request(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    output = tmp_path / "out"
    topic = topics.create()
    topics.commit(topic, ["a"])
    options = source_of(topics, topic)
    run_job(JobSettings(options=options, format=PARQUET, output=str(output)), spark=spark)

    with pytest.raises(JobFailed, match="exists already"):
        run_job(JobSettings(options=options, format=PARQUET, output=str(output)), spark=spark)
    again = run_job(JobSettings(options=options, format=PARQUET, output=str(output), is_overwriting=True), spark=spark)

    assert again.rows == 1
    assert pq.read_table(output, columns=["value"]).num_rows == 1


@pytest.mark.long
def test_the_format_can_be_registered_where_it_came_as_a_zip(spark: SparkSession, topics: Topics) -> None:
    topic = topics.create()
    topics.commit(topic, ["a"])
    session = spark.newSession()

    register(session)

    source = session.read.format("txnlog").option("endpoint", topics.endpoint)
    assert source.option("subscribe", topic).load().count() == 1
