"""The job as a stream, in the session of the tests. A crash behind a micro-batch is made by taking away the last file
of `commits`: then the batch is in its log, and not known to be done."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pyspark_txnlog.bounds import InvalidOption
from pyspark_txnlog.job_parts.account import PartitionSummary, Summary
from pyspark_txnlog.job_parts.job_settings import CONSOLE, DELTA, ICEBERG, PARQUET, JobFailed, JobSettings, Mode
from pyspark_txnlog.job_parts.streaming_job import run_stream
from pyspark_txnlog.read.ranges import DataLoss
from tests.spark.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

Run = Callable[..., Summary]


@pytest.fixture
def run(spark: SparkSession, topics: Topics, tmp_path: Path) -> Run:
    """Function that runs the job up to the present end, and collects its messages."""

    def running(
        topic: str, *, told: list[str] | None = None, output: str = "out", is_audited: bool = True, **options: str
    ) -> Summary:
        asked = {"endpoint": topics.endpoint, "subscribe": topic} | options
        settings = JobSettings(
            options=asked,
            mode=Mode.AVAILABLE_NOW,
            format=PARQUET,
            output=str(tmp_path / output),
            checkpoint=str(tmp_path / "checkpoint"),
            is_audited=is_audited,
        )
        return run_stream(settings, spark=spark, say=([] if told is None else told).append)

    return running


@pytest.fixture
def values(spark: SparkSession, tmp_path: Path) -> Callable[[], list[str]]:
    """Returns what the output holds, by partition and offset."""

    def reading() -> list[str]:
        rows = spark.read.parquet(str(tmp_path / "out")).select("partition", "offset", "value").collect()
        return [bytes(row.value).decode() for row in sorted(rows, key=lambda row: (row.partition, row.offset))]

    return reading


def crash_before_the_commit(tmp_path: Path, batch: int) -> None:
    for name in (f"{batch}", f".{batch}.crc"):
        (tmp_path / "checkpoint" / "commits" / name).unlink()


def counts(found: PartitionSummary) -> tuple[int | None, ...]:
    return found.start_offset, found.end_offset, found.rows, found.hidden_records, found.written


def test_each_run_goes_on_behind_the_one_before_and_accounts_for_what_it_read(
    run: Run, topics: Topics, values: Callable[[], list[str]]
) -> None:
    topic = topics.create(2)
    topics.commit(topic, ["a", "b"])
    topics.abort(topic, ["x"])
    topics.commit(topic, ["c"], partition=1)
    told: list[str] = []

    first = run(topic, told=told, startingOffsets="earliest")
    topics.commit(topic, ["d"])
    second = run(topic, told=told, startingOffsets="earliest")
    third = run(topic)

    assert values() == ["a", "b", "d", "c"]
    assert [counts(found) for found in first.partitions] == [(0, 5, 2, 3, 2), (0, 2, 1, 1, 1)]
    assert [counts(found) for found in second.partitions] == [(5, 7, 1, 1, 1)]
    assert third.partitions == ()
    assert [line for line in told if line.startswith("micro-batch")] == [
        "micro-batch 0: 3 read, 4 hidden, 0 offsets behind",
        "micro-batch 1: 1 read, 1 hidden, 0 offsets behind",
    ]


@pytest.mark.long
def test_a_run_that_died_before_its_commit_is_repeated_with_the_same_result(
    run: Run, topics: Topics, values: Callable[[], list[str]], tmp_path: Path
) -> None:
    topic = topics.create()
    topics.commit(topic, ["a", "b"])
    run(topic, startingOffsets="earliest")
    crash_before_the_commit(tmp_path, 0)
    topics.commit(topic, ["c"])

    again = run(topic, startingOffsets="earliest")

    assert values() == ["a", "b", "c"]
    assert [counts(found) for found in again.partitions] == [(0, 5, 3, 2, 3)]


@pytest.mark.long
def test_a_first_micro_batch_that_was_not_done_is_repeated_though_the_stream_began_at_the_latest_offset(
    run: Run, topics: Topics, values: Callable[[], list[str]], tmp_path: Path
) -> None:
    """Spark asks again where the first micro-batch begins, which is empty here; "latest" would be behind it by now. A
    partition that came meanwhile is none of that micro-batch."""
    topic = topics.create()
    topics.commit(topic, ["before"])
    told: list[str] = []
    run(topic, told=told)
    assert "with --starting-offsets earliest it takes what is there too" in " ".join(told)
    topics.commit(topic, ["a"])
    crash_before_the_commit(tmp_path, 0)
    topics.add_partitions(topic, 2)
    topics.commit(topic, ["b"], partition=1)

    again = run(topic)

    assert values() == ["a", "b"]
    assert [counts(found) for found in again.partitions] == [(2, 4, 1, 1, 1), (0, 2, 1, 1, 1)]


@pytest.mark.long
def test_checkpoint_and_output_belong_together(
    run: Run, topics: Topics, values: Callable[[], list[str]], tmp_path: Path
) -> None:
    topic = topics.create()
    topics.commit(topic, ["a"])
    run(topic, startingOffsets="earliest")

    with pytest.raises(JobFailed, match=r"is of a stream into parquet .*/out, and this one goes into parquet .*/other"):
        run(topic, output="other")
    (tmp_path / "checkpoint").rename(tmp_path / "kept")
    with pytest.raises(JobFailed, match=r"exists already and the checkpoint .* does not know of it"):
        run(topic)
    (tmp_path / "kept").rename(tmp_path / "checkpoint")
    (tmp_path / "out").rename(tmp_path / "moved")
    with pytest.raises(JobFailed, match="/out is gone, and the checkpoint"):
        run(topic)
    (tmp_path / "moved").rename(tmp_path / "out")

    run(topic)
    assert values() == ["a"]


@pytest.mark.long
def test_an_output_that_lacks_rows_is_told(run: Run, topics: Topics, tmp_path: Path) -> None:
    topic = topics.create()
    topics.commit(topic, ["a"])
    run(topic, startingOffsets="earliest")
    topics.commit(topic, ["b"])
    run(topic)
    crash_before_the_commit(tmp_path, 1)
    # The sink knows the micro-batch still, and so leaves it out; but not its files any more.
    log = tmp_path / "out" / "_spark_metadata"
    (log / "1").write_text("v1\n")
    (log / ".1.crc").unlink()

    with pytest.raises(JobFailed, match=f"out holds 0 rows of {topic}-0 and the log 1: do not use it"):
        run(topic)


@pytest.mark.long
def test_limits_and_columns_are_those_of_the_source(run: Run, topics: Topics) -> None:
    topic = topics.create()
    topics.commit(topic, ["a", "b", "c"])
    told: list[str] = []

    found = run(topic, told=told, startingOffsets="earliest", maxRecordsPerTrigger="2", columns="value")

    assert len([line for line in told if line.startswith("micro-batch")]) == 2
    # The output does not show whose rows these are.
    assert [counts(one) for one in found.partitions] == [(0, 4, 3, 1, None)]


@pytest.mark.long
def test_it_ends_where_it_is_told_to(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    topic = topics.create()
    topics.commit(topic, ["a"])
    told: list[str] = []
    settings = JobSettings(
        options={"endpoint": topics.endpoint, "subscribe": topic, "startingOffsets": "earliest"},
        mode=Mode.FOLLOW,
        format=PARQUET,
        output=str(tmp_path / "out"),
        checkpoint=str(tmp_path / "checkpoint"),
        trigger_interval="100 milliseconds",
    )

    found = run_stream(
        settings, spark=spark, say=told.append, is_stopping=lambda: any("micro-batch" in line for line in told)
    )

    assert [counts(one) for one in found.partitions] == [(0, 2, 1, 1, 1)]
    assert told[-1] == "stopping; the checkpoint says where the next run goes on"
    assert not spark.streams.active


@pytest.mark.parametrize(
    ("kind", "package"), [(DELTA, "io.delta:delta-spark_"), (ICEBERG, "org.apache.iceberg:iceberg-spark-runtime-")]
)
def test_a_connector_that_is_not_there_is_named_before_anything_is_read(
    spark: SparkSession, topics: Topics, tmp_path: Path, kind: str, package: str
) -> None:
    topic = topics.create()
    settings = JobSettings(
        options={"endpoint": topics.endpoint, "subscribe": topic},
        mode=Mode.AVAILABLE_NOW,
        format=kind,
        output=str(tmp_path / "out"),
        checkpoint=str(tmp_path / "checkpoint"),
    )
    build = rf"{package}{'.'.join(spark.version.split('.')[:2])}_2\.13:VERSION"
    with pytest.raises(
        JobFailed, match=rf"this Spark {spark.version} cannot write {kind}: it lacks the package {build}"
    ):
        run_stream(settings, spark=spark)
    assert not (tmp_path / "checkpoint").exists()


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"format": PARQUET}, "need --output"),
        ({"format": CONSOLE, "output": "out"}, "need --output"),
        ({"format": PARQUET, "output": "out", "mode": Mode.FOLLOW}, "need --checkpoint DIR"),
        ({"checkpoint": "here"}, "--checkpoint is of a stream"),
        ({"mode": Mode.FOLLOW, "is_overwriting": True}, "--overwrite is not for streams"),
        ({"master": "local", "remote": "sc://here"}, "set one of them"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(wrong: dict[str, object], told: str) -> None:
    with pytest.raises(InvalidOption, match=told):
        JobSettings(options={}, **wrong)  # type: ignore[arg-type]  # a table of wrong ones


@pytest.mark.long
def test_a_note_that_was_not_finished_is_made_anew(
    run: Run, topics: Topics, values: Callable[[], list[str]], tmp_path: Path
) -> None:
    topic = topics.create()
    topics.commit(topic, ["a"])
    (tmp_path / "checkpoint" / "txnlog-job" / "_temporary").mkdir(parents=True)
    run(topic, startingOffsets="earliest")
    assert values() == ["a"]
    shutil.rmtree(tmp_path / "checkpoint")


@pytest.mark.long
def test_a_topic_that_is_deleted_is_left_out_of_the_account_where_losses_are_allowed(
    run: Run, topics: Topics, values: Callable[[], list[str]], tmp_path: Path
) -> None:
    lost, kept = topics.create(), topics.create()
    topics.commit(lost, ["a"])
    topics.commit(kept, ["b"])
    both = f"{lost},{kept}"
    run(both, startingOffsets="earliest", failOnDataLoss="false")
    topics.delete(lost)
    topics.commit(kept, ["c"])

    second = run(both, failOnDataLoss="false")

    assert values() == ["a", "b", "c"]
    assert [(found.topic, *counts(found)) for found in second.partitions] == [(kept, 2, 4, 1, 1, 1)]


@pytest.mark.long
def test_a_stream_that_began_and_read_nothing_knows_that_its_topic_was_made_again(
    run: Run, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create()
    topics.commit(topic, ["before the stream"])
    run(topic)
    offsets = tmp_path / "checkpoint" / "offsets"
    if offsets.exists():
        shutil.rmtree(offsets)
    topics.recreate(topic)
    topics.commit(topic, ["a", "b", "c"])

    with pytest.raises(DataLoss, match=f"the topic {topic} in which the stream began was deleted"):
        run(topic)
