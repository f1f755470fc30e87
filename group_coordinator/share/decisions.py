"""Decisions of a shard on ShareGroupHeartbeat.

One heartbeat takes up to four steps in one operation. The member's new metadata is stored. The group gets a new epoch
if that affects its assignment, and the partitions that it needs get their states. A target for that epoch is computed,
or asked for. The member takes up its target. A heartbeat with nothing new, of a member that has reached its target,
changes nothing, writes nothing, and costs a few lookups.

Source: spec groups 6.1, 3.4, 3.7.
"""

from __future__ import annotations

from functools import partial

from msgspec.structs import replace

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.decision import Decision, Operation, Record, Turn
from coordinator_runtime.ports import Committer
from group_coordinator.administration.settings import GroupSettings
from group_coordinator.committed.offsets import Offsets
from group_coordinator.events import GroupCreated, LeaveReason, MemberJoined
from group_coordinator.members import LEAVE_EPOCH, HeartbeatReply, check_size, unknown_member
from group_coordinator.shard import GroupShard
from group_coordinator.share import records
from group_coordinator.share.assigning import assign, is_look_due, look
from group_coordinator.share.group import ShareGroup, find_group, the_group
from group_coordinator.share.removal import decide_removal, session_timer
from group_coordinator.share.requests import ShareHeartbeat
from group_coordinator.share.rules import check_acknowledging, check_epoch, is_repetition
from group_coordinator.share.state import ShareAssignment, ShareMember
from group_coordinator.state import Group, GroupKind


def decide_heartbeat(shard: GroupShard, turn: Turn, *, request: ShareHeartbeat) -> Decision:
    """Decide a heartbeat. The reply is a HeartbeatReply. Raises Refused as spec groups 6.1 and 3.7 say."""
    group = find_group(shard, request.group_id)
    if group is None:
        return _decide_first(shard, turn, request)
    if request.member_epoch == LEAVE_EPOCH:
        return _decide_leave(shard, group, request)
    before = group.members.get(request.member_id)
    if before is None and not request.is_join:
        raise unknown_member(group.group_id, request.member_id)
    if before is None:
        check_size(group.group_id, len(group.members), shard.config.share_size_max)
    current = group.assignment(request.member_id)
    check_epoch(current, request.member_epoch)
    return _decide_beat(shard, turn, group, request, before)


# The first heartbeat of a group


def _decide_first(shard: GroupShard, turn: Turn, request: ShareHeartbeat) -> Decision:
    """Create the group for its first member, in place of an empty one of another kind."""
    other = shard.group(request.group_id)
    if not request.is_join:
        raise Refused(
            ErrorCode.GROUP_ID_NOT_FOUND, f"there is no share group {request.group_id!a:.80}; join with epoch 0"
        )
    if other is not None:
        return _decide_conversion(shard, other, request)
    group = ShareGroup(request.group_id, shard.journal)
    decision = _decide_beat(shard, turn, group, request, None)
    return replace(decision, events=(GroupCreated(request.group_id, GroupKind.SHARE), *decision.events))


def _decide_conversion(shard: GroupShard, group: Group, request: ShareHeartbeat) -> Decision:
    """Replace an empty group of another kind. One with committed offsets stays: they would be lost."""
    if not group.is_empty or group.outlives_members:
        why = f"is a {group.kind} group, whose members have another protocol; use another group"
    elif shard.part(Offsets).has(group.group_id):
        why = f"is a {group.kind} group with committed offsets; use another group, or delete this one"
    else:
        tombstones = tuple(Record(shard.key, value, "change kind") for value in group.tombstones())
        goes_on = Operation(shard.key, partial(decide_heartbeat, request=request))
        return Decision(records=tombstones, joins=(goes_on,), effects=group.removal_effects())
    raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"{group.group_id!a:.80} {why}")


# A heartbeat of a member


