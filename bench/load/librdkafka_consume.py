"""Reads the committed records of a topic by librdkafka. Operations are records.

It runs in an environment of its own, so it imports only the measuring modules of the project.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from bench.results import LoadFailed, Run
from bench.window import Window

_PARTITIONS: Final = 3
_POLLED_RECORDS_MAX: Final = 5_000
_POLL_S: Final = 0.1
_READING_S_MAX: Final = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Settings of the load."""

    bootstrap: str
    server_process_id: int
    topic: str
    value_bytes: int


def measure(load: Load) -> Run:
    """Read the topic twice and measure the second time, when its pages are in memory. Raises: LoadFailed."""
    expected = _read(load)
    window = Window(load.server_process_id)
    found = _read(load)
    run = window.close(found)
    if found != expected or not found:
        raise LoadFailed(f"{load.topic} had {expected} records at first and {found} later")
    return run


def _read(load: Load) -> int:
    """Return the number of records up to the end of each partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": load.bootstrap,
            "group.id": "bench",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(load.topic, number, OFFSET_BEGINNING) for number in range(_PARTITIONS)])
    count = value_bytes = 0
    ended: set[int | None] = set()
    until = time.monotonic() + _READING_S_MAX
    while len(ended) < _PARTITIONS:
        for message in consumer.consume(_POLLED_RECORDS_MAX, _POLL_S):
            error = message.error()
            if error is None:
                count += 1
                value_bytes += len(message.value() or b"")
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())
            else:
                raise LoadFailed(f"librdkafka says {error}")
        if time.monotonic() > until:
            raise LoadFailed(f"{load.topic} was not read in {_READING_S_MAX} s")
    consumer.close()
    if value_bytes != count * load.value_bytes:
        raise LoadFailed(f"{count} records held {value_bytes} bytes")
    return count
