"""Steps of a member towards its target: what it is given at once, what it waits for, what it must give up first."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from group_coordinator.members import MemberState
from group_coordinator.streams.reconciling import TaskDestination, reconcile
from group_coordinator.streams.state import Roles, StreamsAssignment, TaskId

A, B, C = (TaskId("0", number) for number in range(3))


def roles(active: Iterable[TaskId] = (), standby: Iterable[TaskId] = (), warmup: Iterable[TaskId] = ()) -> Roles:
    return Roles(frozenset(active), frozenset(standby), frozenset(warmup))


def holding(assigned: Roles, pending: Roles | None = None) -> StreamsAssignment:
    """A member at epoch 5 with these tasks."""
    pending = pending or Roles()
    return StreamsAssignment(
        member_epoch=5,
        previous_member_epoch=4,
        state=MemberState.UNREVOKED if pending else MemberState.STABLE,
        assigned=assigned,
        pending_revocation=pending,
        active_since=dict.fromkeys(assigned.active | pending.active, 3),
    )


def to(target: Roles, *, owned_elsewhere: Iterable[TaskId] = (), in_process: Iterable[TaskId] = ()) -> TaskDestination:
    elsewhere, beside = frozenset(owned_elsewhere), frozenset(in_process)
    return TaskDestination(
        epoch=6,
        roles=target,
        has_no_owner=lambda task: task not in elsewhere,
        is_not_in_process=lambda task: task not in beside,
    )


STEPS = {
    # what it has; target, with what others have; what it says that it has: its next state, what it has then
    "free tasks are given at once": (
        holding(roles()),
        to(roles([A], [B], [C])),
        roles(),
        (MemberState.STABLE, roles([A], [B], [C]), Roles()),
    ),
    "an active task of another member is waited for": (
        holding(roles()),
        to(roles([A, B]), owned_elsewhere=[A]),
        roles(),
        (MemberState.UNRELEASED, roles([B]), Roles()),
    ),
    "a task of another member of the process is waited for": (
        holding(roles()),
        to(roles([A], [B], [C]), in_process=[A, B, C]),
        roles(),
        (MemberState.UNRELEASED, Roles(), Roles()),
    ),
    "a copy does not mind that another member is active": (
        holding(roles()),
        to(roles([], [A]), owned_elsewhere=[A]),
        roles(),
        (MemberState.STABLE, roles([], [A]), Roles()),
    ),
    "what must go is given up first": (
        holding(roles([A, B])),
        to(roles([A, C])),
        roles([A, B]),
        (MemberState.UNREVOKED, roles([A]), roles([B])),
    ),
    "who does not say what it has may still have it": (
        holding(roles([A])),
        to(roles([B])),
        None,
        (MemberState.UNREVOKED, Roles(), roles([A])),
    ),
    "what was given up already needs no step": (
        holding(roles([A, B])),
        to(roles([A, C])),
        roles([A]),
        (MemberState.STABLE, roles([A, C]), Roles()),
    ),
    "a standby becomes active in one step": (
        holding(roles([], [A])),
        to(roles([A])),
        roles([], [A]),
        (MemberState.STABLE, roles([A]), Roles()),
    ),
    "a standby stays one until its task is free": (
        holding(roles([], [A])),
        to(roles([A]), owned_elsewhere=[A]),
        roles([], [A]),
        (MemberState.UNRELEASED, roles([], [A]), Roles()),
    ),
    "a warm-up becomes a standby in one step": (
        holding(roles([], [], [A])),
        to(roles([], [A])),
        roles([], [], [A]),
        (MemberState.STABLE, roles([], [A]), Roles()),
    ),
    "an active task becomes a standby once it was given up": (
        holding(roles([A])),
        to(roles([], [A])),
        roles([A]),
        (MemberState.UNREVOKED, Roles(), roles([A])),
    ),
    "and then it is a standby": (
        holding(Roles(), roles([A])),
        to(roles([], [A])),
        roles(),
        (MemberState.STABLE, roles([], [A]), Roles()),
    ),
    "a copy must be given up as well": (
        holding(roles([], [A], [B])),
        to(roles()),
        roles([], [], [B]),
        (MemberState.UNREVOKED, Roles(), roles([], [A], [B])),
    ),
}


@pytest.mark.parametrize("name", STEPS)
def test_a_step(name: str) -> None:
    current, destination, owned, expected = STEPS[name]
    after = reconcile(current, destination, owned)
    assert (after.state, after.assigned, after.pending_revocation) == expected
    assert after.member_epoch == (5 if after.state is MemberState.UNREVOKED else 6)
    assert after.previous_member_epoch == 5
    assert after.active_since.keys() == after.assigned.active | after.pending_revocation.active
    assert all(since == (3 if task in current.active_since else 6) for task, since in after.active_since.items())


@pytest.mark.parametrize("owned", [None, roles([B])], ids=["silent", "has it"])
def test_who_has_not_given_up_yet_stays_where_it_is(owned: Roles | None) -> None:
    current = holding(roles([A]), roles([B]))
    assert reconcile(current, to(roles([A, C])), owned) is current


def test_who_has_arrived_stays_where_it_is() -> None:
    current = holding(roles([A]))
    destination = to(roles([B]))
    assert (
        reconcile(
            current,
            TaskDestination(
                epoch=5,
                roles=roles([B]),
                has_no_owner=destination.has_no_owner,
                is_not_in_process=destination.is_not_in_process,
            ),
            None,
        )
        is current
    )


def test_a_state_of_a_newer_server_ends_once_the_member_has_nothing() -> None:
    unknown = StreamsAssignment(5, 4, MemberState.UNKNOWN, roles([A]), roles([B]), {A: 3, B: 3})
    after = reconcile(unknown, to(roles([A])), roles())
    assert (after.state, after.assigned, after.pending_revocation) == (MemberState.STABLE, roles([A]), Roles())
