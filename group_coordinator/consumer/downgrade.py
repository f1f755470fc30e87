"""Downgrade of a consumer group to a classic one, when the last member with the consumer protocol goes.

The generation is the group epoch. Every member is assigned its target, encoded in its own version of the protocol.

Source: spec groups 3.9.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from msgspec.structs import replace

from coordinator_protocol.consumer_protocol import PROTOCOL_TYPE
from coordinator_runtime.decision import CancelTimer, Decision, Operation, Record, Turn
from group_coordinator.classic.rebalance import GroupDraft, begin, session_timer
from group_coordinator.classic.state import ClassicGroup, ClassicMember, rebuilt_group
from group_coordinator.consumer.assigning import the_group
from group_coordinator.consumer.embedded import encoded_share
from group_coordinator.consumer.group import ConsumerGroup, join_key, rebalance_key, sync_key
from group_coordinator.consumer.state import ConsumerMember
from group_coordinator.events import GroupConverted
from group_coordinator.shard import GroupShard

_CAUSE = "downgrade"


def is_downgrade(shard: GroupShard, group: ConsumerGroup, leaving: Sequence[str]) -> bool:
    """Return True if only classic members remain after these leave, and the group may become a classic one."""
    config = shard.config
    going = sum(1 for member_id in leaving if member_id not in group.classic)
    return (
        config.consumer_migration_policy.allows_downgrade
        and going > 0
        and group.consumer_protocol_count == going
        and 1 <= len(group.members) - len(leaving) <= config.size_max
    )


def downgrade(shard: GroupShard, group_id: str, *, must_rebalance: bool) -> Operation:
    """Return the operation that makes the group, with only classic members left, a classic one: in one step, or not at
    all."""
    return Operation(shard.key, partial(_decide_downgrade, group_id=group_id, must_rebalance=must_rebalance))


def _decide_downgrade(shard: GroupShard, turn: Turn, *, group_id: str, must_rebalance: bool) -> Decision:
    group = the_group(shard, group_id)
    draft = GroupDraft(_classic_group(shard, group, turn), turn, shard.config)
    draft.is_stored = True
    draft.records += [Record(shard.key, value, _CAUSE) for value in group.tombstones()]
    draft.effects += group.removal_effects()
    for member in draft.group.members.values():
        draft.effects += [CancelTimer(key(group_id, member.member_id)) for key in (join_key, sync_key, rebalance_key)]
        draft.effects.append(session_timer(draft.group, member))
    draft.events.append(GroupConverted(group_id, is_upgrade=False))
    draft.tell_members()
    if must_rebalance:
        begin(draft, "the last member of the consumer protocol is gone")
    return draft.decision(cause=_CAUSE)


def _classic_group(shard: GroupShard, group: ConsumerGroup, turn: Turn) -> ClassicGroup:
    members = [_classic_member(shard, group, member) for member in group.members.values()]
    bare = ClassicGroup(
        shard=shard.key,
        group_id=group.group_id,
        state_timestamp_ms=turn.now_ms,
        generation_id=group.epochs.group_epoch,
        protocol_type=PROTOCOL_TYPE,
        leader=members[0].member_id,
    )
    elected = rebuilt_group(bare, members).elect_protocol()
    return rebuilt_group(replace(bare, protocol_name=elected), members)


def _classic_member(shard: GroupShard, group: ConsumerGroup, member: ConsumerMember) -> ClassicMember:
    assert member.classic is not None, "only classic members are left"
    return ClassicMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        session_timeout_ms=member.classic.session_timeout_ms,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        protocols=member.classic.protocols,
        assignment=encoded_share(group.target(member.member_id), member.classic, shard.topics),
    )
