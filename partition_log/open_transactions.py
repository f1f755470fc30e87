"""Open transactions of all partitions, for what finds hanging ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from coordinator_runtime.decision import CATALOG_KEY, Coordinator, Decision, Operation, Turn
from coordinator_runtime.ports import OpenInPartition
from coordinator_runtime.runtime import Runtime
from partition_log.catalog.shard import CatalogShard
from partition_log.shard import LogShard


class PartitionTransactions:
    """Implements `coordinator_runtime.ports.OpenTransactions`."""

    def __init__(self, runtime: Runtime, catalog: CatalogShard) -> None:
        self._runtime = runtime
        self._catalog = catalog

    def all_open(self) -> Sequence[OpenInPartition]:
        """Return the open transactions of all partitions, live state."""
        shards: list[LogShard] = self._runtime.shards(Coordinator.LOG)
        return [found for shard in shards for found in shard.all_open_transactions()]

    def ask_open(self, ordinal: int, then: Callable[[Sequence[OpenInPartition]], Decision]) -> Operation:
        """Asks on the partition's shard; a deleted partition has none."""
        shard = self._catalog.shard_of(ordinal)
        if shard is None:
            return Operation(CATALOG_KEY, lambda _catalog, _turn: then(()))

        def decide(log: LogShard, _turn: Turn) -> Decision:
            return then(log.open_transactions(ordinal))

        return Operation(shard, decide)
