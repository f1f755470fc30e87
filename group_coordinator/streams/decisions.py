"""Decisions of a shard on StreamsGroupHeartbeat.

One heartbeat takes up to five steps in one operation. The member's metadata, its topology and its reports are stored.
The group is compared with its topics, and gets a new epoch if the basis of its assignment changed. A target for that
epoch is computed. The member moves a step towards its target. The reply is made of what the group has then. A heartbeat
with nothing new, of a member that has reached its target, stores nothing, and costs a few lookups.

Source: spec groups 6.7, 3.7, 3.8.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from msgspec.structs import replace

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.decision import CancelTimer, Decision, Effect, Operation, Record, Turn
from group_coordinator.administration.settings import GroupSettings
from group_coordinator.consumer.group import rebalance_key
from group_coordinator.consumer.rules import fenced_instance
from group_coordinator.events import GroupCreated, GroupNews, LeaveReason, MemberJoined, MemberLeft
from group_coordinator.members import LEAVE_EPOCH, MemberState, check_size, unknown_member
from group_coordinator.shard import GroupShard
from group_coordinator.state import Group, GroupKind
from group_coordinator.streams import records, removal
from group_coordinator.streams.assigning import (
    assign,
    is_look_due,
    look,
    rebalance_completed,
    wishes_of,
)
from group_coordinator.streams.endpoints import endpoint_epoch, endpoint_partitions
from group_coordinator.streams.group import StreamsGroup, find_group, the_group
from group_coordinator.streams.reconciling import TaskDestination, reconcile
from group_coordinator.streams.requests import StreamsHeartbeat, StreamsReply
from group_coordinator.streams.rules import (
    away,
    back,
    check_epoch,
    check_owned,
    check_same_topology,
    is_repetition,
)
from group_coordinator.streams.state import (
    AWAY_EPOCH,
    NOT_YET,
    Roles,
    StreamsAssignment,
    StreamsMember,
    TaskId,
)
from group_coordinator.streams.topology import Status, StatusCode


class _Sender(NamedTuple):
    """Member that sent the heartbeat, and its assignment."""

    before: StreamsMember | None
    """Metadata of the member until now. For a static member that comes back, that of its last process."""
    current: StreamsAssignment
    replaces: str | None = None
    """Member id of the last process of a static member that comes back."""


def decide_heartbeat(shard: GroupShard, turn: Turn, *, request: StreamsHeartbeat) -> Decision:
    """Decide a heartbeat. The reply is a StreamsReply. Raises Refused as spec groups 6.7, 3.7 and 3.8 say."""
    if request.member_epoch in {LEAVE_EPOCH, AWAY_EPOCH}:
        return _decide_leave(shard, request)
    group = find_group(shard, request.group_id)
    if group is None:
        return _decide_first(shard, turn, request)
    entry = _entry(shard, group, request)
    if request.topology is not None and not group.is_empty:
        check_same_topology(group.topology, request.topology)
    check_owned(request.owned, group.topology, group.configured, entry.current)
    return _decide_beat(shard, turn, group, request, entry)


# The first heartbeat of a group


def _decide_first(shard: GroupShard, turn: Turn, request: StreamsHeartbeat) -> Decision:
    """Create the group for its first member, in place of an empty one of another kind. Committed offsets stay."""
    if not request.is_join:
        raise Refused(
            ErrorCode.GROUP_ID_NOT_FOUND, f"there is no streams group {request.group_id!a:.80}; join with epoch 0"
        )
    other = shard.groups.get(request.group_id)
    if other is not None:
        return _decide_conversion(shard, other, request)
    group = StreamsGroup(request.group_id, shard.journal)
    decision = _decide_beat(shard, turn, group, request, _Sender(None, NOT_YET))
    return replace(decision, events=(GroupCreated(request.group_id, GroupKind.STREAMS), *decision.events))


def _decide_conversion(shard: GroupShard, group: Group, request: StreamsHeartbeat) -> Decision:
    if not group.is_empty or group.outlives_members:
        raise Refused(
            ErrorCode.GROUP_ID_NOT_FOUND,
            f"{group.group_id!a:.80} is a {group.kind} group, whose members have another protocol; use another group",
        )
    tombstones = tuple(Record(shard.key, value, "change kind") for value in group.tombstones())
    goes_on = Operation(shard.key, partial(decide_heartbeat, request=request))
    return Decision(records=tombstones, joins=(goes_on,), effects=group.removal_effects())


# Member of a heartbeat


def _entry(shard: GroupShard, group: StreamsGroup, request: StreamsHeartbeat) -> _Sender:
    member = group.members.get(request.member_id)
    if request.instance_id is not None:
        holder = group.instance_holder(request.instance_id)
        if request.is_join and holder is not None and holder != request.member_id:
            return _replacing(group, holder, request)
        if not request.is_join:
            _check_instance(group, request, holder)
    if member is None:
        if not request.is_join:
            raise unknown_member(group.group_id, request.member_id)
        check_size(group.group_id, len(group.members), shard.config.streams_size_max)
        return _Sender(None, NOT_YET)
    current = group.assignment(request.member_id)
    check_epoch(current, request.member_epoch, request.owned, crosses=request.crosses)
    return _Sender(member, current)


def _replacing(group: StreamsGroup, holder: str, request: StreamsHeartbeat) -> _Sender:
    """Let another process take over a static member, once the last process has left."""
    current = group.assignment(holder)
    if current.member_epoch != AWAY_EPOCH:
        raise Refused(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"the static member {request.instance_id!a:.80} is still running as {holder!a:.80}: stop it, or wait for "
            "the end of its session",
        )
    process_id = request.process_id or ""
    elsewhere = frozenset(
        task for task in current.assigned.all() if group.holder(process_id, task) not in {None, holder}
    )
    return _Sender(group.members.get(holder), back(current, elsewhere), holder)


def _check_instance(group: StreamsGroup, request: StreamsHeartbeat, holder: str | None) -> None:
    assert request.instance_id is not None, "only asked of static members"
    if holder is None:
        raise unknown_member(group.group_id, request.member_id)
    if holder != request.member_id:
        raise fenced_instance(request.instance_id)


def _merged(before: StreamsMember | None, request: StreamsHeartbeat, turn: Turn) -> StreamsMember:
    """Return the member's metadata with this heartbeat; the same object if nothing is new."""
    known = before or StreamsMember(member_id=request.member_id, process_id="", topology_epoch=0)
    timeout_ms = request.rebalance_timeout_ms
    merged = StreamsMember(
        member_id=request.member_id,
        process_id=known.process_id if request.process_id is None else request.process_id,
        topology_epoch=known.topology_epoch if request.topology is None else request.topology.epoch,
        instance_id=known.instance_id if request.instance_id is None else request.instance_id,
        rack_id=known.rack_id if request.rack_id is None else request.rack_id,
        client_id=turn.client_id,
        client_host=turn.host,
        rebalance_timeout_ms=known.rebalance_timeout_ms if timeout_ms is None else timeout_ms,
        user_endpoint=known.user_endpoint if request.user_endpoint is None else request.user_endpoint,
        client_tags=known.client_tags if request.client_tags is None else request.client_tags,
        reports_offsets=request.task_offsets is not None or (known.reports_offsets and not request.is_join),
    )
    return before if before is not None and merged == before else merged


