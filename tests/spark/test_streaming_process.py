"""The job as a stream in processes of its own: stopped by a signal, killed, by spark-submit and over Spark Connect."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq
import pytest

from coordinator_client import read
from tests.harness import forked
from tests.harness.patience import DEADLINE_SECONDS
from tests.spark.test_job import JOB, SPARK_SUBMIT, UNSET, run
from tests.spark.topics import Topics

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.spark]

KILLS: Final = 2


def job(topics: Topics, topic: str, directory: Path, *more: str) -> list[str]:
    places = ("--output", str(directory / "out"), "--checkpoint", str(directory / "checkpoint"))
    first = ("--endpoint", topics.endpoint, "--starting-offsets", "earliest")
    return [sys.executable, "-m", "pyspark_txnlog.job", topic, *first, *places, *more]


class Running:
    """A job that goes on, in a session of its own, so that a kill takes Spark and its workers too."""

    def __init__(self, command: list[str], **more: str) -> None:
        """`more` are further variables of its environment."""
        environment = {name: value for name, value in os.environ.items() if name not in UNSET} | more
        environment["PYTHONPATH"] = os.pathsep.join(entry for entry in sys.path if Path(entry).is_dir())
        self.process = forked.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        assert self.process.stderr is not None
        self.said: Iterator[str] = iter(self.process.stderr)

    def await_micro_batches(self, count: int) -> None:
        for line in self.said:
            if "micro-batch" in line:
                count -= 1
                if not count:
                    return
        pytest.fail(f"the job ended with {self.process.wait()}")

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()


def written(directory: Path) -> list[tuple[int, int, bytes]]:
    """Return the output as a reader that knows the log of Spark's file sink sees it, duplicates included."""
    log = directory / "out" / "_spark_metadata"
    listed = {
        line.partition('"path":"file://')[2].partition('"')[0]
        for entry in log.iterdir()
        if not entry.name.startswith(".")
        for line in entry.read_text().splitlines()[1:]
    }
    rows = [
        row
        for path in listed
        for row in pq.ParquetFile(path).read(columns=["partition", "offset", "value"]).to_pylist()
    ]
    return sorted((row["partition"], row["offset"], row["value"]) for row in rows)


def committed(topics: Topics, topic: str) -> list[tuple[int, int, bytes]]:
    return sorted((row.partition, row.offset, row.value or b"") for row in read(topic, topics.endpoint))


def test_sigterm_ends_a_job_that_follows_with_its_account(topics: Topics, tmp_path: Path) -> None:
    topic = topics.create()
    topics.commit(topic, ["a", "b"])
    topics.abort(topic, ["x"])
    running = Running(job(topics, topic, tmp_path, "--follow", "--trigger-interval", "200 milliseconds"))
    try:
        running.await_micro_batches(1)
        topics.commit(topic, ["c"])
        running.await_micro_batches(1)
        running.process.terminate()
        shown, told = running.process.communicate(timeout=DEADLINE_SECONDS)
    finally:
        if running.process.poll() is None:
            running.kill()
    assert running.process.returncode == 0, told
    assert "stopping; the checkpoint says where the next run goes on" in told
    assert shown.splitlines()[2].split() == [topic, "0", "0", "7", "7", "7", "3", "4", "-", "-", "-", "3"]
    assert written(tmp_path) == committed(topics, topic)


def test_a_job_killed_at_any_moment_writes_every_committed_record_once(topics: Topics, tmp_path: Path) -> None:
    topic = topics.create(2)
    chance = random.Random(22)
    for number in range(60):
        topics.commit(topic, [f"{number}-{row}" for row in range(10)], partition=number % 2)
        if number % 5 == 0:
            topics.abort(topic, ["aborted"] * 3, partition=number % 2)
    command = job(topics, topic, tmp_path, "--max-records-per-trigger", "25")
    for _ in range(KILLS):
        running = Running([*command, "--follow", "--trigger-interval", "0 seconds"])
        try:
            running.await_micro_batches(chance.randint(1, 3))
        finally:
            running.kill()

    done = run(*command, "--available-now")

    assert done.returncode == 0, done.stderr
    assert "going on behind the checkpoint" in done.stderr
    assert len(written(tmp_path)) == 600
    assert written(tmp_path) == committed(topics, topic)


def test_spark_submit_and_spark_connect_go_on_behind_one_checkpoint(topics: Topics, tmp_path: Path) -> None:
    topic = topics.create()
    topics.commit(topic, ["a"])
    local = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    command = job(topics, topic, tmp_path, "--available-now")
    submitted = run(str(SPARK_SUBMIT), "--master", "local[2]", str(JOB), *command[3:], **local)
    assert submitted.returncode == 0, submitted.stderr
    topics.commit(topic, ["b"])

    # With this URL PySpark starts a server of Connect first, which is then asked like any other.
    remote = run(sys.executable, "-W", "ignore", *command[1:], "--remote", "local[2]", **local)

    assert remote.returncode == 0, remote.stderr
    assert remote.stdout.splitlines()[2].split()[1:] == ["0", "2", "4", "4", "4", "1", "1", "-", "-", "-", "1"]
    assert written(tmp_path) == committed(topics, topic)
