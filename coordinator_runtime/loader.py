"""Brings shards back from the store before they serve.

A shard is rebuilt from its stored newest records alone (promise 2). Shards of the two coordinators then get a new
coordinator epoch, durable before the first request, so that a forgotten process with an older epoch is refused
(design 9). Last, each shard says what it owes: timers of open transactions, outcomes that a crash left half done.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from coordinator_runtime.decision import Coordinator, Decision, Operation, Record, Shard, ShardEpoch, ShardKey
from coordinator_runtime.runtime import Runtime
from coordinator_runtime.store import Store

WITH_EPOCH = (Coordinator.TRANSACTIONS, Coordinator.GROUPS)
"""Coordinators whose shards send markers, and so carry a coordinator epoch."""


def load_shard(runtime: Runtime, store: Store, key: ShardKey, shard: Shard) -> None:
    """Replay what the store holds of a shard and let it serve. Raises whatever a damaged record raises: then the shard
    does not serve, and no half-read state is shown."""
    coordinator_epoch = 0
    with runtime.journal.loading():
        for value in runtime.rows(key.coordinator).load(store, key):
            if isinstance(value, ShardEpoch):
                coordinator_epoch = value.coordinator_epoch
            shard.replay(value)
    runtime.add_shard(key, shard)
    if key.coordinator in WITH_EPOCH:
        _open_epoch(runtime, key, coordinator_epoch + 1)


def _open_epoch(runtime: Runtime, key: ShardKey, coordinator_epoch: int) -> None:
    record = Record(key, ShardEpoch(coordinator_epoch), cause="open")
    runtime.write(Operation(key, lambda _shard, _turn: Decision(records=(record,))), is_urgent=True)


def settle_debts(runtime: Runtime, keys: Sequence[ShardKey]) -> None:
    """Let loaded shards say what they owe. All shards that a debt may touch must be loaded by now."""
    for key in keys:
        runtime.write(Operation(key, _what_is_owed), is_urgent=True)


_what_is_owed: Callable[..., Decision] = lambda shard, turn: shard.on_loaded(turn)  # noqa: E731
