"""Decisions of administrators on groups of all kinds."""

from __future__ import annotations

from typing import Final

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.decision import CATALOG_KEY, Decision, Record, Turn, once_durable
from group_coordinator.administration.requests import AlterGroupConfig
from group_coordinator.administration.settings import (
    SHARE_DEAD_LETTER_TOPIC,
    GroupConfigChanged,
    GroupSettings,
    altered,
)
from group_coordinator.committed.decisions import forget, unknown_group
from group_coordinator.committed.offsets import Offsets
from group_coordinator.committed.state import GroupAdministered
from group_coordinator.events import GroupRemoved, OffsetsDeleted
from group_coordinator.shard import GroupShard

_DELETE_CAUSE: Final = "delete_group"


def decide_delete(shard: GroupShard, group_id: str) -> Decision:
    """Delete a group without members, with its committed and pending offsets, or the states of its share partitions.

    Raises Refused: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP. Source: spec groups 4.8.
    """
    group = shard.group(group_id)
    if group is None:
        raise unknown_group(group_id)
    if not group.is_empty:
        raise Refused(
            ErrorCode.NON_EMPTY_GROUP,
            f"group {group_id!a:.300} has members (state {group.state_name}); stop them first",
        )
    partitions = shard.part(Offsets).of(group_id).partitions()
    tombstones = (Record(shard.key, value, cause=_DELETE_CAUSE) for value in group.tombstones())
    return Decision(
        records=(
            *forget(shard, group_id, partitions),
            *tombstones,
            Record(shard.key, GroupAdministered(group_id), cause=_DELETE_CAUSE),
        ),
        joins=shard.deletion(group),
        effects=group.removal_effects(),
        events=(OffsetsDeleted(group_id, len(partitions)), GroupRemoved(group_id, group.kind, is_deleted=True)),
    )


def decide_alter_config(shard: GroupShard, _turn: Turn, *, command: AlterGroupConfig) -> Decision:
    """Change settings of one group, which need not exist. Its members get them with their next heartbeats.

    Raises Refused INVALID_CONFIG, also for a dead-letter topic that does not exist.
    """
    group_id = command.group_id
    before = shard.part(GroupSettings).overrides.get(group_id) or {}
    after = altered(before, command, shard.config)
    topic = after.get(SHARE_DEAD_LETTER_TOPIC)
    if topic and topic != before.get(SHARE_DEAD_LETTER_TOPIC) and shard.topics.shape(str(topic)) is None:
        missing = Refused(ErrorCode.INVALID_CONFIG, f"there is no topic {topic} for dead letters: create it first")
        return Decision(joins=(once_durable(CATALOG_KEY, missing),))
    if command.validate_only or after == before:
        return Decision()
    return Decision(records=(Record(shard.key, GroupConfigChanged(group_id, after), cause="alter config"),))
