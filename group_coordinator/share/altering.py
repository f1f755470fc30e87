"""Changes of the start offsets of a share group by an administrator. Only a group without members is changed: what a
member still held would be handed out once more.

Source: spec groups 6.2 (Admin); KIP-932.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.decision import CATALOG_KEY, Decision, Operation, Record, Turn, once_durable
from group_coordinator.shard import GroupShard
from group_coordinator.share import records
from group_coordinator.share.group import ShareGroup, find_group, the_group

CAUSE = "alter offsets"


class StartOffset(NamedTuple):
    """The offset from which a group is to read a partition."""

    topic_id: bytes
    partition: int
    offset: int


def check_group(group: object, group_id: str) -> ShareGroup:
    """Return a share group. Raises Refused GROUP_ID_NOT_FOUND for no group, and for one of another kind."""
    if not isinstance(group, ShareGroup):
        raise Refused(
            ErrorCode.GROUP_ID_NOT_FOUND, f"there is no share group {group_id!a:.300}; list the groups to find its name"
        )
    return group


def decide_alter_offsets(
    shard: GroupShard, _turn: Turn, *, group_id: str, offsets: Sequence[StartOffset | Refused]
) -> Decision:
    """Let a group begin anew at these offsets, each by itself. The reply is a list with the refusal or None of each.

    Raises Refused: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP."""
    _check_empty(shard, group_id)
    attempts = tuple(
        once_durable(CATALOG_KEY, each)
        if isinstance(each, Refused)
        else Operation(shard.key, partial(_decide_alter, group_id=group_id, wanted=each))
        for each in offsets
    )
    return Decision(attempts=attempts, combine=_refusals)


def decide_delete_offsets(
    shard: GroupShard, _turn: Turn, *, group_id: str, topic_ids: Sequence[bytes | Refused]
) -> Decision:
    """Drop what a group knows of the records of topics, each by itself. The reply is a list with the refusal or None of
    each.

    Raises Refused: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP."""
    _check_empty(shard, group_id)
    attempts = tuple(
        once_durable(CATALOG_KEY, each)
        if isinstance(each, Refused)
        else Operation(shard.key, partial(_decide_delete, group_id=group_id, topic_id=each))
        for each in topic_ids
    )
    return Decision(attempts=attempts, combine=_refusals)


def _refusals(replies: Sequence[object]) -> list[Refused | None]:
    return [reply if isinstance(reply, Refused) else None for reply in replies]


def _check_empty(shard: GroupShard, group_id: str) -> None:
    group = check_group(find_group(shard, group_id), group_id)
    if not group.is_empty:
        raise Refused(
            ErrorCode.NON_EMPTY_GROUP,
            f"the share group {group_id!a:.300} has {len(group.members)} members, which may hold records; stop them, "
            "and try again",
        )


def _decide_alter(shard: GroupShard, _turn: Turn, *, group_id: str, wanted: StartOffset) -> Decision:
    group = the_group(shard, group_id)
    topic_id, partition, offset = wanted
    known = group.initialized_of(topic_id)
    values = [] if partition in known else [records.SharePartitionsInitialized(group_id, topic_id, known | {partition})]
    return Decision(
        records=tuple(Record(shard.key, value, CAUSE) for value in values),
        joins=(shard.share_states.alter_start(group_id, topic_id, partition, group.epochs.group_epoch, offset),),
    )


def _decide_delete(shard: GroupShard, _turn: Turn, *, group_id: str, topic_id: bytes) -> Decision:
    known = the_group(shard, group_id).initialized_of(topic_id)
    if not known:
        return Decision()
    return Decision(
        records=(Record(shard.key, records.SharePartitionsForgotten(group_id, topic_id), "delete offsets"),),
        joins=tuple(shard.share_states.delete(group_id, topic_id, partition) for partition in sorted(known)),
    )
