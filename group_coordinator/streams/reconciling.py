"""Steps of a member towards its target.

A task becomes active at a member only if two things hold. No other member has it active, and no other member of its
process has it in any role. A standby or warm-up task needs the second alone.

A member that must give up a task holds it until it confirms that, or is gone. So a task is active once, and a process
has one copy of it.

A standby or warm-up task becomes active at its own member in one step, because its client keeps the state. A member
whose standby takes over need not confirm anything first. Until the task is free, it stays what it is.

Source: KIP-1071, spec groups 3.6, 6.8.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from group_coordinator.members import MemberState
from group_coordinator.streams.state import Roles, StreamsAssignment, TaskId, TaskSet


class TaskDestination(Struct, frozen=True, kw_only=True):
    """Target that a member moves to."""

    epoch: int
    """Assignment epoch of the target."""
    roles: Roles
    has_no_owner: Callable[[TaskId], bool]
    """True for a task that no other member has active."""
    is_not_in_process: Callable[[TaskId], bool]
    """True for a task that no other member of the process has."""


def reconcile(current: StreamsAssignment, destination: TaskDestination, owned: Roles | None) -> StreamsAssignment:
    """Return the assignment after the member's next step; the same object if there is none.

    `owned` is None if the client did not send its tasks.
    """
    match current.state:
        case MemberState.STABLE:
            if current.member_epoch == destination.epoch:
                return current
        case MemberState.UNREVOKED:
            if owned is None or owned.meets(current.pending_revocation):
                return current
        case MemberState.UNRELEASED:
            pass
        case MemberState.UNKNOWN:
            # The member joins again, or shows that it has nothing. Until it confirms that, it may have everything.
            current = replace(current, assigned=_everything(current), pending_revocation=Roles())
    after = _step(current, destination, owned)
    return current if after == current else after


def _everything(current: StreamsAssignment) -> Roles:
    pairs = zip(current.assigned.sets(), current.pending_revocation.sets(), strict=True)
    return Roles(*(assigned | pending for assigned, pending in pairs))


def _step(current: StreamsAssignment, destination: TaskDestination, owned: Roles | None) -> StreamsAssignment:
    target = destination.roles
    kept, revoked = _split(current.assigned, target)
    before = current.member_epoch
    if revoked and (owned is None or owned.meets(revoked)):
        return StreamsAssignment(
            member_epoch=before,
            previous_member_epoch=before,
            state=MemberState.UNREVOKED,
            assigned=kept,
            pending_revocation=revoked,
            active_since={task: current.active_since[task] for task in kept.active | revoked.active},
        )
    active = kept.active | _free(target.active - kept.active, destination.has_no_owner, destination.is_not_in_process)
    copies = _copies(kept, target, active, destination)
    assigned = Roles(active, *copies)
    return StreamsAssignment(
        member_epoch=destination.epoch,
        previous_member_epoch=before,
        state=MemberState.STABLE if assigned == target else MemberState.UNRELEASED,
        assigned=assigned,
        active_since={task: current.active_since.get(task, destination.epoch) for task in active},
    )


def _split(assigned: Roles, target: Roles) -> tuple[Roles, Roles]:
    """Return the assigned tasks that may stay for now, and those that the member must give up.

    A copy stays for any role of the target. An active task stays only if it is active there: its next owner waits."""
    wanted = target.all()
    kept = Roles(assigned.active & target.active, assigned.standby & wanted, assigned.warmup & wanted)
    revoked = Roles(assigned.active - target.active, assigned.standby - wanted, assigned.warmup - wanted)
    return kept, revoked


def _copies(kept: Roles, target: Roles, active: TaskSet, destination: TaskDestination) -> tuple[TaskSet, TaskSet]:
    """Return the standby and warm-up tasks: those of the target that are free, and those that wait to become active."""
    had = kept.standby | kept.warmup
    copies = []
    for mine, wanted in ((kept.standby, target.standby), (kept.warmup, target.warmup)):
        given = (wanted & had) | _free(wanted - had - active, destination.is_not_in_process)
        copies.append(given | (mine & target.active) - active)
    standby, warmup = copies
    return standby, warmup


def _free(tasks: TaskSet, *are_free: Callable[[TaskId], bool]) -> TaskSet:
    return frozenset(task for task in tasks if all(is_free(task) for is_free in are_free))
