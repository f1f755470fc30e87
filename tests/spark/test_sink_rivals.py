"""The sink in processes of its own, on the way from topic to topic: tasks run twice at the same time, an executor is
killed alone, and a driver goes on that another one has replaced."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from coordinator_api.v1.transaction_pb2 import CommitBatchResponse, SealMemberResponse
from coordinator_protocol.errors import ErrorCode
from tests.harness.server_process import ServerProcess
from tests.spark.cluster import Cluster
from tests.spark.copying import FOLLOWING, Copying, job, values_in
from tests.spark.line import Hold, Line
from tests.spark.test_stream_process import executors
from tests.spark.test_streaming_process import Running
from tests.spark.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.spark]


def test_of_two_attempts_of_a_task_one_is_chosen_and_an_executor_that_dies_with_its_attempt_is_replaced(
    server: ServerProcess, topics: Topics, tmp_path: Path
) -> None:
    """Two tasks on two hosts. At first the answer to one that has sealed is held up, so that Spark runs it again beside
    it; both are sealed then, and either could be chosen. Then both tasks are about to seal when a host dies.

    Spark may run a task again that is only slow, so there are so many attempts or more."""
    source, target = topics.create(2), topics.create(1)
    for partition in range(2):
        topics.commit(source, [f"a{partition}", f"b{partition}"], partition=partition)
    with Line(server.address) as line, Cluster(tmp_path / "cluster") as cluster:
        slow = Hold(is_carried_out=True)
        line.treat("SealMember", slow, times=1)
        command = job(line.address, source, target, tmp_path, "--master", cluster.master, *FOLLOWING)
        running = Running(command, **cluster.environment)
        try:
            running.await_micro_batches(1)
            expected = ["a0", "a1", "b0", "b1"]
            assert line.calls["SealMember"] >= 3
            assert line.calls["CommitBatch"] == 1
            assert values_in(target, server.address) == expected
            assert len(values_in(target, server.address, isolation="read_uncommitted")) >= 6, "one of them was aborted"
            slow.let_go()
            assert SealMemberResponse.FromString(slow.next_answer()).error_code == ErrorCode.NONE

            line.mend()
            both = Hold()
            line.treat("SealMember", both, times=2)
            # In one transaction, so that one micro-batch has them both.
            topics.commit_everywhere(source, {partition: [f"c{partition}"] for partition in range(2)})
            both.held.acquire()
            both.held.acquire()
            (victim,) = executors(cluster.workers[1])
            os.kill(victim, signal.SIGKILL)
            both.let_go()
            running.await_micro_batches(1)
            assert line.calls["JoinBatch"] >= 3, "the task of the executor that is gone was repeated"
            assert values_in(target, server.address) == [*expected, "c0", "c1"]
        finally:
            running.kill()


def test_a_driver_that_was_replaced_by_one_with_a_copy_of_its_checkpoint_publishes_nothing(
    spark: SparkSession, server: ServerProcess, topics: Topics, tmp_path: Path
) -> None:
    copied = Copying(spark, topics, tmp_path / "copied", prefix="spark")
    topics.commit(copied.source, ["a", "b"])
    with Line(server.address) as line:
        late = Hold()
        line.treat("CommitBatch", late)
        running = Running(job(line.address, copied.source, copied.target, tmp_path, "--master", "local[2]", *FOLLOWING))
        try:
            late.held.acquire()
            shutil.copytree(tmp_path / "checkpoint", copied.checkpoint)
            copied()
            assert copied.seen() == ["a", "b"]

            late.let_go()

            assert CommitBatchResponse.FromString(late.next_answer()).error_code == ErrorCode.PRODUCER_FENCED
            _, told = running.process.communicate()
            assert running.process.returncode != 0
            assert "is not the one that writes" in told
        finally:
            if running.process.poll() is None:
                running.kill()
    assert copied.seen() == ["a", "b"]
    # The first one to go on has the next batch; the other one finds it done.
    original = copied.of(tmp_path / "checkpoint")
    topics.commit(copied.source, ["c"])
    original()
    copied()
    assert copied.seen() == ["a", "b", "c"]
    assert not copied.members()
