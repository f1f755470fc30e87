"""The sink in processes of its own, on the way from topic to topic: driver, executors and server are killed."""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from coordinator_client import read
from tests.harness.server_process import ServerProcess
from tests.spark.copying import FOLLOWING, job
from tests.spark.test_job import run
from tests.spark.test_stream_process import executors
from tests.spark.test_streaming_process import Running
from tests.spark.topics import Topics

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.spark]

RUNS: Final = 3
TRANSACTIONS: Final = 100
ROWS: Final = 10


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[ServerProcess]:
    """A server that no other test uses, so that it can be killed."""
    with ServerProcess(tmp_path / "log") as server:
        yield server


def test_every_record_arrives_once_after_every_kill(own_server: ServerProcess, tmp_path: Path) -> None:
    """Each run loses an executor and the server, and ends with the death of the driver."""
    chance = random.Random(23)
    with Topics(own_server.address, prefix="killed") as topics:
        source, target = topics.create(2), topics.create(3)
        for number in range(TRANSACTIONS):
            topics.commit(source, [f"{number}-{row}" for row in range(ROWS)], partition=number % 2)
            if number % 5 == 0:
                topics.abort(source, ["aborted"] * 3, partition=number % 2)
        command = job(own_server.address, source, target, tmp_path)
        for _ in range(RUNS):
            small = ("--max-records-per-trigger", "25", "--master", "local-cluster[2,1,1024]")
            running = Running([*command, *small, *FOLLOWING])
            try:
                for victim in chance.sample(["executor", "server"], k=2):
                    running.await_micro_batches(1)
                    if victim == "executor":
                        os.kill(chance.choice(executors(running.process.pid)), signal.SIGKILL)
                    else:
                        own_server.kill()
                        own_server.start()
                running.await_micro_batches(1)
            finally:
                running.process.send_signal(signal.SIGSTOP)
                running.kill()
        done = run(*command, "--available-now")
        assert done.returncode == 0, done.stderr
        expected = Counter(f"{number}-{row}".encode() for number in range(TRANSACTIONS) for row in range(ROWS))
        assert Counter(record.value for record in read(target, own_server.address)) == expected
