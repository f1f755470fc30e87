"""Rules of streams groups: pure checks of heartbeats, epochs, topologies and commits.

Source: KIP-1071, spec groups 6.6, 6.7, 3.7, 4.2 to 4.4.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.ports import Committer
from group_coordinator.consumer.rules import stale_committer, unknown_committer
from group_coordinator.members import JOIN_EPOCH, MemberState, check_beat, check_not_blank, invalid_heartbeat
from group_coordinator.state import PartitionKey
from group_coordinator.streams.requests import StreamsHeartbeat
from group_coordinator.streams.state import (
    AWAY_EPOCH,
    Roles,
    StreamsAssignment,
    StreamsEpochs,
    StreamsGroupState,
    StreamsMember,
    TaskId,
)
from group_coordinator.streams.topology import TASKS_MAX, Configured, Topology, check_topology

_PORT_MAX = 65_535


def counted_group_state(epochs: StreamsEpochs, topology: Topology, members: int, settled: int) -> StreamsGroupState:
    """Return the state of a group from the number of its members, and of those that hold their part of the target."""
    if not members:
        return StreamsGroupState.EMPTY
    if epochs.validated_topology_epoch != topology.epoch:
        return StreamsGroupState.NOT_READY
    if epochs.group_epoch > epochs.assignment_epoch:
        return StreamsGroupState.ASSIGNING
    return StreamsGroupState.STABLE if settled == members else StreamsGroupState.RECONCILING


# Checks of heartbeats


def check_heartbeat(request: StreamsHeartbeat) -> None:
    """Raise Refused unless this is a valid heartbeat: INVALID_GROUP_ID, INVALID_REQUEST, STREAMS_INVALID_TOPOLOGY,
    INVALID_TOPIC_EXCEPTION (spec groups 6.7)."""
    if not request.member_id.strip():
        raise invalid_heartbeat("member_id is blank: the client makes it, and keeps it as long as its process lives")
    tags = request.client_tags or {}
    endpoint = request.user_endpoint
    check_beat(
        request,
        (
            ("instance_id", request.instance_id),
            ("process_id", request.process_id),
            ("host of the user_endpoint", None if endpoint is None else endpoint.host),
            *(("name of a client tag", name) for name in tags),
            *(("value of a client tag", value) for value in tags.values()),
        ),
    )
    check_not_blank("instance_id", request.instance_id)
    if request.member_epoch < AWAY_EPOCH:
        raise invalid_heartbeat(
            f"member_epoch is {request.member_epoch}: 0 joins, -1 leaves, -2 is a static member's leave"
        )
    if request.member_epoch == AWAY_EPOCH and request.instance_id is None:
        raise invalid_heartbeat("member_epoch -2 is for static members: send the instance_id, or -1 to leave")
    if request.rebalance_timeout_ms is not None and request.rebalance_timeout_ms < 0:
        raise invalid_heartbeat(f"rebalance_timeout_ms is {request.rebalance_timeout_ms}; it must not be negative")
    if endpoint is not None and not (endpoint.host.strip() and 0 < endpoint.port <= _PORT_MAX):
        raise invalid_heartbeat(f"the user_endpoint has the port {endpoint.port}; give a host, and a port from 1 on")
    _check_offsets(request)
    if request.is_join:
        _check_join(request)
    elif request.topology is not None or request.process_id is not None:
        raise invalid_heartbeat("topology and process_id belong to a join: send them with member_epoch 0 only")


def _check_join(request: StreamsHeartbeat) -> None:
    if request.rebalance_timeout_ms is None:
        raise invalid_heartbeat("a join needs rebalance_timeout_ms: the time for giving up tasks")
    if request.process_id is None or not request.process_id.strip():
        raise invalid_heartbeat("a join needs process_id: the name of the process, which several members may share")
    if request.topology is None:
        raise invalid_heartbeat("a join needs the topology of the application")
    if request.owned is None or request.owned:
        raise invalid_heartbeat("a join needs owned_tasks without any task: give up all tasks first")
    check_topology(request.topology)


def _check_offsets(request: StreamsHeartbeat) -> None:
    if len(request.task_offsets or ()) > TASKS_MAX:
        raise invalid_heartbeat(f"task_offsets has more than {TASKS_MAX} tasks, the most that a group may have")
    for task, offset, end_offset in request.task_offsets or ():
        if min(task.partition, offset, end_offset) < 0:
            raise invalid_heartbeat(
                f"the task {_shown(task)} has the offset {offset} and the end offset {end_offset}; none may be negative"
            )


def check_owned(
    owned: Roles | None, topology: Topology, configured: Configured | None, current: StreamsAssignment
) -> None:
    """Raise Refused INVALID_REQUEST for a task that the topology does not have. One that the member holds may be gone
    by now, with partitions of its topics."""
    if owned is None or not owned:
        return
    known = {each.subtopology_id for each in topology.subtopologies}
    counts = None if configured is None or not configured.is_ready else configured.task_counts
    held = current.held()
    for task in owned.all() - held:
        if task.subtopology_id not in known:
            raise invalid_heartbeat(f"the topology has no subtopology {task.subtopology_id!a:.80}; send its own tasks")
        if task.partition < 0 or (counts is not None and task.partition >= counts[task.subtopology_id]):
            raise invalid_heartbeat(f"the topology has no task {_shown(task)}; send tasks that it has")


def _shown(task: TaskId) -> str:
    return f"{task.subtopology_id[:80]!a}_{task.partition}"


def check_same_topology(known: Topology, sent: Topology) -> None:
    """Raise Refused INVALID_REQUEST if a member joins with another topology that is not older than the group's."""
    if known != sent and sent.epoch >= known.epoch:
        raise invalid_heartbeat(
            f"the group has another topology, of epoch {known.epoch}, and the member sent one of epoch {sent.epoch}: "
            "stop all members first, then the next one brings its topology"
        )


