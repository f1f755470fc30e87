"""Upgrade of a classic group to a consumer group, when the first member with the consumer protocol joins.

The generation becomes the group epoch, the member epochs and the epoch of the target. Every classic member keeps the
partitions that the leader assigned. Parked calls are refused; their members join again and find the new kind.

Source: spec groups 3.9.
"""

from __future__ import annotations

from collections.abc import Callable

from coordinator_protocol.assignors.values import Share
from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.decision import Answer, Decision, Effect, Operation, Record, Turn
from group_coordinator.classic.rebalance import phase_timers_cancelled, rebalancing
from group_coordinator.classic.requests import JoinRefused
from group_coordinator.classic.state import ClassicGroup, ClassicMember
from group_coordinator.consumer import records
from group_coordinator.consumer.embedded import decoded_share, subscription_of
from group_coordinator.consumer.removal import session_timer
from group_coordinator.consumer.state import (
    ClassicMetadata,
    ConsumerMember,
    CurrentAssignment,
    MemberSubscription,
)
from group_coordinator.events import GroupConverted, GroupNews
from group_coordinator.members import MemberState
from group_coordinator.shard import GroupShard
from group_coordinator.state import Group
from group_coordinator.topics import metadata_hash, shapes_of

_CAUSE = "upgrade"


def decide_upgrade(shard: GroupShard, group: Group, then: Callable[[GroupShard, Turn], Decision]) -> Decision:
    """Turn the group into a consumer group, then perform the join `then`; in one step, or not at all. An empty group is
    simply replaced.

    Raises Refused GROUP_ID_NOT_FOUND if the group may not change its kind.
    """
    goes_on = Operation(shard.key, then)
    if group.is_empty and not group.outlives_members:
        tombstones = tuple(Record(shard.key, value, _CAUSE) for value in group.tombstones())
        return Decision(records=tombstones, joins=(goes_on,), effects=group.removal_effects())
    if not isinstance(group, ClassicGroup):
        raise Refused(
            ErrorCode.GROUP_ID_NOT_FOUND,
            f"{group.group_id!a:.80} is a {group.kind} group, whose members have another protocol; use another group",
        )
    _check_upgrade(shard, group)
    members = [_consumer_member(group, member) for member in group.members.values()]
    values = [*group.tombstones(), *_group_values(shard, group, members)]
    effects: list[Effect] = [*group.removal_effects(), *phase_timers_cancelled(group), *_answers(group)]
    effects += [session_timer(shard, group.group_id, member) for member in members]
    effects.append(GroupNews(group.group_id))
    return Decision(
        records=tuple(Record(shard.key, value, _CAUSE) for value in values),
        joins=(goes_on,),
        effects=tuple(effects),
        events=(GroupConverted(group.group_id, is_upgrade=True),),
    )


def _check_upgrade(shard: GroupShard, group: ClassicGroup) -> None:
    config = shard.config
    if not config.consumer_migration_policy.allows_upgrade:
        why = f"the server's consumer_migration_policy is {config.consumer_migration_policy}"
    elif not group.uses_consumer_protocol:
        why = f"its members are of type {group.protocol_type!a:.80}"
    elif len(group.members) > config.consumer_size_max:
        why = f"it has {len(group.members)} members, and a consumer group may have {config.consumer_size_max}"
    else:
        return
    raise _not_found(group, why)


def _not_found(group: ClassicGroup, why: str) -> Refused:
    return Refused(
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"{group.group_id!a:.80} is a classic group and cannot become a consumer group: {why}; use the classic "
        "protocol",
    )


def _answers(group: ClassicGroup) -> list[Effect]:
    again = rebalancing(group)
    joins = [
        Answer(ticket, refusal=JoinRefused(again.code, again.message, member_id))
        for member_id, ticket in group.parked_joins.items()
    ]
    return [*joins, *(Answer(ticket, refusal=again) for ticket in group.parked_syncs.values())]


def _consumer_member(group: ClassicGroup, member: ClassicMember) -> ConsumerMember:
    try:
        subscription = subscription_of(member.protocols)
    except Refused as refusal:
        raise _not_found(group, f"of the member {member.member_id!a:.80}, {refusal.message}") from None
    return ConsumerMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        subscription=MemberSubscription(frozenset(subscription.topics)),
        classic=ClassicMetadata(member.session_timeout_ms, member.protocols),
    )


def _group_values(shard: GroupShard, group: ClassicGroup, members: list[ConsumerMember]) -> list[object]:
    group_id, generation = group.group_id, group.generation_id
    subscribed = frozenset[str]().union(*(member.subscription.names for member in members))
    shares = _shares(shard, group)
    values: list[object] = [records.MemberChanged(group_id, member) for member in members]
    hashed = metadata_hash(shapes_of(subscribed, shard.topics))
    values.append(records.GroupEpochBumped(group_id, generation, hashed))
    values += [records.TargetChanged(group_id, member_id, share) for member_id, share in shares.items()]
    # Computed at time 0, so that the next target need not wait: this one comes from the leader's own assignor.
    values.append(records.TargetEpochReached(group_id, generation, 0, ""))
    for member_id, share in shares.items():
        held = {topic_id: dict.fromkeys(partitions, generation) for topic_id, partitions in share.items()}
        assignment = CurrentAssignment(generation, generation, MemberState.STABLE, held)
        values.append(records.AssignmentChanged(group_id, member_id, assignment))
    return values


def _shares(shard: GroupShard, group: ClassicGroup) -> dict[str, Share[bytes]]:
    """Return the partitions of each member. If the leader gave one partition to two members, the first keeps it; the
    other learns that when it joins again."""
    taken: set[tuple[bytes, int]] = set()
    shares: dict[str, Share[bytes]] = {}
    for member_id, member in group.members.items():
        try:
            share = decoded_share(member.assignment, shard.topics)
        except Refused as refusal:
            raise _not_found(group, f"of the member {member_id!a:.80}, {refusal.message}") from None
        kept: dict[bytes, tuple[int, ...]] = {}
        for topic_id, partitions in share.items():
            free = tuple(number for number in partitions if (topic_id, number) not in taken)
            taken.update((topic_id, number) for number in free)
            if free:
                kept[topic_id] = free
        shares[member_id] = kept
    return shares
