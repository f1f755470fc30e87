"""Members of a consumer group that speak the classic protocol.

There is no leader and nothing is parked, since the server assigns. A JoinGroup is answered at once, with the member's
epoch as its generation, and SyncGroup returns the member's assignment. A member whose assignment must change is
answered REBALANCE_IN_PROGRESS and joins again. A cooperative member reports its remaining partitions with that; an
eager one has revoked everything.

`registry` lists the functions here as the decisions on classic calls about consumer groups.

Source: spec groups 3.10.
"""

from __future__ import annotations

from functools import partial

from msgspec.structs import replace

from coordinator_protocol.consumer_protocol import PROTOCOL_TYPE, Subscription
from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.decision import Answer, AnswerLater, CancelTimer, Decision, Effect, Operation, Record, Turn
from group_coordinator.classic.requests import (
    Heard,
    Heartbeat,
    Joined,
    JoinGroup,
    JoinRefused,
    LeaveGroup,
    LeavingMember,
    Left,
    Synced,
    SyncGroup,
)
from group_coordinator.consumer import records, removal
from group_coordinator.consumer.assigning import assign, the_group
from group_coordinator.consumer.decisions import decide_step, member_changes
from group_coordinator.consumer.downgrade import downgrade
from group_coordinator.consumer.embedded import encoded_share, owned_by, subscription_of
from group_coordinator.consumer.group import ConsumerGroup, join_key, sync_key
from group_coordinator.consumer.rules import fenced_instance
from group_coordinator.consumer.state import (
    ClassicMetadata,
    ConsumerMember,
    CurrentAssignment,
    MemberSubscription,
    Owned,
)
from group_coordinator.events import LeaveReason
from group_coordinator.members import MemberState, check_size, unknown_member
from group_coordinator.shard import GroupShard

# JoinGroup


def decide_join(shard: GroupShard, turn: Turn, *, group: ConsumerGroup, request: JoinGroup) -> Decision:
    """Decide JoinGroup. The reply is Joined.

    Raises JoinRefused MEMBER_ID_REQUIRED with the id to join again with, and Refused: GROUP_MAX_SIZE_REACHED,
    INCONSISTENT_GROUP_PROTOCOL, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID.
    """
    if request.member_id not in group.members and not _comes_back(group, request):
        check_size(group.group_id, len(group.members), shard.config.consumer_size_max)
    _check_protocols(group, request)
    member_id, replaces = _who_joins(group, request)
    subscription = _subscription(request)
    member = _member(request, member_id, subscription, turn)
    before = group.members.get(member_id if replaces is None else replaces)
    if before == member:
        changes = Decision()
    else:
        changes = member_changes(shard, group, member, replaces=replaces)
    is_subscription_new = before is not None and before.subscription != member.subscription
    step = partial(
        _decide_join_step,
        group_id=group.group_id,
        member_id=member_id,
        owned=owned_by(subscription, shard.topics),
        is_subscription_new=is_subscription_new,
    )
    joins = [*changes.joins, assign(shard, group.group_id), Operation(shard.key, step)]
    if before is not None and before.classic is None and _is_last(shard, group, before.member_id):
        joins.append(downgrade(shard, group.group_id, must_rebalance=is_subscription_new))
    return replace(changes, joins=tuple(joins))


def _comes_back(group: ConsumerGroup, request: JoinGroup) -> bool:
    return request.instance_id is not None and group.instance_holder(request.instance_id) is not None


def _is_last(shard: GroupShard, group: ConsumerGroup, member_id: str) -> bool:
    """Return True if no other member speaks the consumer protocol, and the group may become a classic one."""
    allows = shard.config.consumer_migration_policy.allows_downgrade
    return allows and group.consumer_protocol_count == 1 and len(group.members) <= shard.config.size_max


def _check_protocols(group: ConsumerGroup, request: JoinGroup) -> None:
    names = {protocol.name for protocol in request.protocols}
    others = [metadata for member_id, metadata in group.classic.items() if member_id != request.member_id]
    common = names.intersection(*({protocol.name for protocol in each.protocols} for each in others))
    if request.protocol_type == PROTOCOL_TYPE and common:
        return
    if request.protocol_type != PROTOCOL_TYPE:
        why = f"members of type {request.protocol_type!a:.80} cannot be in one group with consumers"
    else:
        why = f"the other classic members use none of the assignors {', '.join(sorted(names))!a:.200}"
    raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"{why}; use the settings of the others, or another group")


