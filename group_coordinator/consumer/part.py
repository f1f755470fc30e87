"""Consumer groups, as they are registered."""

from __future__ import annotations

from typing import Final

from group_coordinator.consumer.codec import DECODERS, ENCODERS
from group_coordinator.consumer.removal import decide_loaded
from group_coordinator.consumer.replay import ConsumerGroups
from group_coordinator.consumer.state import GroupState
from group_coordinator.part import GroupPart
from group_coordinator.shard import ShardPart
from group_coordinator.state import GroupKind

CONSUMER: Final = GroupPart(
    in_shard=ShardPart(make=ConsumerGroups, owed=decide_loaded, kind=GroupKind.CONSUMER),
    encoders=ENCODERS,
    decoders=DECODERS,
    timers=("session", "rebalance", "join", "sync", "target", "regex"),
    state_names=tuple(state.value for state in GroupState),
)
