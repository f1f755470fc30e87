"""New epochs of a share group, the states of its partitions, and the target for each epoch.

A *look* compares a group with the topics of its members. In the same operation it initialises partitions without a
state. If the topics or the partitions changed, the group gets a new epoch. Each epoch gets its target at once. One
whose computation would block the loop comes from another process (`ComputeShareTarget`), and is used only if the group
epoch is still the same. A partition whose shard is not served here is left out until a later heartbeat looks again.

Source: spec groups 3.4 (steps 5 and 6), 6.1; KIP-932.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby, islice
from operator import itemgetter
from typing import Final

from msgspec.structs import replace

from coordinator_protocol.assignors.values import MemberSpec
from coordinator_runtime.decision import Decision, Operation, Record, Turn
from coordinator_runtime.ports import TopicShape
from group_coordinator.computing import TargetResult
from group_coordinator.events import GroupNews, RebalanceCompleted, RebalanceStarted, TargetComputed
from group_coordinator.shard import GroupShard
from group_coordinator.share import records
from group_coordinator.share.computing import ShareTargetTask, compute, is_large
from group_coordinator.share.group import ShareGroup, find_group, the_group
from group_coordinator.share.state import TopicsLook
from group_coordinator.state import OfGroup, PartitionKey
from group_coordinator.topics import metadata_hash, shapes_of

INITIALIZED_PER_LOOK_MAX: Final = 500
"""Partitions that one look initialises; the next heartbeat goes on."""
RETRY_MS: Final = 30_000
"""Time after which a heartbeat looks again for partitions whose shards were not served (ms)."""


class ComputeShareTarget(OfGroup, frozen=True):
    """Effect: compute the target of a group away from the loop, then `decide_result`."""


def is_look_due(group: ShareGroup, turn: Turn) -> bool:
    """Return True if the topics may have changed since the last look, or partitions are still without state. Also if
    the clock was set back, since the age of that look is then unknown."""
    look = group.look
    return look is None or not 0 <= turn.now_ms - look.looked_ms < look.valid_ms


def look(shard: GroupShard, group_id: str, cause: str, *, must_bump: bool = False) -> Operation:
    """Return the operation that compares the group with its topics, and gives it a target if that changed something.
    `must_bump`: the members or their subscriptions did."""
    return Operation(shard.key, partial(_decide_look, group_id=group_id, cause=cause, must_bump=must_bump))


def _decide_look(shard: GroupShard, turn: Turn, *, group_id: str, cause: str, must_bump: bool) -> Decision:
    group = the_group(shard, group_id)
    shapes = shapes_of(group.subscribed_topics(), shard.topics)
    found = list(islice(_missing(shard, group, shapes), INITIALIZED_PER_LOOK_MAX + 1))
    new = found[:INITIALIZED_PER_LOOK_MAX]
    hashed = metadata_hash(shapes)
    epochs = group.epochs
    values: list[object] = [records.ShareTopicsLooked(group_id, _looked(shard, group, shapes, found, turn))]
    if not (must_bump or new or hashed != epochs.metadata_hash):
        return Decision(records=tuple(Record(shard.key, value, cause) for value in values))
    group_epoch = max(epochs.group_epoch, shard.least_epoch) + 1
    values.append(records.ShareGroupEpochBumped(group_id, group_epoch, hashed))
    for topic_id, partitions in groupby(new, key=itemgetter(0)):
        numbers = frozenset(partition for _topic_id, partition in partitions)
        values.append(records.SharePartitionsInitialized(group_id, topic_id, group.initialized_of(topic_id) | numbers))
    states = shard.share_states
    initialize = [states.initialize(group_id, topic_id, number, group_epoch) for topic_id, number in new]
    return Decision(
        records=tuple(Record(shard.key, value, cause) for value in values),
        joins=(*initialize, assign(shard, group_id)),
        effects=(GroupNews(group_id),),
        events=(
            RebalanceStarted(group_id, group.kind, cause),
            *([RebalanceCompleted(group_id, group.kind, group_epoch, 0, 0)] if group.is_empty else []),
        ),
    )


def _missing(shard: GroupShard, group: ShareGroup, shapes: Sequence[TopicShape]) -> Iterator[PartitionKey]:
    """Return the partitions that have no state and could get one now."""
    is_served = shard.share_states.is_served
    for shape in shapes:
        known = group.initialized_of(shape.topic_id)
        if len(known) == shape.partition_count:
            continue
        for partition in range(shape.partition_count):
            if partition not in known and is_served(shape.topic_id, partition):
                yield shape.topic_id, partition


def _looked(
    shard: GroupShard, group: ShareGroup, shapes: Sequence[TopicShape], found: Sequence[PartitionKey], turn: Turn
) -> TopicsLook:
    if len(found) > INITIALIZED_PER_LOOK_MAX:
        return TopicsLook(turn.now_ms, 0)
    missing = sum(shape.partition_count - len(group.initialized_of(shape.topic_id)) for shape in shapes)
    if missing > len(found):
        return TopicsLook(turn.now_ms, RETRY_MS)
    return TopicsLook(turn.now_ms, shard.config.consumer_metadata_refresh_ms)


# Targets


def assign(shard: GroupShard, group_id: str) -> Operation:
    """Return the operation that gives the group the target of its epoch, or asks for it."""
    return Operation(shard.key, partial(_decide_target, group_id=group_id))


def _decide_target(shard: GroupShard, turn: Turn, *, group_id: str) -> Decision:
    group = find_group(shard, group_id)
    if group is None or not group.is_target_due:
        return Decision()
    shapes = shapes_of(group.subscribed_topics(), shard.topics)
    partition_count = sum(len(group.initialized_of(shape.topic_id)) for shape in shapes)
    if is_large(len(group.members), partition_count, len(shapes)):
        return _leave_the_loop(shard, group, turn)
    return _reached(shard, group, compute(target_task(shard, group)), turn)


def decide_target_here(shard: GroupShard, turn: Turn, *, group_id: str) -> Decision:
    """Compute the target at once and on the loop, whatever the cost, because the other process failed."""
    group = find_group(shard, group_id)
    if group is None or not group.is_target_due:
        return Decision()
    return _reached(shard, group, compute(target_task(shard, group)), turn)


def target_task(shard: GroupShard, group: ShareGroup) -> ShareTargetTask:
    """Return the computation that the group needs now."""
    shapes = shapes_of(group.subscribed_topics(), shard.topics)
    ids = {shape.topic: shape.topic_id for shape in shapes}
    wanted = {topics: frozenset(ids[name] for name in topics if name in ids) for topics in group.subscriptions()}
    members = {
        member_id: MemberSpec(topics=wanted[member.topics], rack_id=member.rack_id, owned=group.target(member_id))
        for member_id, member in group.members.items()
    }
    partitions = {shape.topic_id: tuple(sorted(group.initialized_of(shape.topic_id))) for shape in shapes}
    return ShareTargetTask(group.group_id, group.epochs.group_epoch, members, partitions)


def _leave_the_loop(shard: GroupShard, group: ShareGroup, turn: Turn) -> Decision:
    """Have the target computed in another process; members keep the current one.

    The first members of a group have no target, and epoch 0 means joining. So they get an empty target, and the group a
    further epoch for the target under computation.
    """
    effects = (ComputeShareTarget(group.group_id),)
    epochs = group.epochs
    if epochs.assignment_epoch > 0:
        return Decision(effects=effects)
    first = records.ShareTargetEpochReached(group.group_id, epochs.group_epoch, turn.now_ms, "")
    second = records.ShareGroupEpochBumped(group.group_id, epochs.group_epoch + 1, epochs.metadata_hash)
    cause = "first target takes time"
    return Decision(records=(Record(shard.key, first, cause), Record(shard.key, second, cause)), effects=effects)


def decide_result(shard: GroupShard, turn: Turn, *, result: TargetResult, away_us: int) -> Decision:
    """Use a target that another process computed in `away_us`. The reply is False if it came too late to be used, else
    True."""
    group = find_group(shard, result.group_id)
    if group is None or group.epochs.group_epoch != result.group_epoch or not group.is_target_due:
        return Decision(reply=False)
    return replace(_reached(shard, group, result, turn, away_us), reply=True)


def _reached(
    shard: GroupShard, group: ShareGroup, result: TargetResult, turn: Turn, away_us: int | None = None
) -> Decision:
    group_id, epoch, name = result.group_id, result.group_epoch, result.assignor_name
    values: list[object] = [
        records.ShareTargetChanged(group_id, member_id, share) for member_id, share in result.changed.items()
    ]
    values.append(records.ShareTargetEpochReached(group_id, epoch, turn.now_ms, name))
    elapsed_ms = 0 if away_us is None else away_us // 1_000
    return Decision(
        records=tuple(Record(shard.key, value, cause="assign") for value in values),
        effects=() if away_us is None else (GroupNews(group_id),),
        events=(
            TargetComputed(group_id, epoch, name, len(result.changed), away_us),
            # Several members may hold a partition, so none waits for another one.
            RebalanceCompleted(group_id, group.kind, epoch, len(group.members), elapsed_ms),
        ),
    )


# Topics


def decide_topics_changed(shard: GroupShard, turn: Turn, *, names: frozenset[str]) -> Decision:
    """Compare the groups with these topics, which were created, deleted or extended."""
    joins = []
    for group_id, group in shard.groups.items():
        if isinstance(group, ShareGroup) and any(group.is_subscribed_to(name) for name in names):
            joins.append(look(shard, group_id, cause="topics changed"))
    return Decision(joins=tuple(joins))


def decide_forget_topic(shard: GroupShard, _turn: Turn, *, topic_id: bytes) -> Decision:
    """Let all groups forget that partitions of a topic have states. The topic is being deleted, and the shards of its
    partitions drop the states themselves (`TopicShares`)."""
    return Decision(
        records=tuple(
            Record(shard.key, records.SharePartitionsForgotten(group_id, topic_id), cause="topic deleted")
            for group_id, group in shard.groups.items()
            if isinstance(group, ShareGroup) and topic_id in group.initialized
        )
    )
