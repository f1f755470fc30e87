"""The settings of single groups, as they are registered."""

from __future__ import annotations

from typing import Final

from group_coordinator.administration.codec import DECODERS, ENCODERS
from group_coordinator.administration.settings import GroupSettings
from group_coordinator.part import GroupPart
from group_coordinator.shard import ShardPart

ADMINISTRATION: Final = GroupPart(
    in_shard=ShardPart(make=lambda shard: GroupSettings(shard.journal, shard.config)),
    encoders=ENCODERS,
    decoders=DECODERS,
)
