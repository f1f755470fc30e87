"""Decisions of a shard on ConsumerGroupHeartbeat.

One heartbeat takes up to four steps in one operation. The member's new metadata is stored. The group gets a new epoch
if that affects its assignment. A target for that epoch is computed. The member moves a step towards its target. Other
members are moved by their own heartbeats. A heartbeat with nothing new, of a member that has reached its target,
changes nothing, writes nothing, and costs a few lookups.

Source: spec groups 3.2 to 3.8.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from msgspec.structs import replace

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.decision import CancelTimer, Decision, Effect, Operation, Record, Turn
from group_coordinator.administration.settings import GroupSettings
from group_coordinator.consumer import records, removal
from group_coordinator.consumer.assigning import (
    assign,
    bump,
    find_group,
    is_refresh_due,
    rebalance_completed,
    refresh,
    the_group,
)
from group_coordinator.consumer.group import ConsumerGroup, cancelled_timers, rebalance_key
from group_coordinator.consumer.requests import HeartbeatRequest
from group_coordinator.consumer.rules import (
    Destination,
    away,
    back,
    check_epoch,
    fenced_instance,
    is_repetition,
    reconcile,
    same_partitions,
)
from group_coordinator.consumer.state import (
    AWAY_EPOCH,
    NOT_YET,
    ConsumerMember,
    CurrentAssignment,
    MemberSubscription,
    Owned,
)
from group_coordinator.consumer.upgrade import decide_upgrade
from group_coordinator.events import GroupCreated, GroupNews, LeaveReason, MemberJoined, MemberLeft
from group_coordinator.members import LEAVE_EPOCH, HeartbeatReply, MemberState, check_size, unknown_member
from group_coordinator.shard import GroupShard
from group_coordinator.state import GroupKind


@dataclass(frozen=True, slots=True)
class _Entry:
    """Member that sent the heartbeat, and its assignment."""

    before: ConsumerMember | None
    """Metadata of the member until now. For a static member that comes back, that of its last process."""
    current: CurrentAssignment
    replaces: str | None = None
    """Member id of the last process of a static member that comes back."""


def decide_heartbeat(shard: GroupShard, turn: Turn, *, request: HeartbeatRequest) -> Decision:
    """Decide a heartbeat. The reply is a HeartbeatReply. Raises Refused as spec groups 3.2, 3.4, 3.7 and 3.8 say."""
    if request.member_epoch in {LEAVE_EPOCH, AWAY_EPOCH}:
        return _decide_leave(shard, request)
    group = find_group(shard, request.group_id)
    if group is None:
        return _decide_first(shard, turn, request)
    entry = _entry(shard, group, request)
    merged = _merged(entry.before, request, turn)
    if entry.before is merged and entry.replaces is None:
        return _decide_move(shard, turn, group, request, entry)
    return _decide_change(shard, turn, group, request, entry, merged)


def _decide_first(shard: GroupShard, turn: Turn, request: HeartbeatRequest) -> Decision:
    """Create the group for its first member, or convert or replace a group of another kind."""
    other = shard.groups.get(request.group_id)
    if not request.is_join:
        raise Refused(
            ErrorCode.GROUP_ID_NOT_FOUND,
            f"there is no consumer group {request.group_id!a:.80}; join with epoch 0",
        )
    if other is not None:
        return decide_upgrade(shard, other, partial(decide_heartbeat, request=request))
    group = ConsumerGroup(request.group_id, shard.journal)
    entry = _entry(shard, group, request)
    decision = _decide_change(shard, turn, group, request, entry, _merged(None, request, turn))
    return replace(decision, events=(GroupCreated(request.group_id, GroupKind.CONSUMER), *decision.events))


# Member of a heartbeat


def _entry(shard: GroupShard, group: ConsumerGroup, request: HeartbeatRequest) -> _Entry:
    member = group.members.get(request.member_id)
    if request.instance_id is not None:
        holder = group.instance_holder(request.instance_id)
        if request.is_join and holder not in {None, request.member_id}:
            assert holder is not None, "somebody else holds the instance id"
            return _replacing(group, holder, request.instance_id)
        if not request.is_join:
            _check_instance(group, request, holder)
    if member is None:
        if not request.is_join:
            raise unknown_member(group.group_id, request.member_id)
        check_size(group.group_id, len(group.members), shard.config.consumer_size_max)
        return _Entry(None, NOT_YET)
    current = group.assignment(request.member_id)
    check_epoch(current, request.member_epoch, request.owned, crosses=request.crosses)
    return _Entry(member, current)


def _replacing(group: ConsumerGroup, holder: str, instance_id: str) -> _Entry:
    """Let another process take over a static member, once the last process has left. A classic member cannot leave for
    a moment, so it is replaced at once."""
    current = group.assignment(holder)
    member = group.members.get(holder)
    assert member is not None, "who holds an instance id is a member"
    if current.member_epoch != AWAY_EPOCH and member.classic is None:
        raise Refused(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"the static member {instance_id!a:.80} is still running as {holder!a:.80}: stop it, or wait for the end "
            "of its session",
        )
    return _Entry(member, back(current), holder)


def _check_instance(group: ConsumerGroup, request: HeartbeatRequest, holder: str | None) -> None:
    assert request.instance_id is not None, "only asked of static members"
    if holder is None:
        raise unknown_member(group.group_id, request.member_id)
    if holder != request.member_id:
        raise fenced_instance(request.instance_id)


def _merged(before: ConsumerMember | None, request: HeartbeatRequest, turn: Turn) -> ConsumerMember:
    """Return the member's metadata with this heartbeat; the same object if nothing is new."""
    if before is not None and request.says_nothing and _is_same_client(before, request, turn):
        return before
    known = ConsumerMember(member_id=request.member_id) if before is None else before
    names, regex = known.subscription.names, known.subscription.regex
    if request.subscribed_topic_names is not None:
        names = request.subscribed_topic_names
    if request.subscribed_topic_regex is not None:
        regex = request.subscribed_topic_regex or None
    timeout_ms = request.rebalance_timeout_ms
    merged = ConsumerMember(
        member_id=request.member_id,
        instance_id=known.instance_id if request.instance_id is None else request.instance_id,
        rack_id=known.rack_id if request.rack_id is None else request.rack_id,
        client_id=turn.client_id,
        client_host=turn.host,
        rebalance_timeout_ms=known.rebalance_timeout_ms if timeout_ms is None else timeout_ms,
        subscription=MemberSubscription(names, regex),
        server_assignor=known.server_assignor if request.server_assignor is None else request.server_assignor,
    )
    return merged if before is None or merged != before else before


