"""Reads the committed records of a topic once. Operations are records. A *driver* is a form in which the reader gets
them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from bench.load.fill import PARTITIONS
from bench.results import LoadFailed, Run
from bench.window import Window
from coordinator_client import Consumer
from coordinator_client.reading.batch_reader import BatchReader
from coordinator_client.reading.reader import ReadPlan, plan_ranges
from coordinator_client.transport.connection import Connection
from coordinator_client.values import TopicPartition

_POLLED_RECORDS_MAX: Final = 5_000
_POLL_MS: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Settings of the load."""

    endpoint: str
    server_process_id: int
    driver: str
    topic: str
    value_bytes: int


Driver = Callable[[Load, Connection], int]


def measure(load: Load) -> Run:
    """Read the topic twice and measure the second time, when its pages are in memory. Raises: LoadFailed."""
    driver = DRIVERS[load.driver]
    with Connection(load.endpoint, client_id="bench") as connection:
        expected = driver(load, connection)
        window = Window(load.server_process_id)
        found = driver(load, connection)
        run = window.close(found)
    if found != expected or not found:
        raise LoadFailed(f"{load.topic} had {expected} records at first and {found} later")
    return run


def by_arrow_batches(load: Load, connection: Connection) -> int:
    """Read columns, like a program that works on columns."""
    ranges = plan_ranges(connection, load.topic, ReadPlan())
    return sum(batch.as_arrow().num_rows for batch in BatchReader(connection, ranges))


def by_polls(load: Load, connection: Connection) -> int:
    """Read records, as one Python object each."""
    partitions = [TopicPartition(load.topic, number) for number in range(PARTITIONS)]
    with Consumer(connection, auto_offset_reset="earliest") as consumer:
        ends = consumer.end_offsets(partitions)
        consumer.assign(partitions)
        count = value_bytes = 0
        while any(consumer.position(partition) < ends[partition] for partition in partitions):
            for record in consumer.poll(timeout_ms=_POLL_MS, max_records=_POLLED_RECORDS_MAX):
                count += 1
                value_bytes += len(record.value or b"")
    if value_bytes != count * load.value_bytes:
        raise LoadFailed(f"{count} records held {value_bytes} bytes")
    return count


DRIVERS: Final[Mapping[str, Driver]] = MappingProxyType(
    {"SDK, Arrow batches": by_arrow_batches, "SDK, records": by_polls}
)