def _who_joins(group: ConsumerGroup, request: JoinGroup) -> tuple[str, str | None]:
    """Return the id of the joining member, and of the one that it replaces, if any."""
    instance_id, member_id = request.instance_id, request.member_id
    if instance_id is None:
        if not member_id and request.is_member_id_required:
            raise JoinRefused(
                ErrorCode.MEMBER_ID_REQUIRED,
                f"join again with the member id {request.new_member_id!a:.120}",
                request.new_member_id,
            )
        return member_id or request.new_member_id, None
    holder = group.instance_holder(instance_id)
    if not member_id:
        return request.new_member_id, holder
    if holder is None:
        raise unknown_member(group.group_id, member_id)
    if holder != member_id:
        raise fenced_instance(instance_id)
    return member_id, None


def _subscription(request: JoinGroup) -> Subscription:
    try:
        return subscription_of(request.protocols)
    except Refused as refusal:
        raise Refused(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"the server assigns in this group, and cannot read what the member subscribes to: {refusal.message}",
        ) from None


def _member(request: JoinGroup, member_id: str, subscription: Subscription, turn: Turn) -> ConsumerMember:
    return ConsumerMember(
        member_id=member_id,
        instance_id=request.instance_id,
        rack_id=subscription.rack_id,
        client_id=turn.client_id,
        client_host=turn.host,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        subscription=MemberSubscription(frozenset(subscription.topics)),
        classic=ClassicMetadata(request.session_timeout_ms, request.protocols),
    )


def _decide_join_step(
    shard: GroupShard, turn: Turn, *, group_id: str, member_id: str, owned: Owned, is_subscription_new: bool
) -> Decision:
    group = the_group(shard, group_id)
    member, classic = _classic_member(group, member_id)
    decision, after = decide_step(shard, turn, group, member_id, owned, is_subscription_new=is_subscription_new)
    heard_again = _awaited(shard, group, member_id, is_awaited=False)
    reply = Joined(
        generation_id=after.member_epoch,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=classic.protocols[0].name,
        leader="",
        member_id=member_id,
    )
    timers = (CancelTimer(join_key(group_id, member_id)), removal.sync_timer(shard, group_id, member))
    return replace(
        decision, reply=reply, records=(*heard_again, *decision.records), effects=(*decision.effects, *timers)
    )


# SyncGroup


def decide_sync(shard: GroupShard, _turn: Turn, *, group: ConsumerGroup, request: SyncGroup, ticket: int) -> Decision:
    """Decide SyncGroup. The reply is Synced, or an Answer to the ticket that refuses with REBALANCE_IN_PROGRESS.

    Raises Refused: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, INCONSISTENT_GROUP_PROTOCOL.
    """
    member, classic = _speaker(group, request.member_id, request.instance_id)
    current = group.assignment(member.member_id)
    _check_generation(group, current, request.generation_id)
    name = classic.protocols[0].name
    if request.protocol_type not in {None, PROTOCOL_TYPE} or request.protocol_name not in {None, name}:
        raise Refused(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"the member joined with the type consumer and the assignor {name!a:.80}, and asks with others; join again",
        )
    heard = (
        CancelTimer(sync_key(group.group_id, member.member_id)),
        removal.session_timer(shard, group.group_id, member),
    )
    if group.epochs.group_epoch > current.member_epoch and current.state is not MemberState.UNREVOKED:
        noted, effects = _told_to_join(shard, group, member)
        refused = Answer(ticket, refusal=_rebalancing(group))
        return Decision(AnswerLater(ticket), noted, effects=(*heard, *effects, refused))
    assignment = encoded_share(current.assigned, classic, shard.topics)
    return Decision(Synced(PROTOCOL_TYPE, name, assignment), effects=heard)


# Heartbeat


def decide_heartbeat(shard: GroupShard, _turn: Turn, *, group: ConsumerGroup, request: Heartbeat) -> Decision:
    """Decide Heartbeat. The reply is Heard. Raises Refused: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID,
    ILLEGAL_GENERATION."""
    member, _classic = _speaker(group, request.member_id, request.instance_id)
    current = group.assignment(member.member_id)
    _check_generation(group, current, request.generation_id)
    session = removal.session_timer(shard, group.group_id, member)
    if not _must_join(group, member.member_id, current):
        return Decision(Heard(), effects=(session,))
    noted, effects = _told_to_join(shard, group, member)
    return Decision(Heard(_rebalancing(group)), noted, effects=(session, *effects))


