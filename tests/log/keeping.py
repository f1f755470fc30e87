"""Logs that keep a part of their records: short stretches, and limits by time and size."""

from __future__ import annotations

from coordinator_runtime.store import Family
from partition_log import codec
from partition_log.state import PartitionConfig
from tests.log.driven_log import (
    Batch,
    DrivenLog,
    Retention,
)

TWO_ROWS = PartitionConfig(index_interval_batches=2)
"""Every second row ends a stretch."""
BATCH_BYTES = 64 + len(Batch().payload)


def driven_keeping(retention_ms: int = -1, retention_bytes: int = -1) -> DrivenLog:
    driven = DrivenLog(config=TWO_ROWS, default_retention=Retention(retention_ms, retention_bytes))
    driven.create(partition_count=2)
    return driven


def keys(driven: DrivenLog, family: Family, partition: int = 0) -> list[int]:
    """The offsets under which a partition has rows."""
    ordinal = driven.ordinal(partition)
    rows = driven.store.scan(family, codec.partition_key(ordinal), codec.partition_key(ordinal + 1))
    return [int.from_bytes(key[4:12], "big") for key, _value in rows]


def aged(driven: DrivenLog, *timestamps_ms: int) -> None:
    """Append a batch with each of these timestamps."""
    for timestamp_ms in timestamps_ms:
        driven.append(Batch(timestamp_ms=timestamp_ms))
