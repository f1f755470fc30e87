"""New epochs of a group, and the target for each.

The epoch grows when the basis of the assignment changes: members, their subscriptions, the topics. The target follows
at once, or when `consumer_assignment_interval_ms` has passed since the last one. So a hundred members that start
together cost two computations and not a hundred. A target whose computation would block the loop comes from another
process (`ComputeTarget`), and is used only if its group epoch is still the same.

Source: spec groups 3.4 (steps 5 and 6), 3.5.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from msgspec.structs import replace

from coordinator_runtime.decision import ArmTimer, CancelTimer, Decision, Operation, Record, Turn
from group_coordinator.computing import TargetResult
from group_coordinator.consumer import records
from group_coordinator.consumer.computing import compute
from group_coordinator.consumer.group import ConsumerGroup
from group_coordinator.consumer.targets import is_large, target_task
from group_coordinator.epoch_group import timer_of_target
from group_coordinator.events import GroupNews, RebalanceCompleted, RebalanceStarted, TargetComputed
from group_coordinator.shard import GroupShard
from group_coordinator.topics import metadata_hash, shapes_of


@dataclass(frozen=True, slots=True)
class ComputeTarget:
    """Effect: compute the target of a group away from the loop, then `decide_result`."""

    group_id: str


def find_group(shard: GroupShard, group_id: str) -> ConsumerGroup | None:
    """Return the consumer group; None if it does not exist or is of another kind."""
    group = shard.groups.get(group_id)
    return group if isinstance(group, ConsumerGroup) else None


def the_group(shard: GroupShard, group_id: str) -> ConsumerGroup:
    """Return a group that an earlier step of the same operation found or made."""
    group = find_group(shard, group_id)
    assert group is not None, f"the consumer group {group_id!r} is there"
    return group


# Epochs


def bump(shard: GroupShard, group_id: str, cause: str) -> Operation:
    """Return the operation that gives the group a new epoch."""
    return Operation(shard.key, partial(_decide_bump, group_id=group_id, cause=cause))


def _decide_bump(shard: GroupShard, turn: Turn, *, group_id: str, cause: str) -> Decision:
    group = the_group(shard, group_id)
    return _bumped(shard, group, turn, metadata_hash(shapes_of(group.subscribed_topics(), shard.topics)), cause)


def _bumped(shard: GroupShard, group: ConsumerGroup, turn: Turn, hashed: int, cause: str) -> Decision:
    group_id, group_epoch = group.group_id, max(group.epochs.group_epoch, shard.least_epoch) + 1
    values: list[object] = [
        records.GroupEpochBumped(group_id, group_epoch, hashed),
        records.MetadataChecked(group_id, turn.now_ms),
    ]
    events: list[object] = [RebalanceStarted(group_id, group.kind, cause)]
    if group.is_empty:
        values.append(records.RebalanceNoted(group_id, None))
        events.append(rebalance_completed(group, group_epoch, turn))
    elif group.rebalance_started_ms is None:
        values.append(records.RebalanceNoted(group_id, turn.now_ms))
    return Decision(
        records=tuple(Record(shard.key, value, cause) for value in values),
        # Classic members must join again. Other members only need to know of partitions that they get or lose.
        effects=(GroupNews(group_id),) if len(group.classic) else (),
        events=tuple(events),
    )


def rebalance_completed(group: ConsumerGroup, group_epoch: int, turn: Turn) -> RebalanceCompleted:
    """Return the event of a completed rebalance: every member has reached its target, or the group is empty."""
    started_ms = turn.now_ms if group.rebalance_started_ms is None else group.rebalance_started_ms
    elapsed_ms = max(0, turn.now_ms - started_ms)
    return RebalanceCompleted(group.group_id, group.kind, group_epoch, len(group.members), elapsed_ms)


def is_refresh_due(shard: GroupShard, group: ConsumerGroup, turn: Turn) -> bool:
    """Return True if the topics may have changed since the last check. Also if the clock was set back, since the age of
    that check is then unknown."""
    checked_ms = group.checked_ms
    return checked_ms is None or not 0 <= turn.now_ms - checked_ms < shard.config.consumer_metadata_refresh_ms


def refresh(shard: GroupShard, group_id: str) -> Operation:
    """Return the operation that gives the group a new epoch if its topics changed."""
    return Operation(shard.key, partial(_decide_refresh, group_id=group_id))


def _decide_refresh(shard: GroupShard, turn: Turn, *, group_id: str) -> Decision:
    group = the_group(shard, group_id)
    hashed = metadata_hash(shapes_of(group.subscribed_topics(), shard.topics))
    if hashed != group.epochs.metadata_hash:
        return _bumped(shard, group, turn, hashed, cause="topics changed")
    return Decision(records=(Record(shard.key, records.MetadataChecked(group_id, turn.now_ms), "topics unchanged"),))


# Targets


def assign(shard: GroupShard, group_id: str) -> Operation:
    """Return the operation that gives the group a target for its epoch, if it has none: now, or as soon as the interval
    allows."""
    return Operation(shard.key, partial(decide_target, group_id=group_id))


def assign_soon(shard: GroupShard, group_id: str) -> ArmTimer:
    """Return the timer that gives the group its target in an operation of its own, once its basis is durable."""
    return ArmTimer(timer_of_target(group_id), 0, assign(shard, group_id))


def decide_target(shard: GroupShard, turn: Turn, *, group_id: str) -> Decision:
    """Compute the target that a group needs.

    A timer performs it too, so there is nothing to do for a group that is gone, or that has its target.
    """
    group = find_group(shard, group_id)
    if group is None or group.is_empty or not group.is_target_due:
        return Decision()
    wait_ms = group.target_wait_ms(turn.now_ms, shard.config.consumer_assignment_interval_ms)
    if wait_ms > 0:
        return Decision(effects=(ArmTimer(timer_of_target(group_id), wait_ms, assign(shard, group_id)),))
    if is_large(group, shard.topics):
        return _leave_the_loop(shard, group, turn)
    return _computed(shard, group, turn)


def decide_target_here(shard: GroupShard, turn: Turn, *, group_id: str) -> Decision:
    """Compute the target at once and on the loop, whatever the cost, because the other process failed."""
    group = find_group(shard, group_id)
    if group is None or group.is_empty or not group.is_target_due:
        return Decision()
    return _computed(shard, group, turn)


def _computed(shard: GroupShard, group: ConsumerGroup, turn: Turn) -> Decision:
    task = target_task(group, shard.topics, shard.config.consumer_assignors)
    return _reached(shard, compute(task, shard.assignors[task.assignor_name]), turn)


def _leave_the_loop(shard: GroupShard, group: ConsumerGroup, turn: Turn) -> Decision:
    """Have the target computed in another process; members keep the current one.

    The first members of a group have no target, and epoch 0 means joining. So they get an empty target, and the group a
    further epoch for the target under computation.
    """
    effects = (ComputeTarget(group.group_id),)
    epochs = group.epochs
    if epochs.assignment_epoch > 0:
        return Decision(effects=effects)
    first = records.TargetEpochReached(group.group_id, epochs.group_epoch, turn.now_ms, "")
    second = records.GroupEpochBumped(group.group_id, epochs.group_epoch + 1, epochs.metadata_hash)
    cause = "first target takes time"
    return Decision(records=(Record(shard.key, first, cause), Record(shard.key, second, cause)), effects=effects)


def decide_result(shard: GroupShard, turn: Turn, *, result: TargetResult, away_us: int) -> Decision:
    """Use a target that another process computed in `away_us`. The reply is False if it came too late to be used, else
    True."""
    group = find_group(shard, result.group_id)
    if group is None or group.epochs.group_epoch != result.group_epoch or not group.is_target_due:
        return Decision(reply=False)
    return replace(_reached(shard, result, turn, away_us), reply=True)


def _reached(shard: GroupShard, result: TargetResult, turn: Turn, away_us: int | None = None) -> Decision:
    group_id, epoch, name = result.group_id, result.group_epoch, result.assignor_name
    values: list[object] = [
        records.TargetChanged(group_id, member_id, share) for member_id, share in result.changed.items()
    ]
    values.append(records.TargetEpochReached(group_id, epoch, turn.now_ms, name))
    return Decision(
        records=tuple(Record(shard.key, value, cause="assign") for value in values),
        effects=(CancelTimer(timer_of_target(group_id)), GroupNews(group_id)),
        events=(TargetComputed(group_id, epoch, name, len(result.changed), away_us),),
    )
