"""Progress of a batch job: Spark's own counters, shown on stderr while the job runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from coordinator_client import progress
from coordinator_client.progress import ProgressShown
from pyspark_txnlog.job_parts import job_progress
from pyspark_txnlog.job_parts.committed_read import run_job
from pyspark_txnlog.job_parts.job_progress import JobProgress, StepCounts, counts_of
from pyspark_txnlog.job_parts.job_settings import PARQUET, JobSettings
from tests.harness.patience import looks
from tests.spark.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_records_or_finished_tasks_tell_how_much_is_done() -> None:
    assert StepCounts(records=250, tasks_done=0, tasks=4).done(1_000) == 250
    assert StepCounts(records=250, tasks_done=2, tasks=4).done(1_000) == 500
    assert StepCounts(records=0, tasks_done=0, tasks=0).done(1_000) == 0
    # A task that was repeated is counted twice.
    assert StepCounts(records=1_200, tasks_done=3, tasks=4).done(1_000) == 1_000
    assert StepCounts(records=250, tasks_done=2, tasks=4).done(None) == 250
    assert StepCounts(records=0, tasks_done=0, tasks=4).done(0) == 0


@pytest.mark.slow
@pytest.mark.spark
def test_spark_counts_the_records_that_a_group_of_jobs_has_read(spark: SparkSession, topics: Topics) -> None:
    topic = topics.create(2)
    topics.commit(topic, ["a", "b"])
    topics.abort(topic, ["x"])
    topics.commit(topic, ["c"], partition=1)
    context = spark.sparkContext
    context.setJobGroup("counted", "a read")
    try:
        read = spark.read.format("txnlog").options(endpoint=topics.endpoint, subscribe=topic).load()
        assert len(read.collect()) == 3
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)
    for _ in looks("the listener of Spark, which hears of tasks later"):
        if counts_of(context, "counted") == StepCounts(records=3, tasks_done=2, tasks=2):
            return


@pytest.mark.slow
@pytest.mark.spark
def test_a_job_shows_the_progress_of_each_step(
    spark: SparkSession,
    topics: Topics,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("FIRST_MS", "LINE_MS"):
        monkeypatch.setattr(progress, name, 0)
    monkeypatch.setattr(job_progress, "_LOOK_S", 0.01)
    topic = topics.create()
    topics.commit(topic, ["a", "b", "c"])
    topics.abort(topic, ["x"])
    spark.sparkContext.setLocalProperty("spark.jobGroup.id", "of the program")

    def job(output: str, shown: ProgressShown) -> str:
        options = {"endpoint": topics.endpoint, "subscribe": topic}
        settings = JobSettings(options=options, format=PARQUET, output=str(tmp_path / output))
        assert run_job(settings, spark=spark, shown=shown).rows == 3
        return capsys.readouterr().err

    shown = job("shown", ProgressShown.EVERYWHERE)
    for words in ("written ", " of 3 records (", "counted ", " of 3 rows (", "checked ", " of 6 offsets (", "%), "):
        assert words in shown
    assert job("not shown", ProgressShown.TERMINAL) == "", "stderr of a test is no terminal"
    assert spark.sparkContext.getLocalProperty("spark.jobGroup.id") == "of the program"
    spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)


@pytest.mark.slow
@pytest.mark.spark
def test_a_step_that_fails_ends_its_progress(spark: SparkSession) -> None:
    shown = JobProgress(spark, ProgressShown.EVERYWHERE)
    with pytest.raises(ZeroDivisionError), shown.step("written", "records", 3):
        raise ZeroDivisionError
    assert spark.sparkContext.getLocalProperty("spark.jobGroup.id") is None


def test_a_client_of_spark_connect_hears_of_tasks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("FIRST_MS", "LINE_MS"):
        monkeypatch.setattr(progress, name, 0)
    handlers = []

    class Remote:
        """A session of Spark Connect, as far as progress knows it."""

        def registerProgressHandler(self, handler: object) -> None:  # noqa: N802 - Spark's name
            handlers.append(handler)

        def removeProgressHandler(self, handler: object) -> None:  # noqa: N802 - Spark's name
            handlers.remove(handler)

    class Stage:
        num_tasks, num_completed_tasks = 4, 1

    remote: SparkSession = Remote()  # type: ignore[assignment]
    with JobProgress(remote, ProgressShown.EVERYWHERE).step("written", "records", 1_000):
        handlers[0](stages=[Stage()], inflight_tasks=1, operation_id="1", done=False)
    assert capsys.readouterr().err.startswith("written 250 of 1,000 records (25%), ")
    assert not handlers
