"""Puts the transaction coordinator into a runtime and reads it back from the store."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from coordinator_protocol.limits import Limits
from coordinator_runtime.decision import Coordinator, ShardKey
from coordinator_runtime.loader import load_shard
from coordinator_runtime.ports import MarkerPort
from coordinator_runtime.rows import StateRows
from coordinator_runtime.runtime import Runtime
from coordinator_runtime.store import Store
from txn_coordinator.codec import CountersCodec, TransactionCodec
from txn_coordinator.counters import COUNTERS, CountersShard
from txn_coordinator.shard import EXPIRATION_MS, TransactionShard, TwoPhase


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionConfig:
    """How transactions are coordinated."""

    limits: Limits
    two_phase: TwoPhase = TwoPhase.FUSED
    shard_count: int = 64
    transactional_id_expiration_ms: int = EXPIRATION_MS


def load_transactions(runtime: Runtime, store: Store, *, markers: MarkerPort, config: TransactionConfig) -> None:
    """Load the counters, then every shard of transactional ids, each with a new coordinator epoch. They serve when that
    is durable. What they owe (timers, outcomes to finish) follows with `loader.settle_debts`, once the participants
    are loaded too.

    Raises whatever a damaged row raises."""
    for _shard in load_stepwise(runtime, store, markers=markers, config=config):
        pass


def load_stepwise(
    runtime: Runtime, store: Store, *, markers: MarkerPort, config: TransactionConfig
) -> Iterator[ShardKey]:
    """The same, shard by shard, for a caller that wants to do something else in between."""
    runtime.add_rows(Coordinator.COUNTERS, StateRows(CountersCodec()))
    counters = CountersShard(runtime.journal)
    load_shard(runtime, store, COUNTERS, counters)
    runtime.add_rows(Coordinator.TRANSACTIONS, StateRows(TransactionCodec()))
    for key in transaction_shards(config.shard_count):
        shard = TransactionShard(
            key,
            runtime.journal,
            counters=counters,
            markers=markers,
            limits=config.limits,
            two_phase=config.two_phase,
        )
        shard.expiration_ms = config.transactional_id_expiration_ms
        load_shard(runtime, store, key, shard)
        yield key


def transaction_shards(shard_count: int) -> list[ShardKey]:
    """Addresses of all shards of transactional ids."""
    return [ShardKey(Coordinator.TRANSACTIONS, number) for number in range(shard_count)]
