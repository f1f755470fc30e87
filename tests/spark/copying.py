"""A stream from topic to topic through the sink, run again and again from its checkpoint, and what it left."""

from __future__ import annotations

import json
import sys
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Final

import grpc

from coordinator_api.v1 import transaction_pb2, transaction_pb2_grpc
from coordinator_client import Connection, read
from tests.harness.patience import DEADLINE_SECONDS
from tests.spark.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


FOLLOWING: Final = ("--follow", "--trigger-interval", "0 seconds")


def job(address: str, source: str, target: str, directory: Path, *more: str) -> list[str]:
    """The command that copies one topic to another, with its checkpoint in the directory."""
    command = [sys.executable, "-m", "pyspark_txnlog.job", source, "--endpoint", address]
    command += ["--format", "topic", "--output", target, "--checkpoint", str(directory / "checkpoint")]
    # So few records would be one task, and a decision about one member.
    return [*command, "--starting-offsets", "earliest", "--min-partitions", "2", *more]


class Copying:
    """Copies one topic to another."""

    def __init__(self, spark: SparkSession, topics: Topics, checkpoint: Path, *, prefix: str = "") -> None:
        """`prefix`: what the name of the sink begins with, where it is not the name of the target."""
        self._spark = spark
        self._endpoint = topics.endpoint
        self.checkpoint = checkpoint
        self.source, self.target = topics.create(2), topics.create(2)
        self._prefix = prefix or self.target

    def of(self, checkpoint: Path) -> Copying:
        """Return the same with another checkpoint."""
        other = copy(self)
        other.checkpoint = checkpoint
        return other

    def __call__(self, *, endpoint: str = "", tasks: int = 0, **options: str) -> None:
        """Run from the checkpoint to what is there, by way of an endpoint, with so many tasks; 0 = as many as the
        source makes. Raises: StreamingQueryException."""
        endpoint = endpoint or self._endpoint
        asked = {"endpoint": endpoint, "subscribe": self.source, "startingOffsets": "earliest", "columns": "value"}
        # So few records would be one task, and a decision about one member.
        frame = self._spark.readStream.format("txnlog").options(**asked, minPartitions="2").load()
        frame = frame.repartition(tasks) if tasks else frame
        wanted = {"endpoint": endpoint, "topic": self.target, "transactionalIdPrefix": self._prefix} | options
        writing = frame.writeStream.format("txnlog").options(**wanted)
        query = writing.option("checkpointLocation", str(self.checkpoint)).trigger(availableNow=True).start()
        query.awaitTermination()

    def forget_last_commit(self) -> None:
        """Leave what a driver leaves that died between the decision and Spark's own note of it."""
        commits = self.checkpoint / "commits"
        last = max(commits.glob("[0-9]*"), key=lambda path: int(path.name))
        last.unlink()
        (commits / f".{last.name}.crc").unlink()

    def seen(self) -> list[str]:
        """Return what readers of committed records see, sorted."""
        return values_in(self.target, self._endpoint)

    def members(self) -> list[transaction_pb2.SinkMemberDescription]:
        """Return the members that are not complete, of its own query: others on the server may leave members, too."""
        with grpc.insecure_channel(self._endpoint) as channel:
            asked = transaction_pb2.DescribeSinksRequest()
            stub = transaction_pb2_grpc.TransactionServiceStub(channel)
            described = stub.DescribeSinks(asked, timeout=DEADLINE_SECONDS).sinks
        query = json.loads((self.checkpoint / "metadata").read_text())["id"]
        return [member for sink in described if sink.sink == f"{self._prefix}/{query}" for member in sink.members]


def values_in(topic: str, endpoint: str, *, isolation: str = "read_committed") -> list[str]:
    """Return the values in a topic, sorted."""
    with Connection(endpoint) as connection:
        return sorted((record.value or b"").decode() for record in read(topic, connection, isolation=isolation))
