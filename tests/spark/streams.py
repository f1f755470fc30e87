"""Streams that run to what is there, into Parquet, and what they wrote."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.spark.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


class Stream:
    """A stream with a checkpoint and an output of its own."""

    def __init__(self, spark: SparkSession, topics: Topics, directory: Path) -> None:
        self._spark = spark
        self._directory = directory
        self.endpoint = topics.endpoint
        self._count = 0
        self.anew()

    def anew(self) -> None:
        """Take a new checkpoint, and another output."""
        self._count += 1
        self.checkpoint = self._directory / f"checkpoint-{self._count}"
        self.output = self._directory / f"out-{self._count}"

    def __call__(self, topic: str, **options: str) -> StreamingQuery:
        """Run it from its checkpoint up to what is there."""
        asked = {"endpoint": self.endpoint, "startingOffsets": "earliest"} | options
        if "subscribePattern" not in asked:
            asked["subscribe"] = topic
        frame = self._spark.readStream.format("txnlog").options(**asked).load()
        writing = frame.writeStream.format("parquet").option("checkpointLocation", str(self.checkpoint))
        query = writing.trigger(availableNow=True).start(str(self.output))
        query.awaitTermination()
        return query

    def values(self) -> list[str]:
        """Return what it has written, by topic, partition and offset."""
        columns = ("topic", "partition", "offset", "value")
        rows = self._spark.read.parquet(str(self.output)).select(*columns).collect()
        return [bytes(row.value).decode() for row in sorted(rows, key=lambda row: row[:3])]

    def batches(self) -> list[str]:
        """Return the numbers of the micro-batches that are done."""
        return sorted((path.name for path in (self.checkpoint / "commits").glob("[0-9]*")), key=int)

    def forget(self, batch: int, *logs: str) -> None:
        """Take away what some logs say of a micro-batch, as if the driver had died before it was written there:
        `commits`, `offsets`, and `sink` for the log of the files."""
        for log in logs:
            directory = self.output / "_spark_metadata" if log == "sink" else self.checkpoint / log
            (directory / str(batch)).unlink()
            (directory / f".{batch}.crc").unlink()
