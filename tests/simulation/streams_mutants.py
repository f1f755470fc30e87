"""Bugs in the placement of the tasks of streams groups. `mutants` has those of everything else."""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from coordinator_runtime.decision import Decision
from group_coordinator.committed.service import OffsetService
from group_coordinator.streams import assigning, computing, decisions, group, reconciling, removal, rules
from group_coordinator.streams.assignor import PlacedMember, _Placing
from group_coordinator.streams.requests import StreamsHeartbeat
from group_coordinator.streams.state import NO_ROLES, Roles
from tests.simulation.mutant import Mutant

_STREAMING: Final = {"streams_weight": 80.0}
_LONG: Final = {"streams_weight": 200.0, "steps": 1_200}
"""For bugs that need a member which has lost a task, and goes on with it while its next owner does."""


def give_what_another_owns(reconcile: Any, current: Any, destination: Any, owned: Any) -> Any:
    return reconcile(current, replace(destination, has_no_owner=lambda _task: True), owned)


def give_a_process_two_copies(reconcile: Any, current: Any, destination: Any, owned: Any) -> Any:
    return reconcile(current, replace(destination, is_not_in_process=lambda _task: True), owned)


def index_whatever_comes(_move: Any, index: Any, had: Any, has: Any, member_id: str) -> None:
    had, has = frozenset(had), frozenset(has)
    for key in had - has:
        if index.get(key) == member_id:
            index.remove(key)
    for key in has - had:
        index.put(key, member_id)


def free_what_is_not_given_up(step: Any, current: Any, destination: Any, _owned: Any) -> Any:
    return step(current, destination, NO_ROLES)


def take_any_commit(_check: Any, *_args: Any, **_kwargs: Any) -> None:
    return None


def fetch_what_is_pending(fetch: Any, self: OffsetService, asked: Any, context: Any, **_kwargs: Any) -> Any:
    return fetch(self, asked, context, require_stable=False)


def do_nothing(_decide: Any, *_args: Any, **_kwargs: Any) -> Decision:
    return Decision()


def leave_a_task_out(assign: Any, *args: Any) -> dict[str, Roles]:
    found: dict[str, Roles] = assign(*args)
    last = max((task for each in found.values() for task in each.active), default=None)
    return {name: replace(each, active=each.active - {last}) for name, each in found.items()}


def place_everything_anew(placed: Any, *args: Any) -> PlacedMember:
    member: PlacedMember = placed(*args)
    return replace(member, before=NO_ROLES)


def see_each_member_as_a_process(placed: Any, group_: Any, member: Any) -> PlacedMember:
    found: PlacedMember = placed(group_, member)
    return replace(found, process_id=member.member_id)


def place_no_standbys(_place: Any, *_args: Any) -> None:
    return None


def notice_no_progress(_has_caught_up: Any, *_args: Any) -> bool:
    return False


STREAMS: Final = (
    Mutant(
        "give_what_another_owns",
        "a task becomes active while another member has it active",
        ((decisions, "reconcile", give_what_another_owns), (group, "_move", index_whatever_comes)),
        _STREAMING,
    ),
    Mutant(
        "give_a_process_two_copies",
        "two members of a process have one task",
        ((decisions, "reconcile", give_a_process_two_copies), (group, "_move", index_whatever_comes)),
        _STREAMING,
    ),
    Mutant(
        "free_what_is_not_given_up",
        "a revoked task is free before its member has given it up",
        ((reconciling, "_step", free_what_is_not_given_up),),
        _STREAMING,
    ),
    Mutant(
        "take_any_commit",
        "the offset of a task is committed by a member that has lost it",
        ((rules, "check_commit", take_any_commit),),
        _LONG,
    ),
    Mutant(
        "fetch_what_is_pending",
        "a task goes on from before an offset that an open transaction commits",
        ((OffsetService, "_fetch_group", fetch_what_is_pending),),
        _STREAMING,
    ),
    Mutant(
        "never_end_a_session_of_streams",
        "a member that is gone keeps its tasks",
        ((removal, "_decide_end", do_nothing),),
        _STREAMING,
    ),
    Mutant(
        "leave_a_task_out",
        "no member gets the last task",
        ((computing, "assign_tasks", leave_a_task_out),),
        _STREAMING,
    ),
    Mutant(
        "place_everything_anew",
        "tasks move although their members stay",
        ((assigning, "_placed", place_everything_anew),),
        _STREAMING,
    ),
    Mutant(
        "see_each_member_as_a_process",
        "a standby task is placed in the process of the active one",
        ((assigning, "_placed", see_each_member_as_a_process),),
        _STREAMING,
    ),
    Mutant(
        "place_no_standbys",
        "stateful tasks have no standby",
        ((_Placing, "place_standbys", place_no_standbys),),
        _STREAMING,
    ),
    Mutant(
        "notice_no_progress",
        "a task that has warmed up never becomes active",
        ((decisions, "_has_caught_up", notice_no_progress),),
        _STREAMING,
    ),
    Mutant(
        "repeat_no_tasks",
        "a member whose answer was lost never hears of its new tasks",
        (),
        _STREAMING,
        values=((StreamsHeartbeat, "is_full", False),),
    ),
)
"""Every bug in streams groups that the simulation must catch."""
