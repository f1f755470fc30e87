"""What the partition log tells of its shards, so that they can be read back from the store."""

from __future__ import annotations

from coordinator_runtime.decision import Coordinator
from coordinator_runtime.loader import ShardKind
from coordinator_runtime.rows import StateRows
from coordinator_runtime.runtime import Runtime
from partition_log.catalog.codec import CatalogCodec
from partition_log.catalog.shard import CatalogShard
from partition_log.codec import LogRows
from partition_log.shard import LogShard
from partition_log.state import PartitionConfig


def catalog_kind(catalog: CatalogShard) -> ShardKind:
    """The shard of topics, with nothing in it yet."""
    return ShardKind(
        coordinator=Coordinator.CATALOG,
        shard_count=1,
        rows=StateRows(CatalogCodec()),
        make=lambda _key: catalog,
        is_essential=True,
    )


def partitions_kind(
    runtime: Runtime, catalog: CatalogShard, *, shard_count: int, config: PartitionConfig | None = None
) -> ShardKind:
    """The shards of partitions. What is in each of them, the catalog says, which is loaded by now."""
    return ShardKind(
        coordinator=Coordinator.LOG,
        shard_count=shard_count,
        rows=LogRows(catalog.ordinals_in),
        make=lambda key: LogShard(key, runtime.journal, config),
    )
