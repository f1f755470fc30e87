"""Decisions of a shard on the calls of classic members.

Every function looks up, asks the rules and returns a Decision, or raises Refused and changes nothing. Some refusals do
change the group: an id is handed out, or a member is removed from a full group. Such a refusal is an `Answer` to the
call's ticket.

Source: spec groups 2.4 to 2.14.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.decision import Answer, AnswerLater, CancelTimer, Decision, Record, Turn
from group_coordinator.classic.rebalance import (
    GroupDraft,
    after_leaving,
    begin,
    begin_or_go_on,
    end_join_phase_if_all_joined,
    id_timer,
    joined,
    joined_members,
    park_join,
    rebalance_completed,
    rebalancing,
    session_timer,
    sync_timer_cancelled,
)
from group_coordinator.classic.requests import (
    Heard,
    Heartbeat,
    JoinGroup,
    JoinRefused,
    LeaveGroup,
    LeavingMember,
    Left,
    Synced,
    SyncGroup,
)
from group_coordinator.classic.state import (
    ClassicGroup,
    ClassicMember,
    ClassicState,
    generation_subscriptions,
    session_key,
    step,
    unknown_member,
    with_member,
    with_replaced_member,
)
from group_coordinator.events import GroupCreated, LeaveReason, MemberJoined, MemberLeft
from group_coordinator.shard import GroupShard
from group_coordinator.state import Group

# JoinGroup


def decide_join(shard: GroupShard, turn: Turn, *, request: JoinGroup, ticket: int) -> Decision:
    """Decide JoinGroup. Source: spec groups 2.4."""
    group = shard.groups.get(request.group_id)
    if isinstance(group, ClassicGroup):
        return _join_group(GroupDraft(group, turn, shard.config), request, ticket)
    if group is None or (group.is_empty and not group.outlives_members):
        return _join_new_group(shard, turn, group, request, ticket)
    if (decide := shard.foreign_call(group, request)) is not None:
        return decide(shard, turn, group=group, request=request)
    raise Refused(
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        f"{request.group_id!a:.80} is a {group.kind} group, whose members have another protocol; use another group",
    )


def _join_new_group(shard: GroupShard, turn: Turn, former: Group | None, request: JoinGroup, ticket: int) -> Decision:
    """Join a group that does not exist, or an empty one of another kind, which may change its kind freely."""
    if request.member_id:
        raise unknown_member(request.group_id, request.member_id)
    group = ClassicGroup(
        shard=shard.key,
        group_id=request.group_id,
        state_timestamp_ms=turn.now_ms,
        generation_id=shard.least_epoch,
    )
    draft = GroupDraft(group, turn, shard.config)
    draft.events.append(GroupCreated(group.group_id, group.kind))
    if former is not None:
        draft.records += [Record(shard.key, value, cause="change kind") for value in former.tombstones()]
        draft.effects += former.removal_effects()
    return _join_group(draft, request, ticket)


def _join_group(draft: GroupDraft, request: JoinGroup, ticket: int) -> Decision:
    if not draft.group.has_capacity(request.member_id, draft.config.size_max):
        return _put_out(draft, request, ticket)
    draft.group.check_protocols(request.protocol_type, request.protocols)
    if not request.member_id:
        return _join_without_id(draft, request, ticket)
    if request.member_id in draft.group.given_ids:
        if request.instance_id is not None:
            raise Refused(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"member id {request.member_id!a:.120} was given to a dynamic member, and comes with an instance id; "
                "join with an empty member id",
            )
        return _admit(draft, request, request.member_id, ticket)
    draft.group.check_member(request.member_id, request.instance_id)
    return _join_again(draft, request, ticket)


def _put_out(draft: GroupDraft, request: JoinGroup, ticket: int) -> Decision:
    """Refuse a join because the group is full.

    An existing member that joins after the limit was lowered is removed, or the next generation would wait for it.
    """
    full = JoinRefused(
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        f"group {request.group_id!a} has as many members as it may have ({draft.config.size_max})",
    )
    draft.refuse(ticket, full)
    if request.member_id in draft.group.members or request.member_id in draft.group.given_ids:
        draft.remove([request.member_id], LeaveReason.SIZE)
        end_join_phase_if_all_joined(draft)
    return draft.decision(AnswerLater(ticket), cause="group is full")


def _join_without_id(draft: GroupDraft, request: JoinGroup, ticket: int) -> Decision:
    group, new_id = draft.group, request.new_member_id
    if request.instance_id is not None:
        holder = group.static_members.get(request.instance_id)
        if holder is not None:
            return _replace_static(draft, request, holder, ticket)
    elif request.is_member_id_required:
        draft.group = replace(group, given_ids=group.given_ids | {new_id})
        draft.effects.append(id_timer(group, new_id, request.session_timeout_ms))
        message = f"join again with the member id {new_id!a:.120}"
        draft.refuse(ticket, JoinRefused(ErrorCode.MEMBER_ID_REQUIRED, message, new_id))
        return draft.decision(AnswerLater(ticket), cause="member id given")
    return _admit(draft, request, new_id, ticket)


def _admit(draft: GroupDraft, request: JoinGroup, member_id: str, ticket: int) -> Decision:
    """Add a member, and rebalance the group for it."""
    group = draft.group
    member = ClassicMember(
        member_id=member_id,
        instance_id=request.instance_id,
        client_id=draft.turn.client_id,
        client_host=draft.turn.host,
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        protocols=request.protocols,
        is_new=True,
    )
    draft.group = replace(
        with_member(group, member),
        protocol_type=group.protocol_type if group.members else request.protocol_type,
        leader=group.leader or member_id,
        initial=replace(group.initial, has_newcomers=True) if group.initial else None,
    )
    draft.events.append(MemberJoined(group.group_id, group.kind, member_id))
    park_join(draft, member_id, ticket)
    draft.effects.append(session_timer(draft.group, member))
    begin_or_go_on(draft, request.reason or "a member joined")
    return draft.decision(AnswerLater(ticket), cause="join")


def _join_again(draft: GroupDraft, request: JoinGroup, ticket: int) -> Decision:
    """Process a JoinGroup of a known member. Source: spec groups 2.4.6.

    A member that repeats its request unchanged probably lost our answer, so it gets it again. The leader of a Stable
    group always starts a rebalance, because the topics may have changed.
    """
    group = draft.group
    member = group.members[request.member_id]
    is_leader = group.leader == member.member_id
    is_completing = group.state is ClassicState.COMPLETING_REBALANCE
    knows_nothing_new = is_completing or (group.state is ClassicState.STABLE and not is_leader)
    if not knows_nothing_new or member.protocols != request.protocols:
        return _take_up(draft, member, request, ticket)
    draft.effects.append(session_timer(group, member))
    has_members = is_leader and is_completing
    return draft.decision(joined(group, member.member_id, has_members=has_members), cause="join")


def _take_up(draft: GroupDraft, member: ClassicMember, request: JoinGroup, ticket: int) -> Decision:
    """Let the member take part in the rebalance, with its new protocols and timeouts."""
    draft.group = with_member(draft.group, _updated(member, request))
    park_join(draft, member.member_id, ticket)
    begin_or_go_on(draft, request.reason or "a member joined again")
    return draft.decision(AnswerLater(ticket), cause="join again")


def _updated(member: ClassicMember, request: JoinGroup) -> ClassicMember:
    return replace(
        member,
        protocols=request.protocols,
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
    )


def _replace_static(draft: GroupDraft, request: JoinGroup, holder: str, ticket: int) -> Decision:
    """Give a static member that came back without its id a new one, and fence the old id (spec groups 2.9).

    In a Stable group the other members need not notice.
    """
    before = draft.group
    member = replace(
        _updated(before.members[holder], request),
        member_id=request.new_member_id,
        client_id=draft.turn.client_id,
        client_host=draft.turn.host,
    )
    _fence(draft, holder)
    group = draft.group = with_replaced_member(before, holder, member)
    draft.effects.append(session_timer(group, member))
    draft.events.append(MemberJoined(group.group_id, group.kind, member.member_id))
    if group.state is ClassicState.STABLE and group.elect_protocol() == group.protocol_name:
        return _take_over(draft, member, request, before)
    park_join(draft, member.member_id, ticket)
    # In CompletingRebalance the leader may be computing an assignment for the old id right now.
    begin_or_go_on(draft, request.reason or "a static member came back")
    return draft.decision(AnswerLater(ticket), cause="static member came back")


def _fence(draft: GroupDraft, member_id: str) -> None:
    group = draft.group
    message = f"a newer member has the instance id of {member_id!a:.120}; stop, or use another instance id"
    for parked in (group.parked_joins, group.parked_syncs):
        if member_id in parked:
            draft.refuse(parked[member_id], JoinRefused(ErrorCode.FENCED_INSTANCE_ID, message, member_id))
    draft.effects.append(CancelTimer(session_key(group.group_id, member_id)))
    draft.events.append(MemberLeft(group.group_id, group.kind, member_id, LeaveReason.FENCED))
    draft.tell_members()


def _take_over(draft: GroupDraft, member: ClassicMember, request: JoinGroup, before: ClassicGroup) -> Decision:
    """Give the old id's part of the assignment to the new id. The generation goes on."""
    if before.unsynced and not draft.group.unsynced:
        draft.effects.append(sync_timer_cancelled(before))
    group = draft.group = replace(draft.group, subscriptions=generation_subscriptions(draft.group))
    draft.is_stored = True
    answer = joined(group, member.member_id, has_members=False)
    if not request.supports_skip_assignment:
        # Without skip_assignment, a client that learned that it leads would assign again. The old leader id prevents
        # that.
        answer = replace(answer, leader=before.leader or "")
    elif group.leader == member.member_id:
        answer = replace(answer, members=joined_members(group), skip_assignment=True)
    return draft.decision(answer, cause="static member came back")


