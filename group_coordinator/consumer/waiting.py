"""Waiting heartbeats of consumer groups: what is new for a member (`group_coordinator.heartbeats`)."""

from __future__ import annotations

from typing import Final

from group_coordinator.administration.settings import GroupSettings
from group_coordinator.consumer.assigning import find_group
from group_coordinator.consumer.decisions import decide_heartbeat, has_news
from group_coordinator.consumer.requests import HeartbeatRequest
from group_coordinator.epoch_group import is_settled
from group_coordinator.heartbeats import Settled, WaitingRules
from group_coordinator.members import HeartbeatReply
from group_coordinator.shard import GroupShard


def _session_timeout_ms(shard: GroupShard, group_id: str) -> int:
    return shard.part(GroupSettings).session_timeout_ms(group_id)


def _settled_on(shard: GroupShard, request: HeartbeatRequest) -> Settled | None:
    group = find_group(shard, request.group_id)
    if group is None:
        return None
    assignment = group.assignment(request.member_id)
    return Settled(assignment, group.target(request.member_id)) if is_settled(assignment, group.epochs) else None


def _may_have_news(
    shard: GroupShard, request: HeartbeatRequest, told: HeartbeatReply, settled_on: Settled | None
) -> bool:
    group = find_group(shard, request.group_id)
    member = None if group is None else group.members.get(request.member_id)
    if group is None or member is None:
        return True
    assignment, target = group.assignment(request.member_id), group.target(request.member_id)
    if settled_on is not None and settled_on.assignment is assignment and settled_on.target is target:
        return False
    if assignment.member_epoch != told.member_epoch:
        return True
    return has_news(shard, group, member, request.owned)


WAITING: Final = WaitingRules(
    decide=decide_heartbeat,
    session_timeout_ms=_session_timeout_ms,
    settled_on=_settled_on,
    may_have_news=_may_have_news,
)
