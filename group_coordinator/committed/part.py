"""Committed offsets, as they are registered."""

from __future__ import annotations

from typing import Final

from group_coordinator.committed.codec import DECODERS, ENCODERS
from group_coordinator.committed.expiry import decide_owed
from group_coordinator.committed.offsets import Offsets, durable_simple_group, simple_group
from group_coordinator.part import GroupPart
from group_coordinator.shard import ShardPart

COMMITTED: Final = GroupPart(
    in_shard=ShardPart(
        make=lambda shard: Offsets(shard.journal, on_turned=shard.standings.look),
        owed=decide_owed,
        unlisted_group=simple_group,
        durable_unlisted_group=durable_simple_group,
    ),
    encoders=ENCODERS,
    decoders=DECODERS,
    timers=("offset_expiration",),
)