# A heartbeat of a member


def _decide_beat(
    shard: GroupShard, turn: Turn, group: StreamsGroup, request: StreamsHeartbeat, entry: _Sender
) -> Decision:
    group_id, before = group.group_id, entry.before
    merged = _merged(before, request, turn)
    changes = _changes(group, request, entry, merged)
    is_new_basis = entry.replaces is not None or _is_new_basis(before, merged) or _has_caught_up(shard, group, request)
    must_look = is_new_basis or is_look_due(shard, group, turn)
    cause = "join" if before is None else "heartbeat"
    joins: list[Operation] = []
    if must_look:
        joins.append(look(shard, group_id, cause, must_bump=is_new_basis))
    if must_look or group.is_target_due:
        joins.append(assign(shard, group_id))
    is_there = entry.current.state is MemberState.STABLE and entry.current.member_epoch == group.epochs.assignment_epoch
    if not (joins or changes.values) and is_there:
        reply = _reply(shard, group, request, entry.current, entry.current)
        return Decision(reply, effects=(removal.session_timer(shard, group_id, request.member_id),))
    joins.append(Operation(shard.key, partial(_decide_step, request=request, before=entry.current)))
    return Decision(
        records=tuple(Record(shard.key, value, cause) for value in changes.values),
        joins=tuple(joins),
        effects=changes.effects,
        events=changes.events,
    )


class _Changes(NamedTuple):
    """Changes of a member by its heartbeat."""

    values: tuple[object, ...]
    """Values of records."""
    effects: tuple[Effect, ...]
    events: tuple[object, ...]