def _decide_beat(
    shard: GroupShard, turn: Turn, group: ShareGroup, request: ShareHeartbeat, before: ShareMember | None
) -> Decision:
    group_id, current = group.group_id, group.assignment(request.member_id)
    merged = _merged(before, request, turn)
    changes: list[object] = [] if merged is before else [records.ShareMemberChanged(group_id, merged)]
    is_new_basis = before is None or before.topics != merged.topics
    cause = "join" if before is None else "heartbeat"
    joins: list[Operation] = []
    if is_new_basis or is_look_due(group, turn):
        joins.append(look(shard, group_id, cause, must_bump=is_new_basis))
    if group.is_target_due:
        # Another process computes it, or did not and is asked again.
        joins.append(assign(shard, group_id))
    if not joins and not changes and current.member_epoch == group.epochs.assignment_epoch:
        reply = _reply(shard, request, current, current)
        return Decision(reply, effects=(session_timer(shard, group_id, request.member_id),))
    joins.append(Operation(shard.key, partial(_decide_move, request=request, before=current)))
    return Decision(
        records=tuple(Record(shard.key, value, cause) for value in changes),
        joins=tuple(joins),
        events=(MemberJoined(group_id, group.kind, request.member_id),) if before is None else (),
    )


def _merged(before: ShareMember | None, request: ShareHeartbeat, turn: Turn) -> ShareMember:
    """Return the member's metadata with this heartbeat; the same object if nothing is new."""
    known = ShareMember(member_id=request.member_id) if before is None else before
    topics = request.subscribed_topic_names
    merged = ShareMember(
        member_id=request.member_id,
        rack_id=known.rack_id if request.rack_id is None else request.rack_id,
        client_id=turn.client_id,
        client_host=turn.host,
        topics=known.topics if topics is None else topics,
    )
    return merged if before is None or merged != before else before


def _decide_move(shard: GroupShard, _turn: Turn, *, request: ShareHeartbeat, before: ShareAssignment) -> Decision:
    """Let the member take up its target. Other members may hold the same partitions."""
    group = the_group(shard, request.group_id)
    group_id, member_id = group.group_id, request.member_id
    effects = (session_timer(shard, group_id, member_id),)
    epoch = group.epochs.assignment_epoch
    if is_repetition(before, request.member_epoch) or before.member_epoch == epoch:
        return Decision(_reply(shard, request, before, before), effects=effects)
    after = ShareAssignment(epoch, before.member_epoch, group.target(member_id))
    moved = Record(shard.key, records.ShareAssignmentChanged(group_id, member_id, after), "move")
    return Decision(_reply(shard, request, before, after), records=(moved,), effects=effects)


def _reply(
    shard: GroupShard, request: ShareHeartbeat, before: ShareAssignment, after: ShareAssignment
) -> HeartbeatReply:
    has_missed = request.crosses or is_repetition(before, request.member_epoch)
    is_told = request.is_join or has_missed or after.assigned != before.assigned
    return HeartbeatReply(
        member_id=request.member_id,
        member_epoch=after.member_epoch,
        heartbeat_interval_ms=shard.part(GroupSettings).share_heartbeat_interval_ms(request.group_id),
        assigned=after.assigned if is_told else None,
    )


# A member that acknowledges


def decide_check_member(shard: GroupShard, _turn: Turn, *, group_id: str, committer: Committer) -> Decision:
    """Refuse unless this is a current member of the share group. No reply.

    Raises Refused: GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID, and as `rules.check_acknowledging` (spec groups 4.4)."""
    group = find_group(shard, group_id)
    if group is None:
        raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no share group {group_id!a:.80}; join with epoch 0")
    if committer.member_id not in group.members:
        raise unknown_member(group_id, committer.member_id)
    check_acknowledging(group.assignment(committer.member_id), committer.generation_or_epoch)
    return Decision()


# A member that leaves


def _decide_leave(shard: GroupShard, group: ShareGroup, request: ShareHeartbeat) -> Decision:
    if request.member_id not in group.members:
        raise unknown_member(group.group_id, request.member_id)
    reply = HeartbeatReply(member_id=request.member_id, member_epoch=LEAVE_EPOCH)
    keeps_session = request.keeps_session
    removal = decide_removal(shard, group, request.member_id, LeaveReason.LEAVE, keeps_session=keeps_session)
    return replace(removal, reply=reply)
