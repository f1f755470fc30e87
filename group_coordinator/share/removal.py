"""Removal of members of share groups that leave or are silent for too long. Their records are available again at once,
unless a member that leaves keeps its share session.

The session timer is armed by every heartbeat and counts from its answer.

Source: spec groups 3.8, 6.1, 6.3.
"""

from __future__ import annotations

from functools import partial

from coordinator_runtime.decision import ArmTimer, CancelTimer, Decision, Effect, Operation, Record, Turn
from coordinator_runtime.share_ports import ReleaseShares
from group_coordinator.administration.settings import GroupSettings
from group_coordinator.classic.state import session_key
from group_coordinator.events import LeaveReason, MemberLeft
from group_coordinator.shard import GroupShard
from group_coordinator.share.assigning import look
from group_coordinator.share.group import ShareGroup, find_group, member_tombstones
from group_coordinator.state import Group


def decide_removal(
    shard: GroupShard, group: ShareGroup, member_id: str, reason: LeaveReason, *, keeps_session: bool = False
) -> Decision:
    """Remove a member. The others get a new target, in a new epoch. Its session ends too, at once or a little later
    (`ReleaseShares`)."""
    group_id = group.group_id
    values = member_tombstones(group_id, [member_id])
    effects: tuple[Effect, ...] = (
        CancelTimer(session_key(group_id, member_id)),
        ReleaseShares(group_id, member_id, keeps_session),
    )
    return Decision(
        records=tuple(Record(shard.key, value, cause=reason) for value in values),
        joins=(look(shard, group_id, cause=f"member {reason}", must_bump=True),),
        effects=effects,
        events=(MemberLeft(group_id, group.kind, member_id, reason),),
    )


def deletion(shard: GroupShard, group: Group) -> tuple[Operation, ...]:
    """Return the operations that drop the states of the partitions of a group that is being deleted."""
    assert isinstance(group, ShareGroup), "asked for groups of this kind alone"
    delete = partial(shard.share_states.delete, group.group_id)
    return tuple(delete(topic_id, partition) for topic_id, partition in group.initialized_partitions())


def session_timer(shard: GroupShard, group_id: str, member_id: str) -> ArmTimer:
    """Return the session timer of a member, to be armed again."""
    delay_ms = shard.part(GroupSettings).share_session_timeout_ms(group_id)
    end = partial(_decide_end, group_id=group_id, member_id=member_id)
    return ArmTimer(session_key(group_id, member_id), delay_ms, Operation(shard.key, end), since_answer=True)


def decide_loaded(shard: GroupShard, _turn: Turn) -> Decision:
    """Restart the session timers of all members after a load."""
    effects = [
        session_timer(shard, group_id, member_id)
        for group_id, group in shard.groups.items()
        if isinstance(group, ShareGroup)
        for member_id, _member in group.members.items()
    ]
    return Decision(effects=tuple(effects))


def _decide_end(shard: GroupShard, _turn: Turn, *, group_id: str, member_id: str) -> Decision:
    """Remove a member that missed its deadline. Does nothing if it is already gone."""
    group = find_group(shard, group_id)
    if group is None or member_id not in group.members:
        return Decision()
    return decide_removal(shard, group, member_id, LeaveReason.SESSION)