# SyncGroup


def decide_sync(shard: GroupShard, turn: Turn, *, request: SyncGroup, ticket: int) -> Decision:
    """Decide SyncGroup. Source: spec groups 2.6."""
    known = shard.groups.get(request.group_id)
    if (decide := shard.foreign_call(known, request)) is not None:
        return decide(shard, turn, group=known, request=request, ticket=ticket)
    group = _classic_group(shard, request.group_id, request.member_id)
    _check_sync(group, request)
    draft = GroupDraft(group, turn, shard.config)
    member = group.members[request.member_id]
    if group.state is ClassicState.PREPARING_REBALANCE:
        draft.refuse(ticket, rebalancing(group))
        draft.effects.append(session_timer(group, member))
        return draft.decision(AnswerLater(ticket), cause="sync")
    if member.member_id in group.unsynced:
        draft.group = replace(group, unsynced=group.unsynced - {member.member_id})
        if not draft.group.unsynced:
            draft.effects.append(sync_timer_cancelled(group))
    if group.state is ClassicState.STABLE:
        draft.effects.append(session_timer(group, member))
        return draft.decision(_synced(group, member), cause="sync")
    if member.member_id in group.parked_syncs:
        draft.refuse(group.parked_syncs[member.member_id], rebalancing(group))
    if group.leader != member.member_id:
        draft.group = replace(draft.group, parked_syncs={**group.parked_syncs, member.member_id: ticket})
        return draft.decision(AnswerLater(ticket), cause="sync")
    _hand_out(draft, request.assignments)
    draft.effects.append(session_timer(group, member))
    return draft.decision(_synced(draft.group, draft.group.members[member.member_id]), cause="assignment")


