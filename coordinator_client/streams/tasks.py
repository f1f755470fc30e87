"""Tasks of a member of a streams group, and the callbacks that report their changes.

A task processes one partition of each source of its subtopology. It is active at one member of the group. Standby and
warm-up tasks keep copies of its state elsewhere.

Source: KIP-1071, spec groups 6.6.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple, Protocol

from coordinator_api.v1 import group_pb2 as group


class Task(NamedTuple):
    """One task. It equals the plain pair `(subtopology_id, partition)`, which may be passed instead."""

    subtopology_id: str
    partition: int


class TaskRole(StrEnum):
    """Role of a member for a task."""

    ACTIVE = "active"
    """It processes the task, and commits its offsets."""
    STANDBY = "standby"
    """It keeps a copy of the state of the task, to take over."""
    WARMUP = "warmup"
    """It restores the state of the task, and becomes active once it has caught up."""


@dataclass(frozen=True, slots=True)
class Tasks:
    """Tasks by role."""

    active: frozenset[Task] = frozenset()
    standby: frozenset[Task] = frozenset()
    warmup: frozenset[Task] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.active or self.standby or self.warmup)

    def __iter__(self) -> Iterator[Task]:
        """Iterate over the tasks of all roles, in order."""
        return iter(sorted(self.active | self.standby | self.warmup))


Roles = Mapping[Task, TaskRole]
NO_ROLES: Final[Roles] = {}


def tasks_of(roles: Roles) -> Tasks:
    """Return the tasks by role."""
    found: dict[TaskRole, set[Task]] = {role: set() for role in TaskRole}
    for task, role in roles.items():
        found[role].add(task)
    return Tasks(*(frozenset(found[role]) for role in TaskRole))


def roles_of(given: group.StreamsTasks) -> Roles:
    """Return the role of each task in an assignment."""
    parts = ((given.active, TaskRole.ACTIVE), (given.standby, TaskRole.STANDBY), (given.warmup, TaskRole.WARMUP))
    return {
        Task(each.subtopology_id, partition): role
        for part, role in parts
        for each in part
        for partition in each.partitions
    }


def fill_tasks(message: group.StreamsTasks, roles: Roles) -> None:
    """Write the tasks that a member has into a request; none are written as an empty message."""
    message.SetInParent()
    parts = {TaskRole.ACTIVE: message.active, TaskRole.STANDBY: message.standby, TaskRole.WARMUP: message.warmup}
    for task in sorted(roles):
        part = parts[roles[task]]
        if not part or part[-1].subtopology_id != task.subtopology_id:
            part.add(subtopology_id=task.subtopology_id)
        part[-1].partitions.append(task.partition)


class TaskListener:
    """Callbacks for a `StreamsClient`."""

    def on_tasks_assigned(self, tasks: Tasks) -> None:
        """React to tasks that are new, or have a new role. A standby or warm-up task that becomes active keeps its
        state."""

    def on_tasks_revoked(self, tasks: Tasks) -> None:
        """React to tasks that are about to be revoked. They still belong to this member: commit the open transaction,
        and close them. Another member gets them after this call."""

    def on_tasks_lost(self, tasks: Tasks) -> None:
        """React to tasks that are already lost: nothing can be committed for them, so abort the open transaction. By
        default it calls `on_tasks_revoked`."""
        self.on_tasks_revoked(tasks)


class AsyncTaskListener:
    """Callbacks for an `AsyncStreamsClient`."""

    async def on_tasks_assigned(self, tasks: Tasks) -> None:
        """React to tasks that are new, or have a new role; see `TaskListener.on_tasks_assigned`."""

    async def on_tasks_revoked(self, tasks: Tasks) -> None:
        """React to tasks that are about to be revoked; see `TaskListener.on_tasks_revoked`."""

    async def on_tasks_lost(self, tasks: Tasks) -> None:
        """React to tasks that are already lost; see `TaskListener.on_tasks_lost`."""
        await self.on_tasks_revoked(tasks)


class AnyTaskListener(Protocol):
    """The callbacks of the application; each may return an awaitable."""

    def on_tasks_assigned(self, tasks: Tasks) -> Awaitable[None] | None: ...
    def on_tasks_revoked(self, tasks: Tasks) -> Awaitable[None] | None: ...
    def on_tasks_lost(self, tasks: Tasks) -> Awaitable[None] | None: ...