def _is_same_client(member: ConsumerMember, request: HeartbeatRequest, turn: Turn) -> bool:
    return (
        member.member_id == request.member_id
        and member.client_id == turn.client_id
        and member.client_host == turn.host
        and member.classic is None
        and request.instance_id in {None, member.instance_id}
    )


# A member without news


def _decide_move(
    shard: GroupShard, turn: Turn, group: ConsumerGroup, request: HeartbeatRequest, entry: _Entry
) -> Decision:
    group_id, current = group.group_id, entry.current
    joins: list[Operation] = []
    if is_refresh_due(shard, group, turn):
        joins.append(refresh(shard, group_id))
    if joins or group.is_target_due:
        joins.append(assign(shard, group_id))
    is_there = current.state is MemberState.STABLE and current.member_epoch == group.epochs.assignment_epoch
    if joins or not is_there:
        joins.append(_move(shard, request, current, is_subscription_new=False))
        return Decision(joins=tuple(joins))
    member = entry.before
    assert member is not None, "who says nothing new was known before"
    return Decision(_reply(shard, request, current, current), effects=(removal.session_timer(shard, group_id, member),))


# A member that is new, or has new metadata


def _decide_change(
    shard: GroupShard,
    turn: Turn,
    group: ConsumerGroup,
    request: HeartbeatRequest,
    entry: _Entry,
    merged: ConsumerMember,
) -> Decision:
    group_id, before = group.group_id, entry.before
    changes = member_changes(shard, group, merged, replaces=entry.replaces)
    joins = [*changes.joins]
    if not joins and is_refresh_due(shard, group, turn):
        joins.append(refresh(shard, group_id))
    is_subscription_new = before is not None and before.subscription != merged.subscription
    joins.append(assign(shard, group_id))
    joins.append(_move(shard, request, entry.current, is_subscription_new=is_subscription_new))
    return replace(changes, joins=tuple(joins))


