"""Puts the group coordinator into a runtime and reads it back from the store."""

from __future__ import annotations

from collections.abc import Iterator

from coordinator_protocol.hashing import shard_of
from coordinator_runtime.decision import Coordinator, ShardKey
from coordinator_runtime.loader import load_shard
from coordinator_runtime.ports import TopicMetadata
from coordinator_runtime.rows import StateRows
from coordinator_runtime.runtime import Runtime
from coordinator_runtime.store import Store
from group_coordinator.codec import GroupCodec
from group_coordinator.config import GroupConfig
from group_coordinator.shard import GroupShard


def load_groups(
    runtime: Runtime, store: Store, *, topics: TopicMetadata, config: GroupConfig, shard_count: int
) -> Iterator[ShardKey]:
    """Load every shard of groups, each with a new coordinator epoch, one at a step. They serve when that is durable;
    what they owe (timers) follows with `loader.settle_debts`.

    Raises whatever a damaged row raises."""
    runtime.add_rows(Coordinator.GROUPS, StateRows(GroupCodec(())))
    for key in group_shards(shard_count):
        load_shard(runtime, store, key, GroupShard(key, runtime.journal, topics=topics, config=config))
        yield key


def group_shards(shard_count: int) -> list[ShardKey]:
    """Addresses of all shards of groups."""
    return [ShardKey(Coordinator.GROUPS, number) for number in range(shard_count)]


class GroupRouter:
    """Where a group lives."""

    def __init__(self, shard_count: int) -> None:
        self._shard_count = shard_count

    def shard_key(self, group_id: str) -> ShardKey:
        """Source: spec groups 10.1 (Kafka's string hash; the smallest integer maps to 0)."""
        return ShardKey(Coordinator.GROUPS, shard_of(group_id, self._shard_count))
