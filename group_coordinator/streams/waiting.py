"""Waiting heartbeats of streams groups: what is new for a member (`group_coordinator.heartbeats`)."""

from __future__ import annotations

from typing import Final

from group_coordinator.administration.settings import GroupSettings
from group_coordinator.epoch_group import is_settled
from group_coordinator.heartbeats import Settled, WaitingRules
from group_coordinator.members import HeartbeatReply
from group_coordinator.shard import GroupShard
from group_coordinator.streams.decisions import decide_heartbeat, moved, statuses
from group_coordinator.streams.endpoints import endpoint_epoch
from group_coordinator.streams.group import find_group
from group_coordinator.streams.requests import StreamsHeartbeat, StreamsReply


def _session_timeout_ms(shard: GroupShard, group_id: str) -> int:
    return shard.part(GroupSettings).of_streams(group_id).session_timeout_ms


def _settled_on(shard: GroupShard, request: StreamsHeartbeat) -> Settled | None:
    group = find_group(shard, request.group_id)
    if group is None:
        return None
    assignment = group.assignment(request.member_id)
    return Settled(assignment, group.target(request.member_id)) if is_settled(assignment, group.epochs) else None


def _may_have_news(
    shard: GroupShard, request: StreamsHeartbeat, told: HeartbeatReply, settled_on: Settled | None
) -> bool:
    group = find_group(shard, request.group_id)
    member = None if group is None else group.members.get(request.member_id)
    if group is None or member is None:
        return True
    assert isinstance(told, StreamsReply), "asked of streams groups alone"
    if endpoint_epoch(shard, group) != told.endpoint_epoch or statuses(group, member) != told.statuses:
        return True
    assignment, target = group.assignment(request.member_id), group.target(request.member_id)
    if settled_on is not None and settled_on.assignment is assignment and settled_on.target is target:
        return False
    if assignment.member_epoch != told.member_epoch:
        return True
    # A new epoch alone can wait for the next heartbeat.
    after = moved(group, member, request.owned)
    return after.assigned != assignment.assigned


WAITING: Final = WaitingRules(
    decide=decide_heartbeat,
    session_timeout_ms=_session_timeout_ms,
    settled_on=_settled_on,
    may_have_news=_may_have_news,
)