def member_changes(
    shard: GroupShard, group: ConsumerGroup, member: ConsumerMember, *, replaces: str | None
) -> Decision:
    """Store the member's metadata, and give the group a new epoch if that affects its assignment.

    `replaces` is the previous member with its instance id, which hands over everything it has. Racks, timeouts and
    preferred assignors do not cause a new epoch (spec groups 3.4, step 5).
    """
    group_id, member_id = group.group_id, member.member_id
    before = group.members.get(member_id if replaces is None else replaces)
    old = MemberSubscription() if before is None else before.subscription
    new = member.subscription
    cause = "join" if before is None else "heartbeat"
    values: list[object] = []
    effects: list[object] = []
    events: list[object] = []
    if replaces is not None:
        values += _hand_over(group, replaces, member)
        effects += cancelled_timers(group_id, [replaces])
        events.append(MemberLeft(group_id, group.kind, replaces, LeaveReason.FENCED))
        # The previous process may still wait for an answer.
        effects.append(GroupNews(group_id))
    else:
        values.append(records.MemberChanged(group_id, member))
    if before is None or replaces is not None:
        events.append(MemberJoined(group_id, group.kind, member_id))
    if old.regex is not None and old.regex != new.regex and group.users_of(old.regex) == 1:
        values.append(records.RegexForgotten(group_id, old.regex))
    concerns_others = old.names != new.names or group.topics_of(old) != group.topics_of(new)
    joins = (bump(shard, group_id, cause),) if concerns_others or group.epochs.group_epoch == 0 else ()
    return Decision(
        records=tuple(Record(shard.key, value, cause) for value in values),
        joins=joins,
        effects=tuple(effects),
        events=tuple(events),
    )


def _hand_over(group: ConsumerGroup, old_id: str, member: ConsumerMember) -> list[object]:
    group_id, new_id = group.group_id, member.member_id
    values: list[object] = [
        records.AssignmentForgotten(group_id, old_id),
        records.TargetForgotten(group_id, old_id),
        records.MemberForgotten(group_id, old_id),
        records.MemberChanged(group_id, member),
    ]
    target = group.target(old_id)
    if target:
        values.append(records.TargetChanged(group_id, new_id, target))
    values.append(records.AssignmentChanged(group_id, new_id, back(group.assignment(old_id))))
    return values


# Towards the target


def _move(
    shard: GroupShard, request: HeartbeatRequest, before: CurrentAssignment, *, is_subscription_new: bool
) -> Operation:
    decide = partial(_decide_step, request=request, before=before, is_subscription_new=is_subscription_new)
    return Operation(shard.key, decide)


def _decide_step(
    shard: GroupShard,
    turn: Turn,
    *,
    request: HeartbeatRequest,
    before: CurrentAssignment,
    is_subscription_new: bool,
) -> Decision:
    group = the_group(shard, request.group_id)
    if is_repetition(before, request.member_epoch):
        member = group.members.get(request.member_id)
        assert member is not None, "an earlier step of the operation found the member"
        session = removal.session_timer(shard, group.group_id, member)
        return Decision(_reply(shard, request, before, before), effects=(session,))
    decision, after = decide_step(
        shard, turn, group, request.member_id, request.owned, is_subscription_new=is_subscription_new
    )
    return replace(decision, reply=_reply(shard, request, before, after))


def decide_step(
    shard: GroupShard,
    turn: Turn,
    group: ConsumerGroup,
    member_id: str,
    owned: Owned | None,
    *,
    is_subscription_new: bool,
) -> tuple[Decision, CurrentAssignment]:
    """Move the member a step towards its target. Returns also its new assignment."""
    group_id, current = group.group_id, group.assignment(member_id)
    member = group.members.get(member_id)
    assert member is not None, "an earlier step of the operation found the member"
    after = moved(shard, group, member, owned, is_subscription_new=is_subscription_new)
    effects: list[Effect] = [removal.session_timer(shard, group_id, member)]
    if after is current:
        return Decision(effects=tuple(effects)), after
    if after.state is MemberState.UNREVOKED:
        effects.append(removal.rebalance_timer(shard, group_id, member, after.member_epoch))
    elif current.state is MemberState.UNREVOKED:
        effects.append(CancelTimer(rebalance_key(group_id, member_id)))
    if releases(current, after):
        effects.append(GroupNews(group_id))
    values: list[object] = [records.AssignmentChanged(group_id, member_id, after)]
    events: list[object] = []
    if group.rebalance_started_ms is not None and group.is_stable_with(member_id, after):
        values.append(records.RebalanceNoted(group_id, None))
        events.append(rebalance_completed(group, group.epochs.group_epoch, turn))
    moves = tuple(Record(shard.key, value, "move") for value in values)
    return Decision(records=moves, effects=tuple(effects), events=tuple(events)), after


