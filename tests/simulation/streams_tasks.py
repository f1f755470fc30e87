"""Transactions of the threads of a streams group: each processes its active tasks and commits their offsets.

A step of a task goes from its committed offset to a later one. It writes a record that names both, in the transaction
with the offset. So the committed records of a task show each step, and two owners that process the same offset.

Source: spec groups 4.4, 6.8; 10.5, I10 (fenced commits).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, Final, Protocol

from coordinator_protocol.errors import CoordinatorError
from coordinator_protocol.marker import Outcome
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import Committer, Membership, NamedOffset
from group_coordinator.committed.requests import OffsetFetch, TxnOffsetCommit
from tests.harness.calls import called, partition_name
from tests.harness.group_calls import ANYBODY
from tests.harness.world import World
from txn_coordinator.state import Identity

Task = tuple[str, int]
DONE: Final = "tasks-done"
DONE_PARTITIONS: Final = 8
_STEPS_MAX: Final = 3
_LATE_SHARE: Final = 0.3
"""Share of offsets that are sent some time after the record of the same step."""


class ActingThread(Protocol):
    """The thread that processes."""

    member_id: str
    epoch: int


@dataclass(slots=True)
class TaskBook:
    """Tasks as all threads of a run learned of them."""

    sources: Callable[[Task], str]
    """Returns the partition that a task commits the offset of."""
    floors: dict[Task, int] = field(default_factory=dict)
    """Offset up to which a thread was told that a task is committed."""
    broken: list[AssertionError] = field(default_factory=list)
    """Promises that an answer broke."""

    def done_partition(self, task: Task) -> str:
        """Return the partition of the records of a task."""
        return f"{DONE}-{task[1] + (DONE_PARTITIONS // 2 if task[0] == 'count' else 0)}"


@dataclass(frozen=True, slots=True)
class Step:
    """Offsets of one task, from the first to be processed to the next one."""

    task: Task
    start: int
    end: int

    @property
    def text(self) -> str:
        return f"{self.task[0]}:{self.task[1]}:{self.start}:{self.end}"


def step_of(text: str) -> Step:
    subtopology_id, partition, start, end = text.split(":")
    return Step((subtopology_id, int(partition)), int(start), int(end))


class TaskTransactions:
    """Transactions of one thread. The transactional id stays when the thread starts over, so its next life fences the
    one before."""

    def __init__(self, world: World, rng: Random, book: TaskBook, *, group_id: str, name: str) -> None:
        self._world = world
        self._rng = rng
        self._book = book
        self._group_id = group_id
        self._transactional_id = name
        self._identity: Identity | None = None
        self._waiting: Pending[Any] | None = None
        self._late: Callable[[], None] | None = None
        """Sends the offset of a step, whatever has become of its task meanwhile."""
        self._kept: set[Task] = set()
        self._looking: Task | None = None
        """Task that is looked up, and was not lost since."""
        self._positions: dict[Task, int] = {}
        """Committed offset of the tasks that were looked up."""
        self.open: dict[Task, Step] = {}
        """Steps of the open transaction."""
        self.steps = 0
        """Number of steps that were told to be committed."""

    def start_over(self) -> None:
        """Forget the producer and all that it had open."""
        self._identity = self._waiting = self._late = None
        self._positions = {}
        self.open = {}

    def forsaken(self) -> None:
        """The server died: no call is answered."""
        self.start_over()

    def keep(self, tasks: Iterable[Task]) -> None:
        """Forget what is known of other tasks."""
        self._kept = {*tasks}
        if self._looking not in self._kept:
            self._looking = None
        self._positions = {task: at for task, at in self._positions.items() if task in self._kept}

    def act(self, thread: ActingThread, *, is_ending: bool = False) -> None:
        """Do the next thing: any, or what brings the open transaction to its end."""
        if self._waiting is not None:
            if self._rng.random() < 0.03:
                self.start_over()
        elif self._late is not None:
            if is_ending or self._rng.random() < 0.3:
                late, self._late = self._late, None
                late()
        elif self._identity is None:
            self._ask(self._world.init(self._transactional_id), self._on_begun)
        elif self.open and (is_ending or self._rng.random() < 0.4 or not self._free()):
            self._end(self._identity)
        elif self._free():
            self._go_on(thread, self._identity, self._rng.choice(self._free()))

    def _free(self) -> list[Task]:
        return sorted(self._kept - self.open.keys())

    def _go_on(self, thread: ActingThread, identity: Identity, task: Task) -> None:
        if task in self._positions:
            start = self._positions[task]
            self._process(thread, identity, Step(task, start, start + self._rng.randint(1, _STEPS_MAX)))
        else:
            self._look_up(thread, task)

    def _look_up(self, thread: ActingThread, task: Task) -> None:
        names = (partition_name(self._book.sources(task)),)
        fetch = OffsetFetch(self._group_id, Committer(thread.member_id, thread.epoch), names)
        floor = self._book.floors.get(task, 0)
        self._looking = task

        def heard(groups: Any) -> None:
            (found,) = groups
            if found.refusal is not None:
                return
            (fetched,) = found.offsets
            if fetched.refusal is not None:
                return
            at = 0 if fetched.offset is None else fetched.offset.committed_offset
            self._require(at >= floor, f"{task} was committed up to {floor}, and is at {at} now")
            if self._looking == task:
                self._positions[task] = at

        self._ask(called(lambda: self._world.inside.groups.offsets.fetch([fetch], ANYBODY, require_stable=True)), heard)

    def _process(self, thread: ActingThread, identity: Identity, step: Step) -> None:
        committer = Committer(thread.member_id, thread.epoch)
        offset = NamedOffset(partition_name(self._book.sources(step.task)), step.end, None, "")
        membership = Membership(self._transactional_id, *identity)
        commit = TxnOffsetCommit(self._group_id, committer, (offset,), membership)
        offsets = self._world.inside.groups.offsets

        def heard(result: Any) -> None:
            if result.error is not None:
                self._abort(identity)
                return
            # Also for a task that it has lost since: the group must refuse it.
            if self._rng.random() < _LATE_SHARE:
                self._late = send
            else:
                send()

        def send() -> None:
            self._ask(called(lambda: offsets.commit_in_transaction(commit, ANYBODY)), on_committed)

        def on_committed(results: Any) -> None:
            (refusal,) = results
            if refusal is not None:
                self._abort(identity)
            else:
                self.open[step.task] = step

        partition = self._book.done_partition(step.task)
        written = self._world.produce(self._transactional_id, identity, partition, [step.text], sequence=0)
        self._ask(written, heard)

    def _end(self, identity: Identity) -> None:
        if self._rng.random() < 0.2:
            self._abort(identity)
            return
        steps, self.open = self.open, {}
        ended = self._world.end(self._transactional_id, identity, Outcome.COMMIT)
        self._ask(ended, partial(self._on_ended, steps))

    def _abort(self, identity: Identity) -> None:
        self.open = {}
        self._positions = {}
        self._ask(self._world.end(self._transactional_id, identity, Outcome.ABORT), partial(self._on_ended, {}))

    def _on_begun(self, identity: Identity) -> None:
        self._identity = identity

    def _on_ended(self, steps: dict[Task, Step], ended: Any) -> None:
        self._identity = ended.next_identity
        self.steps += len(steps)
        for task, step in steps.items():
            self._book.floors[task] = max(self._book.floors.get(task, 0), step.end)
            if task in self._kept:
                self._positions[task] = step.end

    def _ask(self, asked: Pending[Any], heard: Callable[[Any], None]) -> None:
        self._waiting = asked

        def answered(done: Pending[Any]) -> None:
            if done is not self._waiting:
                return
            self._waiting = None
            if done.error is None:
                heard(done.result())
            elif isinstance(done.error, CoordinatorError):
                self.start_over()
            else:
                raise done.error

        asked.on_settled(answered)

    def _require(self, holds: bool, message: str) -> None:
        """Note a broken promise: a callback has no caller, so the next look raises it."""
        if not holds:
            self._book.broken.append(AssertionError(f"I10: {message}"))
