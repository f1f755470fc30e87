"""The way from an id to its shard: one way, the same for all callers."""

from __future__ import annotations

from coordinator_runtime.decision import Coordinator, ShardRouter

MEMBERS = [f"__member/sink/{attempt}" for attempt in range(10)]


def test_transactional_ids_that_are_decided_together_share_a_shard() -> None:
    shard_of = ShardRouter(Coordinator.TRANSACTIONS, 64).shard_key
    assert {shard_of(member) for member in MEMBERS} == {shard_of("sink")}


def test_groups_of_such_names_do_not() -> None:
    assert len(set(map(ShardRouter(Coordinator.GROUPS, 64).shard_key, MEMBERS))) > 1
