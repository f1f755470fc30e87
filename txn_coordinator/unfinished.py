"""Transactions that are decided and not finished everywhere, for snapshots.

A transaction is finished once its COMPLETE is durable. So each is unfinished from its durable PREPARE on, regardless of
the markers already in its partitions. A fused one is never unfinished, because all of it becomes durable at once.
"""

from __future__ import annotations

from collections.abc import Sequence

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.decision import Coordinator, ShardKey
from coordinator_runtime.ports import UnfinishedTransaction
from coordinator_runtime.runtime import Runtime
from txn_coordinator.marker_sender import MarkerSender
from txn_coordinator.shard import TransactionShard


class UnfinishedOutcomes:
    """Unfinished transactions of all shards. Implements `coordinator_runtime.ports.UnfinishedTransactions`."""

    def __init__(self, runtime: Runtime, sender: MarkerSender, shard_count: int) -> None:
        self._runtime = runtime
        self._sender = sender
        self._keys = [ShardKey(Coordinator.TRANSACTIONS, number) for number in range(shard_count)]

    def unfinished(self) -> Sequence[UnfinishedTransaction]:
        """Return every decided transaction that is not finished at this moment. Raises Refused
        COORDINATOR_LOAD_IN_PROGRESS, KAFKA_STORAGE_ERROR."""
        found = self._sender.unfinished()
        for key in self._keys:
            found += self._members(key)
        return found

    def _members(self, key: ShardKey) -> list[UnfinishedTransaction]:
        """Return the committing members of sinks whose decision is being carried out, the complete ones too. Until all
        are complete, a snapshot shows none of them."""
        shard: TransactionShard | None = self._runtime.table.find(key)
        if shard is None:
            raise Refused(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                f"shard {key.number} of the transaction coordinator does not serve, so it is unknown which of its"
                " transactions are finished: try again, or load it (txnctl shard)",
            )
        if shard.table.unreadable:
            raise Refused(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"shard {key.number} of the transaction coordinator has transactional ids that only a newer server can"
                " read, so it is unknown whether they are finished: start the version that wrote them",
            )
        return [
            UnfinishedTransaction(producer_id, key.number, sink.last_csn, None, writes_once=True)
            for sink in shard.sinks.state.all_durable()
            for producer_id in sink.committing
        ]