def _changes(group: StreamsGroup, request: StreamsHeartbeat, entry: _Sender, merged: StreamsMember) -> _Changes:
    group_id, member_id, before = group.group_id, merged.member_id, entry.before
    values: list[object] = []
    effects: list[Effect] = []
    events: list[object] = []
    if request.topology is not None and group.is_empty and request.topology != group.topology:
        values.append(records.StreamsTopologyChanged(group_id, request.topology))
    if entry.replaces is not None:
        values += _hand_over(group, entry.replaces, merged, entry.current)
        effects += [*removal.cancelled_timers(group_id, entry.replaces), GroupNews(group_id)]
        events.append(MemberLeft(group_id, group.kind, entry.replaces, LeaveReason.FENCED))
    elif merged is not before:
        if before is not None and before.process_id != merged.process_id and member_id in group.assignments:
            # It joins again, from another process, and so without tasks.
            values.append(records.StreamsAssignmentForgotten(group_id, member_id))
        values.append(records.StreamsMemberChanged(group_id, merged))
    if before is None or entry.replaces is not None:
        events.append(MemberJoined(group_id, group.kind, member_id))
    if request.task_offsets is not None:
        values.append(records.StreamsOffsetsReported(group_id, member_id, request.task_offsets))
    if request.shutdown_application and group.shutdown_member_id is None:
        values.append(records.StreamsShutdownWanted(group_id, member_id))
        effects.append(GroupNews(group_id))
    return _Changes(tuple(values), tuple(effects), tuple(events))


def _hand_over(group: StreamsGroup, old_id: str, member: StreamsMember, assignment: StreamsAssignment) -> list[object]:
    group_id, new_id = group.group_id, member.member_id
    return [
        records.StreamsAssignmentForgotten(group_id, old_id),
        records.StreamsTargetForgotten(group_id, old_id),
        records.StreamsMemberForgotten(group_id, old_id),
        records.StreamsMemberChanged(group_id, member),
        records.StreamsTargetChanged(group_id, new_id, group.target(old_id)),
        records.StreamsAssignmentChanged(group_id, new_id, assignment),
    ]


def _is_new_basis(before: StreamsMember | None, after: StreamsMember) -> bool:
    """Return True if a change of a member may change the assignment."""
    if before is None:
        return True
    return (before.process_id, before.topology_epoch, before.rack_id, before.client_tags, before.reports_offsets) != (
        after.process_id,
        after.topology_epoch,
        after.rack_id,
        after.client_tags,
        after.reports_offsets,
    )


def _has_caught_up(shard: GroupShard, group: StreamsGroup, request: StreamsHeartbeat) -> bool:
    """Return True if a report shows that a task has warmed up, so that it may become active here."""
    if not request.task_offsets:
        return False
    warming, most = group.target(request.member_id).warmup, wishes_of(shard, group.group_id).acceptable_lag
    return any(each.task in warming and each.end_offset - each.offset <= most for each in request.task_offsets)


# Towards the target


def _decide_step(shard: GroupShard, turn: Turn, *, request: StreamsHeartbeat, before: StreamsAssignment) -> Decision:
    """Move the member a step towards its target, and answer."""
    group = the_group(shard, request.group_id)
    group_id, member_id = group.group_id, request.member_id
    effects: list[Effect] = [removal.session_timer(shard, group_id, member_id)]
    if is_repetition(before, request.member_epoch):
        return Decision(_reply(shard, group, request, before, before), effects=tuple(effects))
    member = group.members.get(member_id)
    assert member is not None, "an earlier step of the operation found the member"
    current = group.assignment(member_id)
    after = moved(group, member, request.owned)
    reply = _reply(shard, group, request, before, after)
    if after is current:
        return Decision(reply, effects=tuple(effects))
    if after.state is MemberState.UNREVOKED:
        effects.append(removal.rebalance_timer(shard, group_id, member, after.member_epoch))
    elif current.state is MemberState.UNREVOKED:
        effects.append(CancelTimer(rebalance_key(group_id, member_id)))
    if not current.held() <= after.held() or not _active(current) <= _active(after):
        effects.append(GroupNews(group_id))
    values: list[object] = [records.StreamsAssignmentChanged(group_id, member_id, after)]
    events: list[object] = []
    if group.rebalance_started_ms is not None and group.is_stable_with(member_id, after):
        values.append(records.StreamsRebalanceNoted(group_id, None))
        events.append(rebalance_completed(group, group.epochs.group_epoch, turn))
    moves = tuple(Record(shard.key, value, "move") for value in values)
    return Decision(reply, records=moves, effects=tuple(effects), events=tuple(events))