def _must_join(group: ConsumerGroup, member_id: str, current: CurrentAssignment) -> bool:
    if current.member_epoch < group.epochs.group_epoch or current.state is MemberState.UNREVOKED:
        return True
    return current.state is MemberState.UNRELEASED and all(
        group.owner(topic_id, partition) in {None, member_id}
        for topic_id, partitions in group.target(member_id).items()
        for partition in partitions
    )


# LeaveGroup


def decide_leave(shard: GroupShard, _turn: Turn, *, group: ConsumerGroup, request: LeaveGroup) -> Decision:
    """Decide LeaveGroup, of members of either protocol: an administrator removes members by it, too.

    The reply is one Left per entry; one new epoch follows for all. Source: Kafka's
    `classicGroupLeaveToConsumerGroup`.
    """
    leaving: dict[str, None] = {}
    results = tuple(_leave(group, each, leaving) for each in request.members)
    if not leaving:
        return Decision(results)
    return replace(removal.decide_removal(shard, group, [*leaving], LeaveReason.LEAVE), reply=results)


def _leave(group: ConsumerGroup, each: LeavingMember, leaving: dict[str, None]) -> Left:
    member_id = each.member_id
    if not member_id and each.instance_id is not None:
        member_id = group.instance_holder(each.instance_id) or ""
    try:
        _check_instance(group, member_id, each.instance_id)
        if member_id not in group.members or member_id in leaving:
            raise unknown_member(group.group_id, member_id)
    except Refused as refusal:
        return Left(each, refusal)
    leaving[member_id] = None
    return Left(each)


# Lookup and checks of members, and their refusals


def _speaker(group: ConsumerGroup, member_id: str, instance_id: str | None) -> tuple[ConsumerMember, ClassicMetadata]:
    """Return a member that speaks the classic protocol. Raises Refused: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
    _check_instance(group, member_id, instance_id)
    if member_id not in group.classic:
        raise unknown_member(group.group_id, member_id)
    return _classic_member(group, member_id)


def _check_instance(group: ConsumerGroup, member_id: str, instance_id: str | None) -> None:
    """Raise Refused UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID unless the member has this instance id, if there is one."""
    if instance_id is not None:
        holder = group.instance_holder(instance_id)
        if holder is not None and holder != member_id:
            raise fenced_instance(instance_id)
        if holder is None:
            raise unknown_member(group.group_id, member_id)


def _classic_member(group: ConsumerGroup, member_id: str) -> tuple[ConsumerMember, ClassicMetadata]:
    member = group.members.get(member_id)
    assert member is not None, "asked for a member"
    assert member.classic is not None, "asked for a classic member"
    return member, member.classic


def _check_generation(group: ConsumerGroup, current: CurrentAssignment, generation_id: int) -> None:
    if current.state is MemberState.UNKNOWN:
        # The classic protocol's way to fence: its clients revoke everything before they join again.
        raise Refused(
            ErrorCode.ILLEGAL_GENERATION,
            f"the member of group {group.group_id!a:.80} is stored in a state that only a newer server knows; join "
            "again",
        )
    if generation_id != current.member_epoch:
        raise Refused(
            ErrorCode.ILLEGAL_GENERATION,
            f"the member of group {group.group_id!a:.80} is in generation {current.member_epoch}, not {generation_id}; "
            "join again",
        )


def _rebalancing(group: ConsumerGroup) -> Refused:
    return Refused(
        ErrorCode.REBALANCE_IN_PROGRESS, f"group {group.group_id!a:.80} assigns the member something else; join again"
    )


def _told_to_join(
    shard: GroupShard, group: ConsumerGroup, member: ConsumerMember
) -> tuple[tuple[Record, ...], tuple[Effect, ...]]:
    """Note that the member must join again, and start its rebalance timeout. A second notice does not extend it."""
    member_id = member.member_id
    if member_id in group.awaited:
        return (), ()
    noted = _awaited(shard, group, member_id, is_awaited=True)
    return noted, (removal.join_timer(shard, group.group_id, member),)


def _awaited(shard: GroupShard, group: ConsumerGroup, member_id: str, *, is_awaited: bool) -> tuple[Record, ...]:
    if (member_id in group.awaited) is is_awaited:
        return ()
    value = records.RejoinAwaited(group.group_id, member_id, is_awaited=is_awaited)
    return (Record(shard.key, value, "join again"),)
