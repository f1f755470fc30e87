"""What the transaction coordinator tells of its shards, so that they can be read back from the store."""

from __future__ import annotations

from coordinator_runtime.decision import Coordinator, ShardKey
from coordinator_runtime.loader import ShardChange, ShardKind, ShardLoader, ShardStopped
from coordinator_runtime.ports import MarkerPort
from coordinator_runtime.rows import StateRows
from coordinator_runtime.runtime import Runtime
from txn_coordinator.codec import CountersRows, TransactionCodec
from txn_coordinator.config import TransactionConfig
from txn_coordinator.counters import CountersShard
from txn_coordinator.marker_sender import MarkerSender
from txn_coordinator.shard import TransactionShard


def counters_kind(counters: CountersShard) -> ShardKind:
    """The shard of producer ids and commit sequence numbers, with nothing in it yet."""
    return ShardKind(
        coordinator=Coordinator.COUNTERS,
        shard_count=1,
        rows=CountersRows(),
        make=lambda _key: counters,
        is_essential=True,
    )


def transactions_kind(
    runtime: Runtime, *, counters: CountersShard, markers: MarkerPort, config: TransactionConfig
) -> ShardKind:
    """The shards of transactional ids. The counters must be loaded before them."""

    def make(key: ShardKey) -> TransactionShard:
        shard = TransactionShard(
            key,
            runtime.journal,
            counters=counters,
            markers=markers,
            limits=config.limits,
            two_phase=config.two_phase,
        )
        shard.expiration_ms = config.transactional_id_expiration_ms
        shard.outcomes.is_served = runtime.table.served.__contains__
        return shard

    return ShardKind(
        coordinator=Coordinator.TRANSACTIONS,
        shard_count=config.shard_count,
        rows=StateRows(TransactionCodec()),
        make=make,
        has_epoch=True,
    )


def leave_markers_to_the_next_load(loader: ShardLoader, sender: MarkerSender) -> None:
    """From now on no markers are sent for a shard that has stopped to serve: whoever loads it next sends all of them
    again, and answers to those under way must not complete what is not known here any more (spec transactions 7)."""

    def on_change(change: ShardChange) -> None:
        if isinstance(change, ShardStopped) and isinstance(change.shard, TransactionShard):
            sender.stop(change.key, change.shard.coordinator_epoch)

    loader.listen(on_change)