def _check_sync(group: ClassicGroup, request: SyncGroup) -> None:
    """Raise the errors of `ClassicGroup.check_member` and `check_generation`, and INCONSISTENT_GROUP_PROTOCOL if the
    member names another protocol than the group's."""
    group.check_member(request.member_id, request.instance_id)
    group.check_generation(request.generation_id)
    for what, asked, agreed in (
        ("protocol_type", request.protocol_type, group.protocol_type or None),
        ("protocol_name", request.protocol_name, group.protocol_name),
    ):
        if asked is not None and agreed is not None and asked != agreed:
            raise Refused(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"group {group.group_id!a} agreed on the {what} {agreed!a}, and not on {asked!a:.120}",
            )


def _hand_out(draft: GroupDraft, assignments: Mapping[str, bytes]) -> None:
    """Give the generation its assignment. Members missing from the plan get an empty part."""
    before = draft.group
    members = {
        member_id: replace(member, assignment=assignments.get(member_id, b""))
        for member_id, member in before.members.items()
    }
    group = draft.group = step(
        before,
        ClassicState.STABLE,
        draft.now_ms,
        members=members,
        parked_syncs={},
        rebalance_started_ms=None,
    )
    draft.is_stored = True
    for member_id, ticket in before.parked_syncs.items():
        draft.effects.append(Answer(ticket, _synced(group, members[member_id])))
        draft.effects.append(session_timer(group, members[member_id]))
    draft.events.append(rebalance_completed(before, draft))


def _synced(group: ClassicGroup, member: ClassicMember) -> Synced:
    return Synced(group.protocol_type, group.protocol_name or "", member.assignment)


# Heartbeat


