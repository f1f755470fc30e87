"""Handover of tasks, in an order that the application can rely on, and the callbacks that report it.

Revoked: the listener is called while the tasks still belong to the member. Then they are gone, and the group hears of
it. All of that happens while the application is in `poll` (or `close`): between two polls its tasks are its own.

Lost: the group has already taken the tasks. They are gone at once, and the listener is called with the next poll.

Assigned: the tasks are added, then the listener is called.

Every call is made in the application's thread (or task). An exception stops nothing: the other calls are made, then the
first exception is raised. `coordinator_client.consumer.handover` does the same with partitions.

Source: spec groups 6.8, 7.4.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeAlias

from coordinator_client.groups.user_calls import NAMES, UserCall
from coordinator_client.streams.tasks import NO_ROLES, AnyTaskListener, Roles, Task, Tasks, tasks_of

Then: TypeAlias = Callable[[int], None]
"""Called with the time once a step is done."""


class TaskHandover:
    """Hands the tasks of one member over."""

    def __init__(self) -> None:
        self.listener: AnyTaskListener | None = None
        self.has: Roles = NO_ROLES
        """Tasks that the member has now."""
        self.changes = 0
        """Number of changes of these tasks."""
        self._calls: deque[UserCall] = deque()
        self._then: Then | None = None
        """Called once the newest revocation is over."""
        self._revoking: frozenset[Task] = frozenset()
        """Tasks of revocations that the listener was not called for, or has not returned from."""
        self._losses = 0
        self._failure: Exception | None = None

    def take_call(self) -> UserCall | None:
        """Return the next call to make."""
        return self._calls.popleft() if self._calls else None

    def make_again(self, calls: Iterable[UserCall]) -> None:
        """Take back calls that were interrupted before they entered the application's code."""
        self._calls.extendleft(reversed([*calls]))

    def take_failure(self) -> Exception | None:
        """Return the first exception of the listener that was not raised yet."""
        failure, self._failure = self._failure, None
        return failure

    def revoke(self, tasks: Iterable[Task], then: Then) -> None:
        """Revoke these tasks in the application's thread, then call `then`. It takes the place of that of a revocation
        that is under way."""
        revoked = {task: self.has[task] for task in tasks if task not in self._revoking}
        self._revoking |= revoked.keys()
        self._then, losses = then, self._losses

        def done(now_ms: int) -> None:
            if losses != self._losses:
                return
            self._revoking -= revoked.keys()
            self._put({task: role for task, role in self.has.items() if task not in revoked})
            if not self._revoking and self._then is then:
                self._then = None
                then(now_ms)

        listener = self.listener
        self._tell(None if listener is None or not revoked else listener.on_tasks_revoked, tasks_of(revoked), done)

    def assign(self, target: Roles) -> None:
        """Have these tasks from now on, and report those that are new or have a new role."""
        new = {task: role for task, role in target.items() if self.has.get(task) is not role}
        self._put(target)
        if new and self.listener is not None:
            self._tell(self.listener.on_tasks_assigned, tasks_of(new), lambda _now_ms: None)

    def lose(self, then: Then, now_ms: int) -> None:
        """Drop all tasks at once; `then` is called after the listener."""
        lost = self.has
        self._losses += 1
        self._revoking, self._then = frozenset(), None
        self._calls = deque(call for call in self._calls if not call.is_void_after_loss)
        self._put(NO_ROLES)
        if lost and self.listener is not None:
            self._tell(self.listener.on_tasks_lost, tasks_of(lost), then, is_void_after_loss=False)
        else:
            then(now_ms)

    def _put(self, roles: Roles) -> None:
        self.changes += roles != self.has
        self.has = roles

    def _tell(
        self,
        how: Callable[[Tasks], Awaitable[None] | None] | None,
        tasks: Tasks,
        then: Then,
        *,
        is_void_after_loss: bool = True,
    ) -> None:
        def call(entered: dict[str, object]) -> Awaitable[None] | None:
            return None if how is None else how(entered.setdefault(NAMES, tasks))  # type: ignore[arg-type]

        def done(error: Exception | None, now_ms: int) -> None:
            self._failure = self._failure or error
            then(now_ms)

        self._calls.append(UserCall(call, done, is_void_after_loss))
