"""One streams group: its topology, its members, and all lookups about them, live and durable.

Lookups that would need a walk over all members have an index, kept up to date in `replay`. They are the owner of a
task, its holder in a process, and the number of settled members.

Source: spec groups 6.6.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from msgspec.structs import replace

from coordinator_runtime.ports import Committer
from coordinator_runtime.timeline import Journal, TimelineMap
from group_coordinator.epoch_group import ONLY, GroupsOfKind, RebalancedGroup, is_settled
from group_coordinator.shard import GroupShard
from group_coordinator.state import GroupKind, PartitionKey
from group_coordinator.streams import records, rules
from group_coordinator.streams.requests import TaskOffset
from group_coordinator.streams.state import (
    NO_ROLES,
    NOT_YET,
    PROTOCOL_TYPE,
    Lags,
    Roles,
    StreamsAssignment,
    StreamsEpochs,
    StreamsMember,
    TaskId,
    TaskSet,
    TopologyLook,
)
from group_coordinator.streams.topology import Configured, Topology

_NO_TOPOLOGY: Final = Topology()


@dataclass(frozen=True, slots=True)
class StreamsMemberView:
    """One member as it is on disk."""

    member: StreamsMember
    assignment: StreamsAssignment
    target: Roles


class StreamsGroup(RebalancedGroup[StreamsEpochs, StreamsMember, StreamsAssignment, Roles]):
    """One streams group. Implements `group_coordinator.state.Group`. Reads are live unless named durable; only replay
    writes."""

    before_all = StreamsEpochs()
    not_yet = NOT_YET
    no_target = NO_ROLES

    def __init__(self, group_id: str, journal: Journal) -> None:
        super().__init__(group_id, journal)
        self._topology: TimelineMap[None, Topology] = TimelineMap(journal)
        self.reports: TimelineMap[str, tuple[TaskOffset, ...]] = TimelineMap(journal)
        """Newest report of offsets, by member."""
        self._look: TimelineMap[None, TopologyLook] = TimelineMap(journal)
        self._shutdown: TimelineMap[None, str] = TimelineMap(journal)
        self._delayed_until_ms: TimelineMap[None, int | None] = TimelineMap(journal)
        self._endpoint_changes: TimelineMap[None, int] = TimelineMap(journal)
        self._owners: TimelineMap[TaskId, str] = TimelineMap(journal)
        self._holders: TimelineMap[tuple[str, TaskId], str] = TimelineMap(journal)

    # Interface of all kinds of groups

    @property
    def kind(self) -> GroupKind:
        return GroupKind.STREAMS

    @property
    def protocol_type(self) -> str:
        return PROTOCOL_TYPE

    @property
    def state_name(self) -> str:
        epochs = self.durable_epochs()
        views = list(self.durable_members())
        settled = sum(is_settled(view.assignment, epochs) for view in views)
        return rules.counted_group_state(epochs, self.durable_topology(), len(views), settled).value

    @property
    def live_state_name(self) -> str:
        return rules.counted_group_state(self.epochs, self.topology, len(self.members), self.settled_count).value

    def check_commit(self, committer: Committer, partitions: Sequence[PartitionKey], *, is_transactional: bool) -> None:
        """Raise Refused: UNKNOWN_MEMBER_ID; STALE_MEMBER_EPOCH, or ILLEGAL_GENERATION in a transaction."""
        if committer.generation_or_epoch < 0:
            is_unnamed = not committer.member_id and committer.instance_id is None
            if self.is_empty or (is_transactional and is_unnamed):
                return
        rules.check_commit(
            self.members.get(committer.member_id),
            self.assignment(committer.member_id),
            committer,
            partitions,
            {} if self.configured is None else self.configured.readers,
            is_transactional=is_transactional,
        )

    def check_fetch(self, committer: Committer) -> None:
        """Raise Refused: UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH."""
        if not committer.member_id and committer.generation_or_epoch < 0:
            return
        member = self.members.get(committer.member_id)
        rules.check_fetch(member, self.assignment(committer.member_id), committer)

    def check_offset_delete(self) -> None:
        """Allow every deletion. Topics that tasks read are refused one by one."""

    def is_subscribed_to(self, topic: str) -> bool:
        """Return True while a member may run tasks that read the topic."""
        return not self.is_empty and any(topic in each.sources() for each in self.topology.subtopologies)

    def tombstones(self) -> tuple[object, ...]:
        """Return the records that remove the group with all its members (spec groups 3.3)."""
        return (
            *member_tombstones(self.group_id, [*self.members.keys()]),
            records.StreamsTargetEpochForgotten(self.group_id),
            records.StreamsTopologyForgotten(self.group_id),
            records.StreamsGroupForgotten(self.group_id),
        )

    # Looking up

    @property
    def topology(self) -> Topology:
        """The topology; one without subtopologies before the first member."""
        return self._topology.get(ONLY) or _NO_TOPOLOGY

    @property
    def look(self) -> TopologyLook | None:
        """Last comparison with the topics; None if one is due."""
        return self._look.get(ONLY)

    @property
    def configured(self) -> Configured | None:
        """The topology beside its topics, as of the last comparison."""
        look = self.look
        return None if look is None else look.configured

    @property
    def shutdown_member_id(self) -> str | None:
        """Member that wants the whole application to stop."""
        return self._shutdown.get(ONLY)

    @property
    def delayed_until_ms(self) -> int | None:
        """Wall time until which the first target waits for more members; None if it does not."""
        return self._delayed_until_ms.get(ONLY)

    @property
    def endpoint_changes(self) -> int:
        """Number of changes of endpoints and of tasks at them, since the load."""
        return self._endpoint_changes.get(ONLY) or 0

    def lags(self, member_id: str) -> Lags:
        """Return the lags that the member reported last."""
        return {each.task: max(0, each.end_offset - each.offset) for each in self.reports.get(member_id) or ()}

    def owner(self, task: TaskId) -> str | None:
        """Return the member that has the task active, or has not confirmed that it gave it up."""
        return self._owners.get(task)

    def holder(self, process_id: str, task: TaskId) -> str | None:
        """Return the member of a process that has the task in any role, or has not confirmed that it gave it up."""
        return self._holders.get((process_id, task))

    # Reading what is on disk

    def durable_topology(self) -> Topology:
        return self._topology.durable(ONLY) or _NO_TOPOLOGY

    def durable_members(self) -> Iterable[StreamsMemberView]:
        for member_id, member in self.members.durable_items():
            yield StreamsMemberView(member, self.durable_assignment(member_id), self.durable_target(member_id))

    # Replay

    def replay(self, value: object) -> None:
        match value:
            case records.StreamsAssignmentChanged(_, member_id, assignment):
                self._put_assignment(member_id, assignment)
            case records.StreamsAssignmentForgotten(_, member_id):
                self._put_assignment(member_id, None)
            case records.StreamsMemberChanged(_, member):
                self._put_member(member)
            case records.StreamsMemberForgotten(_, member_id):
                self._remove_member(member_id)
            case records.StreamsTargetChanged(_, member_id, roles):
                self.targets.put(member_id, roles)
            case records.StreamsTargetForgotten(_, member_id):
                self._remove_target(member_id)
            case records.StreamsTopologyChanged(_, topology):
                self._topology.put(ONLY, topology)
            case records.StreamsTopologyForgotten():
                self._topology.remove(ONLY)
            case _:
                self._replay_epochs(value)
                self._replay_memory(value)

    def _replay_epochs(self, value: object) -> None:
        match value:
            case records.StreamsGroupEpochBumped(_, group_epoch, metadata_hash, validated_topology_epoch):
                assert group_epoch >= self.epochs.group_epoch, "group epochs never decrease"
                bumped = replace(
                    self.epochs,
                    group_epoch=group_epoch,
                    metadata_hash=metadata_hash,
                    validated_topology_epoch=validated_topology_epoch,
                )
                self._epochs.put(ONLY, bumped)
            case records.StreamsTargetEpochReached(_, assignment_epoch, computed_ms):
                reached = replace(self.epochs, assignment_epoch=assignment_epoch, computed_ms=computed_ms)
                self._epochs.put(ONLY, reached)
            case records.StreamsTargetEpochForgotten():
                self._epochs.put(ONLY, replace(self.epochs, assignment_epoch=0, computed_ms=None))

    def _replay_memory(self, value: object) -> None:
        """Replay records that live in memory only."""
        match value:
            case records.StreamsTopicsLooked(_, look):
                self._look.put(ONLY, look)
            case records.StreamsOffsetsReported(_, member_id, offsets):
                self.reports.put(member_id, offsets)
            case records.StreamsShutdownWanted(_, member_id):
                self._shutdown.put(ONLY, member_id)
            case records.StreamsRebalanceNoted(_, started_ms):
                self._rebalance_started_ms.put(ONLY, started_ms)
            case records.StreamsFirstTargetDelayed(_, until_ms):
                self._delayed_until_ms.put(ONLY, until_ms)

    def _put_member(self, member: StreamsMember) -> None:
        before = self.members.get(member.member_id)
        assert before is None or before.process_id == member.process_id or member.member_id not in self.assignments, (
            "a member gives up its tasks before it is in another process"
        )
        self.members.put(member.member_id, member)
        self._put_instance(before, member)
        if (None if before is None else before.user_endpoint) != member.user_endpoint:
            self._note_endpoints()

    def _remove_member(self, member_id: str) -> None:
        assert member_id not in self.targets, "the target of a member goes before the member"
        member = self.members.get(member_id)
        if member is None:
            return
        self.members.remove(member_id)
        self.reports.remove(member_id)
        self._remove_instance(member)
        if member.user_endpoint is not None:
            self._note_endpoints()
        if self.is_empty:
            self._shutdown.remove(ONLY)

    def _note_endpoints(self) -> None:
        self._endpoint_changes.put(ONLY, self.endpoint_changes + 1)

    def _put_assignment(self, member_id: str, assignment: StreamsAssignment | None) -> None:
        before, after = self.assignment(member_id), NOT_YET if assignment is None else assignment
        self._count_settled(self.assignments.get(member_id), assignment)
        member = self.members.get(member_id)
        if member is not None:
            self._hand_over(before, after, member)
            if member.user_endpoint is not None and before.assigned != after.assigned:
                self._note_endpoints()
        if assignment is None:
            self.assignments.remove(member_id)
        else:
            self.assignments.put(member_id, assignment)

    def _hand_over(self, before: StreamsAssignment, after: StreamsAssignment, member: StreamsMember) -> None:
        """Update the indexes of the tasks that the member gives up, and of those that it gets."""
        _move(self._owners, _active(before), _active(after), member.member_id)
        process_id = member.process_id
        had, has = ([(process_id, task) for task in each.held()] for each in (before, after))
        _move(self._holders, had, has, member.member_id)


def _active(assignment: StreamsAssignment) -> TaskSet:
    return assignment.assigned.active | assignment.pending_revocation.active


def _move(index: TimelineMap[Any, str], had: Iterable[object], has: Iterable[object], member_id: str) -> None:
    had, has = frozenset(had), frozenset(has)
    for key in had - has:
        index.remove(key)
    for key in has - had:
        assert key not in index, f"{key} is held by {index.get(key)}, and now by {member_id}"
        index.put(key, member_id)


def member_tombstones(group_id: str, member_ids: Sequence[str]) -> list[object]:
    """Return the records that remove members, in the order that replay demands."""
    values: list[object] = []
    for member_id in member_ids:
        values += (
            records.StreamsAssignmentForgotten(group_id, member_id),
            records.StreamsTargetForgotten(group_id, member_id),
            records.StreamsMemberForgotten(group_id, member_id),
        )
    return values


class StreamsGroups(GroupsOfKind):
    """Streams groups of a shard."""

    group_class = StreamsGroup
    makes = (records.StreamsGroupEpochBumped, records.StreamsTopologyChanged, records.StreamsMemberChanged)
    moves = (
        records.StreamsMemberForgotten,
        records.StreamsTargetEpochReached,
        records.StreamsTargetEpochForgotten,
        records.StreamsTopologyForgotten,
        records.StreamsAssignmentChanged,
        records.StreamsAssignmentForgotten,
    )
    changes = (
        records.StreamsTargetChanged,
        records.StreamsTargetForgotten,
        records.StreamsTopicsLooked,
        records.StreamsOffsetsReported,
        records.StreamsShutdownWanted,
        records.StreamsRebalanceNoted,
        records.StreamsFirstTargetDelayed,
    )
    forgets = records.StreamsGroupForgotten


def find_group(shard: GroupShard, group_id: str) -> StreamsGroup | None:
    """Return the streams group; None if it does not exist or is of another kind."""
    group = shard.groups.get(group_id)
    return group if isinstance(group, StreamsGroup) else None


def the_group(shard: GroupShard, group_id: str) -> StreamsGroup:
    """Return a group that an earlier step of the same operation found or made."""
    group = find_group(shard, group_id)
    assert group is not None, f"the streams group {group_id!r} is there"
    return group
