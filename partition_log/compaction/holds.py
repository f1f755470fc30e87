"""Holds on a part of a log, which keep compaction away: of snapshots, and of transactions that are not complete."""

from __future__ import annotations

from coordinator_runtime.ports import OffsetLeases, UnfinishedTransactions
from coordinator_runtime.runtime import Runtime
from partition_log.catalog.state import PlacedPartition
from partition_log.shard import LogShard


class CompactionHolds:
    """Finds the first offset of a partition that must stay as it is."""

    def __init__(self, runtime: Runtime, unfinished: UnfinishedTransactions, leases: OffsetLeases) -> None:
        self._runtime = runtime
        self._unfinished = unfinished
        self._leases = leases

    def held_from(self, placed: PlacedPartition) -> int | None:
        """Return the first held offset; None if there is none. Raises Refused if not all of the transaction coordinator
        serves."""
        ordinal = placed.ref.ordinal
        shard: LogShard = self._runtime.shard(placed.shard)
        unfinished = [
            each for each in self._unfinished.unfinished() if each.partitions is None or ordinal in each.partitions
        ]
        # A snapshot that is taken now hides these transactions, and shows the records that they replaced.
        hidden = shard.durable_exclusions(ordinal, unfinished).values()
        leased = self._leases.oldest(ordinal)
        return min(hidden if leased is None else (leased, *hidden), default=None)
