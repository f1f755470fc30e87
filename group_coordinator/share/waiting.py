"""Waiting heartbeats of share groups: what is new for a member (`group_coordinator.heartbeats`)."""

from __future__ import annotations

from typing import Final

from group_coordinator.administration.settings import GroupSettings
from group_coordinator.heartbeats import Settled, WaitingRules
from group_coordinator.members import HeartbeatReply
from group_coordinator.shard import GroupShard
from group_coordinator.share.decisions import decide_heartbeat
from group_coordinator.share.group import find_group
from group_coordinator.share.requests import ShareHeartbeat


def _session_timeout_ms(shard: GroupShard, group_id: str) -> int:
    return shard.part(GroupSettings).share_session_timeout_ms(group_id)


def _settled_on(shard: GroupShard, request: ShareHeartbeat) -> Settled | None:
    group = find_group(shard, request.group_id)
    if group is None:
        return None
    return Settled(group.assignment(request.member_id), group.target(request.member_id))


def _may_have_news(
    shard: GroupShard, request: ShareHeartbeat, _told: HeartbeatReply, settled_on: Settled | None
) -> bool:
    group = find_group(shard, request.group_id)
    if group is None or request.member_id not in group.members:
        return True
    # A new epoch alone can wait for the next heartbeat. A target that stays is the same object.
    assignment, target = group.assignment(request.member_id), group.target(request.member_id)
    return settled_on is None or settled_on.assignment is not assignment or settled_on.target is not target


WAITING: Final = WaitingRules(
    decide=decide_heartbeat,
    session_timeout_ms=_session_timeout_ms,
    settled_on=_settled_on,
    may_have_news=_may_have_news,
)
