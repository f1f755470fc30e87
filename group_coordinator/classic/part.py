"""Classic groups, as they are registered."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from coordinator_runtime.decision import Effect
from coordinator_runtime.requests import Committer
from group_coordinator.classic.codec import DECODERS, ENCODERS
from group_coordinator.classic.decisions import decide_loaded
from group_coordinator.classic.rebalance import session_timer
from group_coordinator.classic.state import ClassicGroup, ClassicGroupChanged, ClassicGroupForgotten, ClassicState
from group_coordinator.part import GroupPart
from group_coordinator.shard import GroupShard, Replays, ShardPart
from group_coordinator.state import Group, GroupKind


class ClassicGroups:
    """Implements `PartState`. A classic group is one value, and has its place among the shard's groups."""

    def __init__(self, shard: GroupShard) -> None:
        self._shard = shard

    def replays(self) -> Replays:
        return {ClassicGroupChanged: self._change, ClassicGroupForgotten: self._forget}

    def _change(self, record: ClassicGroupChanged) -> None:
        shard = self._shard
        group = record.group if record.group.shard == shard.key else replace(record.group, shard=shard.key)
        shard.groups.put(group.group_id, group)
        shard.standings.look(group.group_id)

    def _forget(self, record: ClassicGroupForgotten) -> None:
        self._shard.groups.remove(record.group_id)
        self._shard.standings.look(record.group_id)


def _commit_effects(group: Group, committer: Committer) -> tuple[Effect, ...]:
    assert isinstance(group, ClassicGroup), "asked for groups of this kind alone"
    member = group.members.get(committer.member_id)
    return () if member is None else (session_timer(group, member),)


CLASSIC: Final = GroupPart(
    in_shard=ShardPart(make=ClassicGroups, owed=decide_loaded, kind=GroupKind.CLASSIC, commit_effects=_commit_effects),
    encoders=ENCODERS,
    decoders=DECODERS,
    timers=("session", "join", "sync"),
    state_names=tuple(state.value for state in ClassicState),
)
