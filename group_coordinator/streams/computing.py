"""Input of the assignor for a group, and the computation of a target, on the loop or away from it.

Source: spec groups 3.5, 5.8, 6.9; design 8.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from group_coordinator.streams.assignor import PlacedMember, SubtopologyTasks, assign_tasks
from group_coordinator.streams.state import Roles, Wishes

TASKS_ON_LOOP_MAX: Final = 150
"""Members and tasks above which a computation leaves the loop: about 2 ms (`python -m bench streams_targets`)."""


def is_large(member_count: int, task_count: int) -> bool:
    """Return True if the computation would block the loop for too long."""
    return member_count + task_count > TASKS_ON_LOOP_MAX


class TaskPlan(NamedTuple):
    """Everything that a computation needs, so that it can be done in any process."""

    group_id: str
    group_epoch: int
    members: Mapping[str, PlacedMember]
    subtopologies: tuple[SubtopologyTasks, ...]
    wishes: Wishes


class PlacedTasks(NamedTuple):
    """Result of the assignor, limited to its changes."""

    group_id: str
    group_epoch: int
    changed: Mapping[str, Roles]
    """New targets by member id. A member that is missing keeps its target."""


def place(plan: TaskPlan) -> PlacedTasks:
    """Call the assignor."""
    roles = assign_tasks(plan.members, plan.subtopologies, plan.wishes)
    changed = {member_id: each for member_id, each in roles.items() if each != plan.members[member_id].before}
    return PlacedTasks(plan.group_id, plan.group_epoch, changed)