def moved(
    shard: GroupShard,
    group: ConsumerGroup,
    member: ConsumerMember,
    owned: Owned | None,
    *,
    is_subscription_new: bool = False,
) -> CurrentAssignment:
    """Return the member's assignment after its next step; the group's own object if there is none."""
    member_id, topics = member.member_id, group.topics_of(member.subscription)

    def is_subscribed(topic_id: bytes) -> bool:
        shape = shard.topics.shape_of_id(topic_id)
        return shape is not None and shape.topic in topics

    def is_free(topic_id: bytes, partition: int) -> bool:
        return group.owner(topic_id, partition) in {None, member_id}

    target = group.target(member_id)
    share = {topic_id: partitions for topic_id, partitions in target.items() if is_subscribed(topic_id)}
    destination = Destination(
        epoch=group.epochs.assignment_epoch, share=share, is_free=is_free, is_subscribed=is_subscribed
    )
    return reconcile(group.assignment(member_id), destination, owned, is_subscription_new=is_subscription_new)


def has_news(shard: GroupShard, group: ConsumerGroup, member: ConsumerMember, owned: Owned | None) -> bool:
    """Return True if a heartbeat would change the partitions of the member.

    A new epoch alone can wait for the next heartbeat. A member that keeps its partitions need not know of every join or
    leave.
    """
    current = group.assignment(member.member_id)
    after = moved(shard, group, member, owned)
    return after is not current and not same_partitions(current.assigned, after.assigned)


def releases(before: CurrentAssignment, after: CurrentAssignment) -> bool:
    """Return True if a partition that was held is free now."""
    return any(
        after.assignment_epoch(topic_id, partition) is None
        for held in (before.assigned, before.pending_revocation)
        for topic_id, partitions in held.items()
        for partition in partitions
    )


def _reply(
    shard: GroupShard, request: HeartbeatRequest, before: CurrentAssignment, after: CurrentAssignment
) -> HeartbeatReply:
    # A repetition comes from a member that missed an answer. A member in an unknown state has shown that it owns
    # nothing.
    has_missed = request.crosses or is_repetition(before, request.member_epoch) or before.state is MemberState.UNKNOWN
    is_new = not same_partitions(before.assigned, after.assigned)
    is_told = request.is_join or request.is_full or has_missed or is_new
    return HeartbeatReply(
        member_id=request.member_id,
        member_epoch=after.member_epoch,
        heartbeat_interval_ms=shard.part(GroupSettings).heartbeat_interval_ms(request.group_id),
        assigned=after.assigned if is_told else None,
    )


# A member that leaves


def _decide_leave(shard: GroupShard, request: HeartbeatRequest) -> Decision:
    group = find_group(shard, request.group_id)
    if group is None:
        raise Refused(
            ErrorCode.GROUP_ID_NOT_FOUND, f"there is no consumer group {request.group_id!a:.80} that could be left"
        )
    if request.instance_id is not None:
        _check_instance(group, request, group.instance_holder(request.instance_id))
    member = group.members.get(request.member_id)
    if member is None:
        raise unknown_member(group.group_id, request.member_id)
    reply = HeartbeatReply(member_id=request.member_id, member_epoch=request.member_epoch)
    if request.member_epoch == LEAVE_EPOCH:
        return replace(removal.decide_removal(shard, group, [request.member_id], LeaveReason.LEAVE), reply=reply)
    return _decide_away(shard, group, request.member_id, reply)


def _decide_away(shard: GroupShard, group: ConsumerGroup, member_id: str, reply: HeartbeatReply) -> Decision:
    """Mark a static member as away. Its session goes on, and until that ends no other member gets its assigned
    partitions."""
    current = group.assignment(member_id)
    record = records.AssignmentChanged(group.group_id, member_id, away(current))
    return Decision(
        reply,
        records=(Record(shard.key, record, "static member away"),),
        effects=(
            CancelTimer(rebalance_key(group.group_id, member_id)),
            *((GroupNews(group.group_id),) if current.pending_revocation else ()),
        ),
    )
