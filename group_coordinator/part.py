"""What a part of the group coordinator says of itself, once, when it is registered (`registry.PARTS`)."""

from __future__ import annotations

from dataclasses import dataclass

from coordinator_runtime.rows import Decoders, Encoders
from group_coordinator.shard import ShardPart


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPart:
    """One part: a kind of group, or something that groups of every kind have."""

    in_shard: ShardPart
    """What it keeps in a shard and how that changes."""
    encoders: Encoders
    """Bytes of its records. It has one for every class of value that its state replays."""
    decoders: Decoders
    """Records from their bytes, by record type (`codec` numbers them)."""
    timers: tuple[str, ...] = ()
    """Kinds of the timers that it arms, as the metric `txn_runtime_timers` names them."""
    state_names: tuple[str, ...] = ()
    """States in which a group of this kind can be, as ListGroups and the metric `txn_group_groups` show them."""
