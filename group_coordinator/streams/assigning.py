"""New epochs of a streams group, and the target for each.

A *look* compares a group with the topics of its topology and with its settings. If that or a member changed the basis
of the assignment, the group gets a new epoch. The target follows at once, or when `consumer_assignment_interval_ms` has
passed since the last one. A target whose computation would block the loop comes from another process
(`ComputeTasks`), and is used only if its group epoch is still the same. While topics are missing, the target is empty.

The first target of a new group waits for more members. Until then its members are at epoch 1, without tasks.

Source: spec groups 3.4 (steps 5 and 6), 6.7; KIP-1071.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from hashlib import blake2b

from msgspec.structs import replace

from coordinator_runtime.decision import ArmTimer, CancelTimer, Decision, Operation, Record, Turn
from group_coordinator.administration.settings import GroupSettings
from group_coordinator.epoch_group import timer_of_target
from group_coordinator.events import GroupNews, RebalanceCompleted, RebalanceStarted, TargetComputed
from group_coordinator.shard import GroupShard
from group_coordinator.streams import records
from group_coordinator.streams.assignor import STICKY, PlacedMember, SubtopologyTasks
from group_coordinator.streams.computing import PlacedTasks, TaskPlan, is_large, place
from group_coordinator.streams.group import StreamsGroup, find_group, the_group
from group_coordinator.streams.state import NO_ROLES, StreamsMember, TopologyLook, Wishes
from group_coordinator.streams.topology import Configured, configure
from group_coordinator.topics import metadata_hash, shapes_of

_RACK = "rack"
"""Name of the tag that the rack of a member counts as."""


@dataclass(frozen=True, slots=True)
class ComputeTasks:
    """Effect: compute the target of a group away from the loop, then `decide_result`."""

    group_id: str


# Epochs


def is_look_due(shard: GroupShard, group: StreamsGroup, turn: Turn) -> bool:
    """Return True if the topics or the settings may have changed since the last look. Also if the clock was set back,
    since the age of that look is then unknown."""
    look = group.look
    if look is None or not 0 <= turn.now_ms - look.looked_ms < shard.config.consumer_metadata_refresh_ms:
        return True
    # Internal topics that were missing are being made.
    return bool(look.configured.missing) or look.wishes != wishes_of(shard, group.group_id)


def wishes_of(shard: GroupShard, group_id: str) -> Wishes:
    """Return the settings of a group for its assignor."""
    settings = shard.part(GroupSettings).of_streams(group_id)
    return Wishes(settings.num_standby_replicas, settings.num_warmup_replicas, settings.acceptable_recovery_lag)


def look(shard: GroupShard, group_id: str, cause: str, *, must_bump: bool = False) -> Operation:
    """Return the operation that compares the group with its topics and settings, and gives it a new epoch and a target
    if that changed something. `must_bump`: the members did."""
    return Operation(shard.key, partial(_decide_look, group_id=group_id, cause=cause, must_bump=must_bump))


def _decide_look(shard: GroupShard, turn: Turn, *, group_id: str, cause: str, must_bump: bool) -> Decision:
    group = the_group(shard, group_id)
    topology, epochs = group.topology, group.epochs
    wishes = wishes_of(shard, group_id)
    configured = configure(topology, shard.topics.shape)
    hashed = _basis_hash(shard, group, wishes, is_ready=configured.is_ready)
    seen = records.StreamsTopicsLooked(group_id, TopologyLook(turn.now_ms, configured, wishes))
    validated = topology.epoch if configured.is_ready else -1
    looked = Decision(records=(Record(shard.key, seen, cause),))
    if not must_bump and hashed == epochs.metadata_hash and validated == epochs.validated_topology_epoch:
        return looked
    # The first epoch of a group is 2: its members are at epoch 1 until it has a target.
    group_epoch = max(epochs.group_epoch, shard.least_epoch, 1) + 1
    values: list[object] = [records.StreamsGroupEpochBumped(group_id, group_epoch, hashed, validated)]
    events: list[object] = [RebalanceStarted(group_id, group.kind, cause)]
    if group.is_empty:
        values.append(records.StreamsRebalanceNoted(group_id, None))
        events.append(rebalance_completed(group, group_epoch, turn))
    elif group.rebalance_started_ms is None:
        values.append(records.StreamsRebalanceNoted(group_id, turn.now_ms))
    return Decision(
        records=(*looked.records, *(Record(shard.key, value, cause) for value in values)),
        effects=(GroupNews(group_id),) if configured.status != _status(group.configured) else (),
        events=tuple(events),
    )


def _status(configured: Configured | None) -> object:
    return None if configured is None else configured.status


def _basis_hash(shard: GroupShard, group: StreamsGroup, wishes: Wishes, *, is_ready: bool) -> int:
    """Return a 64-bit hash that changes with the topics, the epoch of the topology and the settings. As long as topics
    are missing, all targets are empty, whichever of them are there."""
    shapes = shapes_of(group.topology.topics() if is_ready else (), shard.topics)
    basis = f"{metadata_hash(shapes)} {group.topology.epoch} {' '.join(map(str, wishes))}"
    return int.from_bytes(blake2b(basis.encode(), digest_size=8).digest(), "big")


def rebalance_completed(group: StreamsGroup, group_epoch: int, turn: Turn) -> RebalanceCompleted:
    """Return the event of a completed rebalance: every member has reached its target, or the group is empty."""
    started_ms = turn.now_ms if group.rebalance_started_ms is None else group.rebalance_started_ms
    elapsed_ms = max(0, turn.now_ms - started_ms)
    return RebalanceCompleted(group.group_id, group.kind, group_epoch, len(group.members), elapsed_ms)


def decide_topics_changed(shard: GroupShard, _turn: Turn, *, names: frozenset[str]) -> Decision:
    """Compare the groups with these topics, which were created, deleted or extended."""
    joins = [
        operation
        for group_id, group in shard.groups.items()
        if isinstance(group, StreamsGroup) and not group.is_empty and not names.isdisjoint(group.topology.topics())
        for operation in (look(shard, group_id, cause="topics changed"), assign(shard, group_id))
    ]
    return Decision(joins=tuple(joins))


# Targets


def assign(shard: GroupShard, group_id: str) -> Operation:
    """Return the operation that gives the group a target for its epoch, if it has none. It waits for the delay of the
    first target, and for the interval since the last one."""
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
    if group.epochs.assignment_epoch == 0:
        delay_ms = shard.part(GroupSettings).of_streams(group_id).initial_rebalance_delay_ms
        if delay_ms > 0:
            return _delayed(shard, group, turn, delay_ms)
    wait_ms = max(
        group.target_wait_ms(turn.now_ms, shard.config.consumer_assignment_interval_ms),
        (group.delayed_until_ms or 0) - turn.now_ms,
    )
    if wait_ms > 0:
        return Decision(effects=(ArmTimer(timer_of_target(group_id), wait_ms, assign(shard, group_id)),))
    configured = configure(group.topology, shard.topics.shape)
    if is_large(len(group.members), sum(configured.task_counts.values())):
        return _leave_the_loop(shard, group, turn)
    return _reached(shard, place(task_plan(shard, group)), turn)


def decide_target_here(shard: GroupShard, turn: Turn, *, group_id: str) -> Decision:
    """Compute the target at once and on the loop, whatever the cost, because the other process failed."""
    group = find_group(shard, group_id)
    if group is None or group.is_empty or not group.is_target_due:
        return Decision()
    return _reached(shard, place(task_plan(shard, group)), turn)


def _first_target(shard: GroupShard, group: StreamsGroup, cause: str) -> Record:
    """Return the record of an empty target for members that have no epoch yet: 0 means joining. It counts as computed
    at time 0, so that the next one need not wait."""
    first = records.StreamsTargetEpochReached(group.group_id, group.epochs.group_epoch - 1, 0)
    return Record(shard.key, first, cause)


def _delayed(shard: GroupShard, group: StreamsGroup, turn: Turn, delay_ms: int) -> Decision:
    group_id, cause = group.group_id, "first target delayed"
    until = Record(shard.key, records.StreamsFirstTargetDelayed(group_id, turn.now_ms + delay_ms), cause)
    timer = ArmTimer(timer_of_target(group_id), delay_ms, assign(shard, group_id))
    return Decision(records=(_first_target(shard, group, cause), until), effects=(timer,))


def _leave_the_loop(shard: GroupShard, group: StreamsGroup, turn: Turn) -> Decision:
    """Have the target computed in another process; members keep the current one."""
    effects = (ComputeTasks(group.group_id),)
    if group.epochs.assignment_epoch > 0:
        return Decision(effects=effects)
    return Decision(records=(_first_target(shard, group, "first target takes time"),), effects=effects)


def task_plan(shard: GroupShard, group: StreamsGroup) -> TaskPlan:
    """Return the computation that the group needs now. A member with an older topology gets no tasks, and no member
    gets any while topics of the topology are missing."""
    wishes = wishes_of(shard, group.group_id)
    topology = group.topology
    configured = configure(topology, shard.topics.shape)
    subtopologies = tuple(
        SubtopologyTasks(each.subtopology_id, configured.task_counts[each.subtopology_id], bool(each.changelogs))
        for each in topology.subtopologies
        if configured.is_ready
    )
    members = {
        member_id: _placed(group, member)
        for member_id, member in group.members.items()
        if member.topology_epoch == topology.epoch
    }
    return TaskPlan(group.group_id, group.epochs.group_epoch, members, subtopologies, wishes)


def _placed(group: StreamsGroup, member: StreamsMember) -> PlacedMember:
    tags = dict(member.client_tags)
    if member.rack_id is not None:
        tags.setdefault(_RACK, member.rack_id)
    return PlacedMember(
        process_id=member.process_id,
        tags=tuple(sorted(tags.items())),
        before=group.target(member.member_id),
        lags=group.lags(member.member_id),
        warms_up=member.reports_offsets,
    )


def decide_result(shard: GroupShard, turn: Turn, *, placed: PlacedTasks, away_us: int) -> Decision:
    """Use a target that another process computed in `away_us`. The reply is False if it came too late to be used, else
    True."""
    group = find_group(shard, placed.group_id)
    if group is None or group.epochs.group_epoch != placed.group_epoch or not group.is_target_due:
        return Decision(reply=False)
    return replace(_reached(shard, placed, turn, away_us), reply=True)


def _reached(shard: GroupShard, placed: PlacedTasks, turn: Turn, away_us: int | None = None) -> Decision:
    group_id, epoch = placed.group_id, placed.group_epoch
    group = the_group(shard, group_id)
    changed = dict(placed.changed)
    for member_id, member in group.members.items():
        if member.topology_epoch != group.topology.epoch and group.target(member_id):
            changed[member_id] = NO_ROLES
    values: list[object] = [records.StreamsTargetChanged(group_id, each, roles) for each, roles in changed.items()]
    values.append(records.StreamsTargetEpochReached(group_id, epoch, turn.now_ms))
    if group.delayed_until_ms is not None:
        values.append(records.StreamsFirstTargetDelayed(group_id, None))
    return Decision(
        records=tuple(Record(shard.key, value, cause="assign") for value in values),
        effects=(CancelTimer(timer_of_target(group_id)), GroupNews(group_id)),
        events=(TargetComputed(group_id, epoch, STICKY, len(changed), away_us),),
    )
