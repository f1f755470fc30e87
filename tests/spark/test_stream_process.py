"""Streams among real failures: executors, the server and the driver killed on the way, and a server restored from a
backup while a stream stands behind it."""

from __future__ import annotations

import os
import random
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from pyspark.errors import StreamingQueryException

from coordinator_client.clock import SystemClock as ClientClock
from coordinator_runtime.backups import restore
from coordinator_runtime.clock import SystemClock
from tests.cli.terminal import Terminal
from tests.harness.patience import DEADLINE_SECONDS
from tests.harness.server_process import ServerProcess
from tests.spark.streams import Stream
from tests.spark.test_job import run
from tests.spark.test_streaming_process import Running, committed, job, written
from tests.spark.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AWAY_MS: Final = 60_000

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.spark]


def executors(driver: int) -> list[int]:
    """Return the processes that run the tasks of a job: those of its session that say so of themselves."""
    found: list[int] = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            is_ours = os.getsid(int(entry.name)) == driver
            command = (entry / "cmdline").read_bytes()
        except (ProcessLookupError, FileNotFoundError):
            continue
        if is_ours and b"CoarseGrainedExecutorBackend" in command:
            found.append(int(entry.name))
    return sorted(found)


def test_executors_server_and_driver_are_killed_and_every_committed_record_is_written_once(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "log") as server, Topics(server.address, prefix="killed") as topics:
        topic = topics.create(2)
        chance = random.Random(2204)
        for number in range(60):
            topics.commit(topic, [f"{number}-{row}" for row in range(10)], partition=number % 2)
            if number % 5 == 0:
                topics.abort(topic, ["aborted"] * 3, partition=number % 2)
        command = job(topics, topic, tmp_path, "--max-records-per-trigger", "25", "--master", "local-cluster[2,1,1024]")
        victims = ["server", "executor", "driver"]
        chance.shuffle(victims)
        running: Running | None = None
        try:
            for victim in victims:
                running = running or Running([*command, "--follow", "--trigger-interval", "0 seconds"])
                running.await_micro_batches(chance.randint(1, 2))
                if victim == "server":
                    server.kill()
                    server.start()
                elif victim == "executor":
                    os.kill(chance.choice(executors(running.process.pid)), signal.SIGKILL)
                else:
                    running.kill()
                    running = None
        finally:
            if running is not None:
                running.kill()

        done = run(*command, "--available-now")

        assert done.returncode == 0, done.stderr
        assert "going on behind the checkpoint" in done.stderr
        assert len(written(tmp_path)) == 600
        assert written(tmp_path) == committed(topics, topic)


def test_a_stream_waits_for_a_server_that_is_away_for_a_minute_and_goes_on(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "log") as server, Topics(server.address, prefix="away") as topics:
        topic = topics.create(2)
        topics.commit(topic, ["before"] * 10)
        running = Running(job(topics, topic, tmp_path, "--follow", "--trigger-interval", "200 milliseconds"))
        try:
            running.await_micro_batches(1)
            server.kill()
            ClientClock().pause(AWAY_MS)
            assert running.process.poll() is None
            server.start()
            topics.abort(topic, ["aborted"])
            topics.commit(topic, ["behind"] * 10)
            topics.commit(topic, ["beside"] * 10, partition=1)
            while len(written(tmp_path)) < 30:
                running.await_micro_batches(1)
            running.process.terminate()
            _, told = running.process.communicate(timeout=DEADLINE_SECONDS)
        finally:
            if running.process.poll() is None:
                running.kill()

        assert running.process.returncode == 0, told
        assert written(tmp_path) == committed(topics, topic)


def test_an_executor_that_lacks_a_package_says_what_to_install(tmp_path: Path) -> None:
    lacking = tmp_path / "lacking"
    (lacking / "grpc").mkdir(parents=True)
    (lacking / "grpc" / "__init__.py").write_text("raise ModuleNotFoundError(\"No module named 'grpc'\")")
    python = tmp_path / "python"
    # Only what runs tasks lacks it: Spark plans with the same command, and other modules.
    python.write_text(
        f'#!/bin/sh\ncase "$*" in *pyspark.worker*) export PYTHONPATH=\'{lacking}\':"$PYTHONPATH" ;; esac\n'
        f"exec '{sys.executable}' \"$@\"\n"
    )
    python.chmod(0o755)
    with ServerProcess(tmp_path / "log") as server, Topics(server.address, prefix="lacking") as topics:
        topic = topics.create()
        topics.commit(topic, ["a"])
        command = job(topics, topic, tmp_path, "--available-now")

        done = run(*command, PYSPARK_PYTHON=str(python), SPARK_LOCAL_IP="127.0.0.1")

    assert done.returncode == 1
    told = done.stderr[done.stderr.rindex("txnlog: error: ") :]
    assert "the source txnlog needs grpc, and " in told
    assert "install txn-coordinator[spark] there, or set PYSPARK_PYTHON" in told


def test_a_server_restored_from_a_backup_is_noticed_and_a_stream_goes_on_where_the_logs_parted(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf = tmp_path / "backups"
    with (
        ServerProcess(tmp_path / "data", "--set", f"backup_directory={shelf}") as server,
        Topics(server.address, prefix="restored") as topics,
    ):
        topic = topics.create()
        stream = Stream(spark, topics, tmp_path)
        topics.commit(topic, ["a"])
        txnctl = Terminal(monkeypatch)
        made = txnctl("backup", "create", "--server", server.address, "-o", "json").well().document
        topics.commit(topic, ["lost"])
        stream(topic)
        server.terminate()
    restore(shelf / str(made[0]["name"]), tmp_path / "restored", clock=SystemClock(), pause=ClientClock().pause)
    restored = ServerProcess(tmp_path / "restored")
    restored.port = server.port
    with restored, Topics(restored.address, prefix="anew") as topics:
        topics.commit(topic, ["other", "records"])
        with pytest.raises(StreamingQueryException, match=r"went another way from offset 2 on.*backup was restored"):
            stream(topic)

        stream(topic, failOnDataLoss="false")

        assert sorted(stream.values()) == ["a", "lost", "other", "records"]
        stream.anew()
        stream(topic)
        assert stream.values() == ["a", "other", "records"]
