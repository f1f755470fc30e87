"""Removal of members that leave, are silent for too long, or exceed a timeout. Their partitions are free at once.

| timer | armed | reason when it ends |
| --- | --- | --- |
| session | by every heartbeat | the member was silent |
| rebalance | when the member must revoke partitions | it did not |
| join | when a classic member must join again | it did not |
| sync | when the JoinGroup of a classic member was answered | it did not fetch its assignment |

All four end the membership, and none outlives the member. They count from the answer that instructs the member. A
staged decision that arms or cancels a timer voids the one armed before it (`ArmTimer`).

Source: spec groups 3.8.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial

from coordinator_runtime.decision import ArmTimer, Decision, Effect, Operation, Record, Turn
from group_coordinator.administration.settings import GroupSettings
from group_coordinator.classic.state import session_key
from group_coordinator.consumer import downgrade, records
from group_coordinator.consumer.assigning import assign_soon, bump, find_group
from group_coordinator.consumer.group import ConsumerGroup, cancelled_timers, join_key, rebalance_key, sync_key
from group_coordinator.consumer.state import ConsumerMember
from group_coordinator.events import GroupNews, LeaveReason, MemberLeft
from group_coordinator.members import MemberState
from group_coordinator.shard import GroupShard


def decide_removal(shard: GroupShard, group: ConsumerGroup, member_ids: Sequence[str], reason: LeaveReason) -> Decision:
    """Remove these members. The others share their partitions, in one new epoch.

    If no member with the consumer protocol remains, the group may become a classic one instead (`downgrade`).
    """
    group_id = group.group_id
    effects: list[Effect] = [*cancelled_timers(group_id, member_ids), GroupNews(group_id)]
    if downgrade.is_downgrade(shard, group, member_ids):
        follows = downgrade.downgrade(shard, group_id, must_rebalance=True)
    else:
        follows = bump(shard, group_id, cause=f"member {reason}")
        if len(group.members) > len(member_ids):
            # An operation of its own, so that a failing assignor cannot prevent the removal.
            effects.append(assign_soon(shard, group_id))
    return Decision(
        records=tuple(Record(shard.key, value, cause=reason) for value in removal_values(group, member_ids)),
        joins=(follows,),
        effects=tuple(effects),
        events=tuple(MemberLeft(group_id, group.kind, member_id, reason) for member_id in member_ids),
    )


def removal_values(group: ConsumerGroup, member_ids: Sequence[str]) -> list[object]:
    """Return the records that remove members and the patterns that only they used, in the order that replay demands."""
    group_id = group.group_id
    values: list[object] = []
    dropped: Counter[str] = Counter()
    for member_id in member_ids:
        values += (
            records.AssignmentForgotten(group_id, member_id),
            records.TargetForgotten(group_id, member_id),
            records.MemberForgotten(group_id, member_id),
        )
        member = group.members.get(member_id)
        if member is not None and member.subscription.regex is not None:
            dropped[member.subscription.regex] += 1
    for regex, users in dropped.items():
        if regex in group.regexes and group.users_of(regex) == users:
            values.append(records.RegexForgotten(group_id, regex))
    return values


# Timers


def session_timer(shard: GroupShard, group_id: str, member: ConsumerMember) -> ArmTimer:
    """Return the session timer of a member, to be armed again."""
    if member.classic is None:
        delay_ms = shard.part(GroupSettings).session_timeout_ms(group_id)
    else:
        delay_ms = member.classic.session_timeout_ms
    end = partial(_decide_end, group_id=group_id, member_id=member.member_id, reason=LeaveReason.SESSION)
    return ArmTimer(session_key(group_id, member.member_id), delay_ms, Operation(shard.key, end), since_answer=True)


def rebalance_timer(shard: GroupShard, group_id: str, member: ConsumerMember, member_epoch: int) -> ArmTimer:
    """Return the timer of a member that must revoke partitions at this epoch."""
    end = partial(_decide_end_of_revocation, group_id=group_id, member_id=member.member_id, member_epoch=member_epoch)
    key = rebalance_key(group_id, member.member_id)
    return ArmTimer(key, member.rebalance_timeout_ms, Operation(shard.key, end), since_answer=True)


def join_timer(shard: GroupShard, group_id: str, member: ConsumerMember) -> ArmTimer:
    """Return the timer of a classic member that must join again."""
    end = partial(_decide_end, group_id=group_id, member_id=member.member_id, reason=LeaveReason.REBALANCE)
    key = join_key(group_id, member.member_id)
    return ArmTimer(key, member.rebalance_timeout_ms, Operation(shard.key, end), since_answer=True)


def sync_timer(shard: GroupShard, group_id: str, member: ConsumerMember) -> ArmTimer:
    """Return the timer of a classic member that must fetch its assignment."""
    end = partial(_decide_end, group_id=group_id, member_id=member.member_id, reason=LeaveReason.SYNC)
    key = sync_key(group_id, member.member_id)
    return ArmTimer(key, member.rebalance_timeout_ms, Operation(shard.key, end), since_answer=True)


def decide_loaded(shard: GroupShard, _turn: Turn) -> Decision:
    """Restart the timers of all members after a load, and schedule the targets that are missing."""
    effects: list[Effect] = []
    for group in shard.groups.values():
        if isinstance(group, ConsumerGroup) and not group.is_empty:
            effects += _owed(shard, group)
    return Decision(effects=tuple(effects))


def _owed(shard: GroupShard, group: ConsumerGroup) -> Iterator[Effect]:
    group_id = group.group_id
    for member in group.members.values():
        yield session_timer(shard, group_id, member)
        current = group.assignment(member.member_id)
        if current.state is MemberState.UNREVOKED:
            yield rebalance_timer(shard, group_id, member, current.member_epoch)
    if group.is_target_due:
        yield assign_soon(shard, group_id)


def _decide_end(shard: GroupShard, turn: Turn, *, group_id: str, member_id: str, reason: LeaveReason) -> Decision:
    """Remove a member that missed its deadline. Does nothing if it is already gone."""
    group = find_group(shard, group_id)
    if group is None or member_id not in group.members:
        return Decision()
    return decide_removal(shard, group, [member_id], reason)


def _decide_end_of_revocation(
    shard: GroupShard, turn: Turn, *, group_id: str, member_id: str, member_epoch: int
) -> Decision:
    """Remove a member that has not revoked its partitions in time. Does nothing if it has moved on since."""
    group = find_group(shard, group_id)
    if group is None:
        return Decision()
    current = group.assignment(member_id)
    if current.state is not MemberState.UNREVOKED or current.member_epoch != member_epoch:
        return Decision()
    return decide_removal(shard, group, [member_id], LeaveReason.REBALANCE)
