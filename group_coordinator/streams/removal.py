"""Removal of members of streams groups that leave, are silent for too long, or do not give up tasks in time. Their
tasks are free at once.

The session timer is armed by every heartbeat, the rebalance timer when a member must give up tasks. Both count from the
answer that tells the member.

Source: spec groups 3.8, 6.8.
"""

from __future__ import annotations

from functools import partial

from coordinator_runtime.decision import ArmTimer, CancelTimer, Decision, Effect, Operation, Record, Turn
from group_coordinator.administration.settings import GroupSettings
from group_coordinator.classic.state import session_key
from group_coordinator.consumer.group import rebalance_key
from group_coordinator.events import GroupNews, LeaveReason, MemberLeft
from group_coordinator.members import MemberState
from group_coordinator.shard import GroupShard
from group_coordinator.streams.assigning import assign_soon, look
from group_coordinator.streams.group import StreamsGroup, find_group, member_tombstones
from group_coordinator.streams.state import StreamsMember


def decide_removal(shard: GroupShard, group: StreamsGroup, member_id: str, reason: LeaveReason) -> Decision:
    """Remove a member. The others share its tasks, in one new epoch."""
    group_id = group.group_id
    effects: list[Effect] = [*cancelled_timers(group_id, member_id), GroupNews(group_id)]
    if len(group.members) > 1:
        # An operation of its own, so that a failing assignor cannot prevent the removal.
        effects.append(assign_soon(shard, group_id))
    return Decision(
        records=tuple(Record(shard.key, value, cause=reason) for value in member_tombstones(group_id, [member_id])),
        joins=(look(shard, group_id, cause=f"member {reason}", must_bump=True),),
        effects=tuple(effects),
        events=(MemberLeft(group_id, group.kind, member_id, reason),),
    )


def cancelled_timers(group_id: str, member_id: str) -> tuple[CancelTimer, CancelTimer]:
    """Return effects that cancel the timers of a member that is gone."""
    return CancelTimer(session_key(group_id, member_id)), CancelTimer(rebalance_key(group_id, member_id))


def session_timer(shard: GroupShard, group_id: str, member_id: str) -> ArmTimer:
    """Return the session timer of a member, to be armed again."""
    delay_ms = shard.part(GroupSettings).of_streams(group_id).session_timeout_ms
    end = partial(_decide_end, group_id=group_id, member_id=member_id)
    return ArmTimer(session_key(group_id, member_id), delay_ms, Operation(shard.key, end), since_answer=True)


def rebalance_timer(shard: GroupShard, group_id: str, member: StreamsMember, member_epoch: int) -> ArmTimer:
    """Return the timer of a member that must give up tasks at this epoch."""
    end = partial(_decide_end_of_revocation, group_id=group_id, member_id=member.member_id, member_epoch=member_epoch)
    key = rebalance_key(group_id, member.member_id)
    return ArmTimer(key, member.rebalance_timeout_ms, Operation(shard.key, end), since_answer=True)


def decide_loaded(shard: GroupShard, _turn: Turn) -> Decision:
    """Restart the timers of all members after a load, and schedule the targets that are missing."""
    effects: list[Effect] = []
    for group_id, group in shard.groups.items():
        if not isinstance(group, StreamsGroup) or group.is_empty:
            continue
        for member_id, member in group.members.items():
            effects.append(session_timer(shard, group_id, member_id))
            current = group.assignment(member_id)
            if current.state is MemberState.UNREVOKED:
                effects.append(rebalance_timer(shard, group_id, member, current.member_epoch))
        if group.is_target_due:
            effects.append(assign_soon(shard, group_id))
    return Decision(effects=tuple(effects))


def _decide_end(shard: GroupShard, _turn: Turn, *, group_id: str, member_id: str) -> Decision:
    """Remove a member that was silent. Does nothing if it is already gone."""
    group = find_group(shard, group_id)
    if group is None or member_id not in group.members:
        return Decision()
    return decide_removal(shard, group, member_id, LeaveReason.SESSION)


def _decide_end_of_revocation(
    shard: GroupShard, _turn: Turn, *, group_id: str, member_id: str, member_epoch: int
) -> Decision:
    """Remove a member that has not given up its tasks in time. Does nothing if it has moved on since."""
    group = find_group(shard, group_id)
    if group is None:
        return Decision()
    current = group.assignment(member_id)
    if current.state is not MemberState.UNREVOKED or current.member_epoch != member_epoch:
        return Decision()
    return decide_removal(shard, group, member_id, LeaveReason.REBALANCE)
