"""Puts the partition log into a runtime and reads it back from the store."""

from __future__ import annotations

from coordinator_runtime.decision import Coordinator, ShardKey
from coordinator_runtime.loader import load_shard
from coordinator_runtime.rows import StateRows
from coordinator_runtime.runtime import Runtime
from coordinator_runtime.store import Store
from partition_log.catalog.codec import CatalogCodec
from partition_log.catalog.directory import TopicDirectory
from partition_log.catalog.shard import CatalogShard
from partition_log.catalog.state import CATALOG_KEY
from partition_log.rows import LogRows
from partition_log.shard import LogShard
from partition_log.state import PartitionConfig


def load_partition_log(
    runtime: Runtime, store: Store, *, shard_count: int, config: PartitionConfig | None = None
) -> TopicDirectory:
    """Load the catalog, then every shard of partitions. They serve when this returns.

    Raises whatever a damaged row raises."""
    runtime.add_rows(Coordinator.CATALOG, StateRows(CatalogCodec()))
    load_shard(runtime, store, CATALOG_KEY, CatalogShard(runtime.journal, shard_count=shard_count))
    directory = TopicDirectory(runtime)
    runtime.add_rows(Coordinator.LOG, LogRows(directory.shard.ordinals_in))
    for number in range(shard_count):
        key = ShardKey(Coordinator.LOG, number)
        load_shard(runtime, store, key, LogShard(key, runtime.journal, config))
    return directory
