"""Spark's Kafka source and sink: `python spark_story.py HOST:PORT JARS MIXED COPY STREAMED RECORDS`.

The topic MIXED has records of committed and of aborted transactions. The numbers from 0 to RECORDS are committed, each
once. COPY gets them by a batch, and STREAMED by a stream.
"""

from __future__ import annotations

import sys
import tempfile

from pyspark.sql import DataFrame, SparkSession

SERVER, JARS, MIXED, COPY, STREAMED, RECORDS = sys.argv[1:]
NUMBERS = [str(number) for number in range(int(RECORDS))]


def options(topic: str) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": SERVER,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "kafka.isolation.level": "read_committed",
    }


def step(name: str) -> None:
    print(f"ok {name}", flush=True)


def values(frame: DataFrame) -> list[str]:
    """Return the values in the order of the numbers in them."""
    return sorted((row.value.decode() for row in frame.select("value").collect()), key=int)


def main() -> None:
    spark = SparkSession.builder.master("local[2]").config("spark.jars", JARS).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    mixed = spark.read.format("kafka").options(**options(MIXED)).load()
    assert values(mixed) == NUMBERS
    step("batch at read_committed")

    written = mixed.select("value").write.format("kafka")
    written.option("kafka.bootstrap.servers", SERVER).option("topic", COPY).save()
    assert values(spark.read.format("kafka").options(**options(COPY)).load()) == NUMBERS
    step("sink of a batch")

    stream = spark.readStream.format("kafka").options(**options(MIXED), maxOffsetsPerTrigger="500").load()
    with tempfile.TemporaryDirectory() as checkpoint:
        sink = stream.select("value").writeStream.format("kafka").option("kafka.bootstrap.servers", SERVER)
        sink = sink.option("topic", STREAMED).option("checkpointLocation", checkpoint)
        sink.trigger(availableNow=True).start().awaitTermination()
    assert values(spark.read.format("kafka").options(**options(STREAMED)).load()) == NUMBERS
    step("source and sink of a stream")
    spark.stop()


if __name__ == "__main__":
    main()