def check_epoch(current: StreamsAssignment, member_epoch: int, owned: Roles | None, *, crosses: bool = False) -> None:
    """Raise Refused FENCED_MEMBER_EPOCH unless the member may go on with this epoch (spec groups 3.7, 6.7).

    The previous epoch is accepted from a member that missed one reply, if it has only tasks assigned to it. With
    `crosses` the member cannot know its epoch yet, so it need not send its tasks. A member in a state that only a newer
    server knows must show that it has nothing.
    """
    stored = current.member_epoch
    if current.state is MemberState.UNKNOWN and (owned is None or owned):
        raise Refused(
            ErrorCode.FENCED_MEMBER_EPOCH,
            "the member is stored in a state that only a newer server knows, and does not show that it has no tasks: "
            "give up all tasks and join again with epoch 0",
        )
    if member_epoch in {stored, JOIN_EPOCH}:
        return
    if stored == AWAY_EPOCH:
        why = "went for a moment"
    elif member_epoch == current.previous_member_epoch and member_epoch < stored and (crosses or owned is not None):
        if owned is None or owned.is_within(current.assigned):
            return
        why = "has tasks that are not assigned to it"
    else:
        why = "is ahead of that" if member_epoch > stored else "missed too much"
    raise Refused(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"the member is at epoch {stored} and says it is at {member_epoch}: it {why}; give up all tasks and join again "
        "with epoch 0",
    )


def is_repetition(current: StreamsAssignment, member_epoch: int) -> bool:
    """Return True for a heartbeat with the previous epoch that `check_epoch` accepted (spec groups 3.7).

    Its tasks are out of date. It is answered with the newest decision and causes no new one.
    """
    return member_epoch not in {current.member_epoch, JOIN_EPOCH} and current.state is not MemberState.UNKNOWN


# Checks of commits


def check_commit(
    member: StreamsMember | None,
    assignment: StreamsAssignment,
    committer: Committer,
    partitions: Sequence[PartitionKey],
    readers: Mapping[bytes, Sequence[str]],
    *,
    is_transactional: bool,
) -> None:
    """Raise Refused unless the member may commit these offsets.

    An older epoch is accepted for partitions of active tasks that the member has had since then (KIP-1251).

    Raises Refused: UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH, ILLEGAL_GENERATION (spec groups 4.2, 4.4).
    """
    if member is None:
        raise unknown_committer(committer)
    epoch = committer.generation_or_epoch
    if epoch == assignment.member_epoch:
        return
    if epoch < assignment.member_epoch and all(
        _has_since(assignment, epoch, readers.get(topic_id, ()), partition) for topic_id, partition in partitions
    ):
        return
    raise stale_committer(assignment.member_epoch, committer, is_generation=is_transactional)


def _has_since(assignment: StreamsAssignment, epoch: int, readers: Iterable[str], partition: int) -> bool:
    since = (assignment.active_since.get(TaskId(each, partition)) for each in readers)
    return any(given is not None and given <= epoch for given in since)


def check_fetch(member: StreamsMember | None, assignment: StreamsAssignment, committer: Committer) -> None:
    """Raise Refused unless the member may read offsets, with the errors of `check_commit` (spec groups 4.3)."""
    if member is None:
        raise unknown_committer(committer)
    if committer.generation_or_epoch != assignment.member_epoch:
        raise stale_committer(assignment.member_epoch, committer, is_generation=False)


# Static members


def away(current: StreamsAssignment) -> StreamsAssignment:
    """Return the assignment of a static member that leaves for a moment. It keeps its assigned tasks and releases those
    that it had to give up."""
    return StreamsAssignment(
        member_epoch=AWAY_EPOCH,
        previous_member_epoch=current.member_epoch,
        assigned=current.assigned,
        active_since=_kept_since(current, current.assigned),
    )


def back(left: StreamsAssignment, tasks_elsewhere: frozenset[TaskId]) -> StreamsAssignment:
    """Return the first assignment of a static member's next process: the tasks of the last one, without those that
    other members of that process have."""
    kept = Roles(*(tasks - tasks_elsewhere for tasks in left.assigned.sets()))
    return StreamsAssignment(assigned=kept, active_since=_kept_since(left, kept))


def _kept_since(current: StreamsAssignment, kept: Roles) -> dict[TaskId, int]:
    return {task: epoch for task, epoch in current.active_since.items() if task in kept.active}
