"""Metrics of groups and offsets, compared with a look at all of them."""

from __future__ import annotations

from collections import Counter

from coordinator_api.v1 import group_pb2
from coordinator_runtime.decision import Coordinator
from group_coordinator.committed.offsets import Offsets
from group_coordinator.shard import GroupShard
from tests.harness.world import World


def check_counts(world: World) -> None:
    """Assert that the counts, kept step by step, agree with a look at everything, at any moment."""
    shards: list[GroupShard] = world.inside.runtime.shards(Coordinator.GROUPS)
    counted: Counter[tuple[str, str]] = Counter()
    for shard in shards:
        counted.update(
            {(standing.kind.value, standing.state_name): n for standing, n in shard.standings.durable().items()}
        )
        held = waiting = open_transactions = 0
        for group_id in shard.part(Offsets).durable_group_ids():
            offsets = shard.part(Offsets).of(group_id)
            pending = offsets.durable_pending()
            committed = {partition for partition, _offset in offsets.committed.durable_items()}
            held += len(committed | {partition for _producer, partition, _pending in pending})
            waiting += len(pending)
            open_transactions += len({producer for producer, _partition, _pending in pending})
        assert shard.part(Offsets).counts() == (held, waiting, open_transactions)
    listed = world.call(group_pb2.ListGroupsRequest()).result().groups
    assert counted == Counter((group.group_type, group.group_state) for group in listed)
