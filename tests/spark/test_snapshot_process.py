"""A stream of snapshots in a process of its own, whose driver and server are killed while transactions come and go."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq
import pytest

from tests.harness.server_process import ServerProcess
from tests.spark.test_streaming_process import Running
from tests.spark.topics import Topics

pytestmark = [pytest.mark.slow, pytest.mark.spark]

PARTITIONS: Final = 2

PROGRAM: Final = """
import sys
from pyspark_txnlog.job_parts.spark_session import start_spark

endpoint, topic, directory, trigger = sys.argv[1:]
spark = start_spark("snapshots", master="local[2]")
asked = {"endpoint": endpoint, "subscribe": topic, "startingOffsets": "earliest", "isolationLevel": "snapshot"}

def write(batch, number):
    batch.select("partition", "value").write.mode("overwrite").parquet(f"{directory}/out/{number}")
    print("micro-batch", number, file=sys.stderr, flush=True)

writing = spark.readStream.format("txnlog").options(**asked).load().writeStream.foreachBatch(write)
writing = writing.option("checkpointLocation", f"{directory}/checkpoint")
writing = writing.trigger(availableNow=True) if trigger == "once" else writing.trigger(processingTime="0 seconds")
writing.start().awaitTermination()
"""


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[ServerProcess]:
    """A server that no other test uses, so that it can be killed."""
    with ServerProcess(tmp_path / "log") as server:
        yield server


def micro_batches(directory: Path) -> list[Counter[tuple[int, str]]]:
    """Return the rows of each written micro-batch, by partition and value, in their order."""
    found = sorted((path.parent for path in directory.glob("out/*/_SUCCESS")), key=lambda path: int(path.name))
    tables = [pq.read_table(path) for path in found]
    return [Counter((row["partition"], row["value"].decode()) for row in table.to_pylist()) for table in tables]


@pytest.mark.long
def test_no_kill_makes_a_micro_batch_tear_a_transaction(own_server: ServerProcess, tmp_path: Path) -> None:
    with Topics(own_server.address, prefix="torn") as topics:
        topic = topics.create(PARTITIONS)
        committed: list[str] = []

        def parts(value: str) -> dict[int, list[str]]:
            committed.append(value)
            return {partition: [value] for partition in range(PARTITIONS)}

        def commit_some(name: str) -> None:
            for number in range(3):
                topics.commit_everywhere(topic, parts(f"{name}-{number}"))
            topics.abort(topic, ["aborted"])

        def running(trigger: str = "follow") -> Running:
            return Running([sys.executable, "-c", PROGRAM, own_server.address, topic, str(tmp_path), trigger])

        def await_written(value: str) -> None:
            while all((0, value) not in batch for batch in micro_batches(tmp_path)):
                stream.await_micro_batches(1)

        stream = running()
        try:
            commit_some("first")
            await_written("first-2")
            with topics.being_written(topic, parts("open while the driver dies")):
                commit_some("beside")
                await_written("beside-2")
                stream.kill()
            stream = running()
            with topics.being_written(topic, parts("open while the server dies")):
                commit_some("behind")
                await_written("behind-0")
                own_server.kill()
                own_server.start()
            commit_some("after")
            await_written("after-0")
        finally:
            stream.kill()
        last = running("once")
        _, told = last.process.communicate()
        assert last.process.returncode == 0, told

    found = micro_batches(tmp_path)
    everything = Counter((partition, value) for partition in range(PARTITIONS) for value in committed)
    assert sum(found, Counter()) == everything
    for number, batch in enumerate(found):
        in_each = [{value for at, value in batch if at == partition} for partition in range(PARTITIONS)]
        assert in_each[0] == in_each[1], f"micro-batch {number} has part of a transaction"
    assert sum(1 for batch in found if batch) >= 3
    first_of = {re.sub(r"-\d", "", value): n for n, batch in reversed([*enumerate(found)]) for _, value in batch}
    assert first_of["beside"] < first_of["open while the driver dies"], "what is open is not waited for"
