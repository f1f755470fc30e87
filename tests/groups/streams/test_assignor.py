"""The sticky assignor of streams groups: each task once, balanced, and with as few moves as that allows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from group_coordinator.streams.assignor import PlacedMember, SubtopologyTasks, assign_tasks
from group_coordinator.streams.state import Roles, TaskId, Wishes

Members = Mapping[str, PlacedMember]
CAUGHT_UP: Final = 0
_TAGS = st.sampled_from([(), (("rack", "east"),), (("rack", "west"),), (("rack", "east"), ("zone", "a"))])


@st.composite
def groups(draw: st.DrawFn, *, warms_up: bool = False) -> dict[str, PlacedMember]:
    """Members in a few processes. Members of one process have the same tags."""
    tags = {f"p{each}": draw(_TAGS) for each in range(5)}
    processes = draw(st.lists(st.sampled_from(sorted(tags)), min_size=1, max_size=8))
    return {
        f"m{number}": PlacedMember(process_id=process_id, tags=tags[process_id], warms_up=warms_up)
        for number, process_id in enumerate(processes)
    }


SUBTOPOLOGIES = st.lists(st.tuples(st.integers(1, 12), st.booleans()), min_size=1, max_size=3).map(
    lambda drawn: tuple(SubtopologyTasks(str(number), *each) for number, each in enumerate(drawn))
)
STANDBYS = st.integers(0, 2)


def after(members: Members, roles: Mapping[str, Roles]) -> dict[str, PlacedMember]:
    """The same members, who were given this."""
    return {member_id: replace(each, before=roles[member_id]) for member_id, each in members.items()}


def check(members: Members, subtopologies: tuple[SubtopologyTasks, ...], roles: Mapping[str, Roles]) -> None:
    every = {TaskId(each.subtopology_id, number) for each in subtopologies for number in range(each.task_count)}
    stateful = {each.subtopology_id for each in subtopologies if each.is_stateful}
    active = Counter(task for each in roles.values() for task in each.active)
    assert active == Counter(every), "T1: each task is active once"
    held = Counter(
        (members[each].process_id, task) for each, had in roles.items() for tasks in had.sets() for task in tasks
    )
    assert not held or set(held.values()) == {1}, "T2: a process has a task once"
    assert all(task.subtopology_id in stateful for each in roles.values() for task in each.standby | each.warmup)


def is_even(roles: Mapping[str, Roles]) -> bool:
    counts = [len(each.active) for each in roles.values()]
    return max(counts) - min(counts) <= 1


@given(groups(), SUBTOPOLOGIES, STANDBYS)
def test_tasks_are_spread_evenly_and_stay(
    members: dict[str, PlacedMember], subtopologies: tuple[SubtopologyTasks, ...], standbys: int
) -> None:
    wishes = Wishes(standbys, 0)
    roles = assign_tasks(members, subtopologies, wishes)
    check(members, subtopologies, roles)
    assert is_even(roles), "T3"
    again = assign_tasks(after(members, roles), subtopologies, wishes)
    assert all(again[each] is roles[each] for each in members), "T4: unchanged input gives the same output"


@given(groups(), SUBTOPOLOGIES, STANDBYS, st.data())
def test_who_leaves_moves_its_own_tasks_alone(
    members: dict[str, PlacedMember], subtopologies: tuple[SubtopologyTasks, ...], standbys: int, data: st.DataObject
) -> None:
    members["stays"] = PlacedMember(process_id="stays")
    roles = assign_tasks(members, subtopologies, Wishes(standbys, 0))
    gone = data.draw(st.sampled_from(sorted(members.keys() - {"stays"})))
    rest = {each: member for each, member in after(members, roles).items() if each != gone}
    left = assign_tasks(rest, subtopologies, Wishes(standbys, 0))
    check(rest, subtopologies, left)
    stateful = {each.subtopology_id for each in subtopologies if each.is_stateful}
    for member_id in rest:
        lost = roles[member_id].active - left[member_id].active
        # A stateless task may make room for a stateful one whose state is there.
        assert not [task for task in lost if standbys == 0 or task.subtopology_id in stateful]


@given(groups(warms_up=True), SUBTOPOLOGIES, STANDBYS, st.integers(1, 2))
def test_tasks_that_warm_up_arrive_in_the_end(
    members: dict[str, PlacedMember], subtopologies: tuple[SubtopologyTasks, ...], standbys: int, warmups: int
) -> None:
    wishes = Wishes(standbys, warmups, CAUGHT_UP)
    roles = assign_tasks(members, subtopologies, wishes)
    members = {**after(members, roles), "new": PlacedMember(process_id="new", warms_up=True)}
    for _step in range(40):
        roles = assign_tasks(members, subtopologies, wishes)
        check(members, subtopologies, roles)
        members = after(members, roles)
        again = assign_tasks(members, subtopologies, wishes)
        assert all(again[each] is roles[each] for each in members)
        warming = Counter(task for each in roles.values() for task in each.warmup)
        assert warming.total() <= warmups
        if not warming:
            break
        members = {
            member_id: replace(each, lags={**each.lags, **dict.fromkeys(roles[member_id].warmup, CAUGHT_UP)})
            for member_id, each in members.items()
        }
    else:
        raise AssertionError("there is always another one that warms up")
    assert is_even(roles)


def stateful(count: int) -> tuple[SubtopologyTasks, ...]:
    return (SubtopologyTasks("0", count, is_stateful=True),)


def test_a_task_warms_up_at_a_member_that_reports_offsets() -> None:
    """Another member of the process has a copy and reports none."""
    zero, one = TaskId("s", 0), TaskId("s", 1)
    members = {
        "silent": PlacedMember(process_id="b", before=Roles(standby=frozenset({zero, one}))),
        "old": PlacedMember(process_id="a", warms_up=True, before=Roles(active=frozenset({zero, one}))),
        "new": PlacedMember(process_id="b", warms_up=True),
    }
    roles = assign_tasks(members, (SubtopologyTasks("s", 2, True),), Wishes(warmups=2))
    assert roles["silent"].warmup == frozenset()
    assert len(roles["old"].active) == 2 - len(roles["silent"].active)
    assert roles["new"].warmup or roles["silent"].active


def test_a_standby_takes_over_from_who_is_gone() -> None:
    members = {each: PlacedMember(process_id=each) for each in "abc"}
    roles = assign_tasks(members, stateful(6), Wishes(1, 0))
    rest = {each: member for each, member in after(members, roles).items() if each != "a"}
    left = assign_tasks(rest, stateful(6), Wishes(1, 0))
    assert roles["a"].active <= frozenset().union(*(left[each].active & roles[each].standby for each in rest))


def test_the_most_caught_up_copy_takes_over() -> None:
    task = TaskId("0", 0)
    members = {
        name: PlacedMember(process_id=name, before=Roles(standby=frozenset({task})), lags={task: lag})
        for name, lag in (("a", 500), ("b", 20), ("c", 100))
    }
    assert assign_tasks(members, stateful(1), Wishes(2, 0))["b"].active == {task}


def test_standbys_are_in_other_racks_as_long_as_there_are_some() -> None:
    members = {
        f"{rack}{number}": PlacedMember(process_id=f"{rack}{number}", tags=(("rack", rack),))
        for rack in ("east", "west", "north")
        for number in range(2)
    }
    roles = assign_tasks(members, stateful(12), Wishes(2, 0))
    racks: dict[TaskId, list[str]] = {}
    for member_id, each in roles.items():
        for task in each.active | each.standby:
            racks.setdefault(task, []).append(member_id[:-1])
    assert all(sorted(where) == ["east", "north", "west"] for where in racks.values())


def test_standbys_that_are_in_few_processes_are_evened_out() -> None:
    members = {each: PlacedMember(process_id=each) for each in "ab"}
    members = after(members, assign_tasks(members, stateful(12), Wishes(1, 0)))
    roles = assign_tasks({**members, "c": PlacedMember(process_id="c")}, stateful(12), Wishes(1, 0))
    assert {name: len(each.standby) for name, each in roles.items()} == {"a": 4, "b": 4, "c": 4}


def test_no_members_have_no_tasks() -> None:
    assert assign_tasks({}, stateful(3), Wishes()) == {}