def decide_heartbeat(shard: GroupShard, turn: Turn, *, request: Heartbeat) -> Decision:
    """Decide Heartbeat: only the session timer changes. Source: spec groups 2.7."""
    known = shard.groups.get(request.group_id)
    if (decide := shard.foreign_call(known, request)) is not None:
        return decide(shard, turn, group=known, request=request)
    group = _classic_group(shard, request.group_id, request.member_id)
    group.check_member(request.member_id, request.instance_id)
    group.check_generation(request.generation_id)
    refusal = rebalancing(group) if group.state is ClassicState.PREPARING_REBALANCE else None
    return Decision(Heard(refusal), effects=(session_timer(group, group.members[request.member_id]),))


# LeaveGroup


def decide_leave(shard: GroupShard, turn: Turn, *, request: LeaveGroup) -> Decision:
    """Decide LeaveGroup: each entry gets its own result, and one rebalance follows for all. Source: spec groups 2.8."""
    group = shard.groups.get(request.group_id)
    if (decide := shard.foreign_call(group, request)) is not None:
        return decide(shard, turn, group=group, request=request)
    if not isinstance(group, ClassicGroup):
        unknown = [Left(each, unknown_member(request.group_id, each.member_id)) for each in request.members]
        return Decision(tuple(unknown))
    draft = GroupDraft(group, turn, shard.config)
    results = tuple(_leave(draft, leaving) for leaving in request.members)
    reasons = [result.leaving.reason for result in results if result.refusal is None]
    if reasons:
        after_leaving(draft, next(filter(None, reasons), "a member left"))
    return draft.decision(results, cause="leave")


def _leave(draft: GroupDraft, leaving: LeavingMember) -> Left:
    group, member_id = draft.group, leaving.member_id
    try:
        if not member_id and leaving.instance_id is not None:
            member_id = group.static_members.get(leaving.instance_id, "")
        if member_id not in group.given_ids:
            group.check_member(member_id, leaving.instance_id)
    except Refused as refusal:
        return Left(leaving, refusal)
    draft.remove([member_id], LeaveReason.LEAVE)
    return Left(leaving)


# Cancelled calls, and loaded groups


def decide_abandon(shard: GroupShard, turn: Turn, *, group_id: str, ticket: int) -> Decision:
    """Drop the parked call of a caller that gave up. Its member stays and may ask again.

    If it does not, the next end of the join phase removes it, or its session timer does (spec groups 2.14).
    """
    group = shard.groups.get(group_id)
    if not isinstance(group, ClassicGroup):
        return Decision()
    member_id = next((key for key, parked in group.parked_joins.items() if parked == ticket), None)
    if member_id is not None:
        joins = {key: parked for key, parked in group.parked_joins.items() if key != member_id}
        changed = replace(group, parked_joins=joins)
    else:
        member_id = next((key for key, parked in group.parked_syncs.items() if parked == ticket), None)
        if member_id is None:
            return Decision()
        syncs = {key: parked for key, parked in group.parked_syncs.items() if key != member_id}
        changed = replace(group, parked_syncs=syncs, unsynced=group.unsynced | {member_id})
    draft = GroupDraft(group, turn, shard.config)
    draft.group = changed
    member = group.members[member_id]
    if not member.is_new:
        # While its call waited, the end of its session was ignored, and its timer may be gone.
        draft.effects.append(session_timer(group, member))
    return draft.decision(cause="call given up")


def decide_loaded(shard: GroupShard, turn: Turn) -> Decision:
    """Arm the session timers after a load: every member gets a whole session timeout.

    A group above the current size limit rebalances, so that extra members can commit before they are refused (spec
    groups 2.12).
    """
    decisions: list[Decision] = []
    for group in list(shard.groups.values()):
        if isinstance(group, ClassicGroup) and group.members:
            draft = GroupDraft(group, turn, shard.config)
            draft.effects.extend(session_timer(group, member) for member in group.members.values())
            if len(group.members) > shard.config.size_max:
                begin(draft, "the group is larger than it may be")
            decisions.append(draft.decision(cause="load"))
    return Decision(
        records=tuple(record for decision in decisions for record in decision.records),
        effects=tuple(effect for decision in decisions for effect in decision.effects),
        events=tuple(event for decision in decisions for event in decision.events),
    )


def _classic_group(shard: GroupShard, group_id: str, member_id: str) -> ClassicGroup:
    """Return the classic group. Raises Refused UNKNOWN_MEMBER_ID if there is none, or if it is empty."""
    group = shard.groups.get(group_id)
    if not isinstance(group, ClassicGroup) or group.is_empty:
        raise unknown_member(group_id, member_id)
    return group
