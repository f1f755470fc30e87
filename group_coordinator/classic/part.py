"""Classic groups, as they are registered."""

from __future__ import annotations

from typing import Final

from coordinator_runtime.decision import Effect
from coordinator_runtime.ports import Committer
from group_coordinator.classic.codec import DECODERS, ENCODERS
from group_coordinator.classic.decisions import decide_loaded
from group_coordinator.classic.rebalance import session_timer
from group_coordinator.classic.state import ClassicGroup, ClassicGroups, ClassicState
from group_coordinator.part import GroupPart
from group_coordinator.shard import ShardPart
from group_coordinator.state import Group, GroupKind


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