def _active(assignment: StreamsAssignment) -> frozenset[TaskId]:
    return assignment.assigned.active | assignment.pending_revocation.active


def moved(group: StreamsGroup, member: StreamsMember, owned: Roles | None) -> StreamsAssignment:
    """Return the member's assignment after its next step; the group's own object if there is none."""
    mine = {None, member.member_id}
    destination = TaskDestination(
        epoch=group.epochs.assignment_epoch,
        roles=group.target(member.member_id),
        has_no_owner=lambda task: group.owner(task) in mine,
        is_not_in_process=lambda task: group.holder(member.process_id, task) in mine,
    )
    return reconcile(group.assignment(member.member_id), destination, owned)


# The reply


def statuses(group: StreamsGroup, member: StreamsMember) -> tuple[Status, ...]:
    """Return the statuses in the answer to a member."""
    found: list[Status] = []
    known = group.topology.epoch
    if member.topology_epoch < known:
        detail = (
            f"the topology of the member has the epoch {member.topology_epoch}, that of the group {known}: update it"
        )
        found.append(Status(StatusCode.STALE_TOPOLOGY, detail))
    configured = group.configured
    if configured is not None and configured.status is not None:
        found.append(configured.status)
    if group.shutdown_member_id is not None:
        detail = f"the member {group.shutdown_member_id} wants the application to stop"
        found.append(Status(StatusCode.SHUTDOWN_APPLICATION, detail))
    if group.delayed_until_ms is not None:
        found.append(Status(StatusCode.ASSIGNMENT_DELAYED, "the group is new, and waits a moment for more members"))
    return tuple(found)


def _reply(
    shard: GroupShard,
    group: StreamsGroup,
    request: StreamsHeartbeat,
    before: StreamsAssignment,
    after: StreamsAssignment,
) -> StreamsReply:
    # A repetition comes from a member that missed an answer. A member in an unknown state has shown that it has no
    # tasks.
    has_missed = request.crosses or is_repetition(before, request.member_epoch) or before.state is MemberState.UNKNOWN
    is_told = request.is_join or request.is_full or has_missed or before.assigned != after.assigned
    settings = shard.part(GroupSettings).of_streams(group.group_id)
    member = group.members.get(request.member_id)
    assert member is not None, "an earlier step of the operation found the member"
    known = endpoint_epoch(shard, group)
    return StreamsReply(
        member_id=request.member_id,
        member_epoch=after.member_epoch,
        heartbeat_interval_ms=settings.heartbeat_interval_ms,
        acceptable_lag=settings.acceptable_recovery_lag,
        task_offset_interval_ms=settings.task_offset_interval_ms,
        statuses=statuses(group, member),
        tasks=after.assigned if is_told else None,
        endpoint_epoch=known,
        endpoints=None if known == request.endpoint_epoch else endpoint_partitions(shard, group),
        to_make=() if group.configured is None else group.configured.missing,
    )


# A member that leaves


def _decide_leave(shard: GroupShard, request: StreamsHeartbeat) -> Decision:
    group = find_group(shard, request.group_id)
    if group is None:
        raise Refused(
            ErrorCode.GROUP_ID_NOT_FOUND, f"there is no streams group {request.group_id!a:.80} that could be left"
        )
    if request.instance_id is not None:
        _check_instance(group, request, group.instance_holder(request.instance_id))
    if request.member_id not in group.members:
        raise unknown_member(group.group_id, request.member_id)
    reply = StreamsReply(member_id=request.member_id, member_epoch=request.member_epoch)
    if request.member_epoch == LEAVE_EPOCH:
        decision = removal.decide_removal(shard, group, request.member_id, LeaveReason.LEAVE)
        if request.shutdown_application and len(group.members) > 1:
            wanted = records.StreamsShutdownWanted(group.group_id, request.member_id)
            decision = replace(decision, records=(*decision.records, Record(shard.key, wanted, "leave")))
        return replace(decision, reply=reply)
    return _decide_away(shard, group, request.member_id, reply)


def _decide_away(shard: GroupShard, group: StreamsGroup, member_id: str, reply: StreamsReply) -> Decision:
    """Mark a static member as away. Its session goes on, and until that ends no other member gets its assigned
    tasks."""
    current = group.assignment(member_id)
    record = records.StreamsAssignmentChanged(group.group_id, member_id, away(current))
    return Decision(
        reply,
        records=(Record(shard.key, record, "static member away"),),
        effects=(
            CancelTimer(rebalance_key(group.group_id, member_id)),
            *((GroupNews(group.group_id),) if current.pending_revocation else ()),
        ),
    )
