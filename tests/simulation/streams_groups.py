"""A streams group in the storm: processes with threads that share the tasks of a topology, and how it all ends.

Threads say what they have (`streams_members`). What no thread sees is here: a task is active once, and a process has
one copy of it. In the end the committed records of each task are one chain of steps: no offset was processed by two
owners.

Source: spec groups 6.6 to 6.9 (T1 to T4); 10.5: I1, I3 (owners), I7 (answers), I8 (replay), I10 (commits), I11.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any, Final

from google.protobuf.message import Message

from coordinator_api.v1 import group_pb2
from coordinator_protocol.errors import Refused
from coordinator_runtime.pending import Pending
from group_coordinator.streams.group import StreamsGroup
from partition_log.catalog.state import MorePartitions
from partition_log.requests import CreatePartitions
from partition_log.state import Isolation
from tests.harness.group_calls import ANYBODY
from tests.harness.payloads import UNREADABLE_PAYLOADS
from tests.harness.world import World
from tests.simulation.clients import Numbers
from tests.simulation.history import History
from tests.simulation.members import Around
from tests.simulation.streams_members import (
    ACTIVE,
    LINES,
    STANDBY,
    STATEFUL,
    STREAMS_GROUP,
    WARMUP,
    WORDS,
    Process,
    StreamsThread,
)
from tests.simulation.streams_tasks import DONE, DONE_PARTITIONS, Task, TaskBook, TaskTransactions, step_of
from tests.simulation.told import require

_THREADS: Final = (2, 2)
"""Number of threads of each process."""
_LINES_FIRST: Final = 2
_LINES_MAX: Final = 4
_KEPT: Final = {"retention_ms": "-1", "retention_bytes": "-1"}
_SILENCE_MS: Final = 10_000
_ROUNDS_MAX: Final = 120
_ROUND_MS: Final = 100
_LOSSY_ROUNDS: Final = 15
"""Rounds after the storm in which answers are still lost."""
_STEPS_IN_THE_END: Final = 3
"""Steps that each thread commits after the storm."""


class StreamsGroups:
    """The streams group of a run. It has no members unless wanted."""

    def __init__(self, world: World, seed: int, history: History, *, now: Callable[[], int], is_wanted: bool) -> None:
        self._world = world
        self._rng = Random(f"streams {seed}")
        self._around = Around(self._call, self._rng, history, Numbers(), now, self._call, lambda: False)
        self._book = TaskBook(_source)
        self._threads: list[StreamsThread] = []
        self._epochs = (0, 0)
        if is_wanted:
            self._gather()

    def _gather(self) -> None:
        self._world.create_topic(LINES, _LINES_FIRST)
        self._world.create_topic(DONE, DONE_PARTITIONS, config=UNREADABLE_PAYLOADS | _KEPT)
        for number, threads in enumerate(_THREADS):
            process = Process(f"p{number}")
            for thread in range(threads):
                name = f"s{number}{thread}"
                transactions = TaskTransactions(
                    self._world, self._rng, self._book, group_id=STREAMS_GROUP, name=f"{name}-tasks"
                )
                self._threads.append(StreamsThread(self._around, name, process, transactions))
        self._alter(num_standby_replicas=1, acceptable_recovery_lag=30)

    def step(self) -> None:
        """One thread does something. Groups live by time, so now and then a little of it passes."""
        draw = self._rng.random()
        if draw < 0.15:
            self._world.tick(self._rng.choice((_ROUND_MS, _ROUND_MS, 4 * _ROUND_MS)))
        elif draw < 0.17:
            self._alter(num_standby_replicas=self._rng.choice((0, 1, 2)))
        elif draw < 0.18:
            self._grow()
        self._rng.choice(self._threads).act()
        self.check()

    def forsaken(self) -> None:
        """The server is another process now."""
        for thread in self._threads:
            thread.forsaken()

    def _call(self, request: Message) -> Pending[Any]:
        return self._world.inside.group_wire.call(request)

    def _alter(self, **values: int) -> None:
        configs = [group_pb2.GroupConfig(name=f"streams_{name}", value=value) for name, value in values.items()]
        self._call(group_pb2.AlterGroupConfigsRequest(group_id=STREAMS_GROUP, set=configs))

    def _grow(self) -> None:
        with suppress(Refused):
            count = self._task_counts()["map"] + 1
            if count <= _LINES_MAX:
                asked = CreatePartitions([MorePartitions(LINES, b"", count)])
                self._world.inside.topics.create_partitions(asked, ANYBODY)

    def _task_counts(self) -> dict[str, int]:
        lines = self._world.inside.catalog.topic(LINES, b"").partition_ordinals
        return {"map": len(lines), STATEFUL: WORDS}

    # What must hold

    def check(self) -> None:
        """Raise what threads found broken. I1 of what is on disk; I3 and T2 of what members have."""
        broken = [*self._around.broken, *self._book.broken]
        if broken:
            raise broken[0]
        group = self._found()
        if group is None:
            return
        epochs = group.durable_epochs()
        now = (epochs.group_epoch, epochs.assignment_epoch)
        require(now[0] >= self._epochs[0], f"I1: group epoch {now[0]} after {self._epochs[0]}")
        require(now[1] >= self._epochs[1], f"I1: assignment epoch {now[1]} after {self._epochs[1]}")
        self._epochs = now
        self._check_owners([each for each in self._threads if each.epoch > 0 and each.member_id in group.members])

    def _check_owners(self, members: list[StreamsThread]) -> None:
        """A task is active at one member, and a process has one copy of it."""
        owners: dict[Task, str] = {}
        holders: dict[tuple[str, Task], str] = {}
        for member in members:
            for task, role in member.has.items():
                if role == ACTIVE:
                    other = owners.setdefault(task, member.name)
                    require(other == member.name, f"I3: {task} is active at {other} and {member.name}")
                other = holders.setdefault((member.process_id, task), member.name)
                require(other == member.name, f"T2: {other} and {member.name} have {task} in {member.process_id}")

    def _found(self) -> StreamsGroup | None:
        inside = self._world.inside
        shard: Any = inside.runtime.table.find(inside.groups.router.shard_key(STREAMS_GROUP))
        group = None if shard is None else shard.groups.get(STREAMS_GROUP)
        return group if isinstance(group, StreamsGroup) else None

    # The end

    def check_calm(self) -> None:
        """All members are gone after some silence, and no call waits for an answer."""
        if not self._threads:
            return
        for _ in range(2):
            self._world.tick(_SILENCE_MS)
            self._world.settle()
        for thread in self._threads:
            require(thread.waiting is None, f"I7: {thread.name} waits for an answer")
        group = self._found()
        require(group is None or not [*group.members.keys()], "I12: silent members are still there")
        self.check()

    def rest(self, crash: Callable[[], None]) -> None:
        """Members that do what they should get what they want, a restart disturbs none, and all work was done once."""
        if not self._threads:
            return
        self._alter(num_standby_replicas=1)
        for _round in range(_LOSSY_ROUNDS):
            self._round(self._threads)
        self._around.is_calm = True
        self._come_to_rest()
        before = self._shown()
        crash()
        self._world.settle()
        for thread in self._threads:
            thread.go_on()
            self._world.settle()
        require(self._is_at_rest(), f"I8: before the restart {before}, then {self._shown()}")
        require(self._shown() == before, f"I8: a restart disturbs the members: {before}, then {self._shown()}")
        self._work()
        self._lose_one()
        for task in self._all_tasks():
            self._check_chain(task)

    def _come_to_rest(self, *, without: StreamsThread | None = None) -> None:
        for _round in range(_ROUNDS_MAX):
            self._round([each for each in self._threads if each is not without])
            if self._is_at_rest(without=without):
                return
        raise AssertionError(f"I11: not at rest after {_ROUNDS_MAX} rounds: {self._shown()}")

    def _round(self, threads: list[StreamsThread]) -> None:
        """All of these say that they live, and a little time passes."""
        for thread in threads:
            thread.go_on()
            self._world.settle()
        self._world.tick(_ROUND_MS)
        self._world.settle()
        self.check()

    def _is_at_rest(self, *, without: StreamsThread | None = None) -> bool:
        group, working = self._found(), [each for each in self._threads if each is not without]
        assert group is not None, "its shard serves"
        return (
            all(each.is_at_rest and each.waiting is None and not each.tasks(WARMUP) for each in working)
            and {each.epoch for each in working} == {group.epochs.group_epoch}
            and sorted(task for each in working for task in each.tasks(ACTIVE)) == self._all_tasks()
        )

    def _all_tasks(self) -> list[Task]:
        return sorted((name, number) for name, count in self._task_counts().items() for number in range(count))

    def _shown(self) -> list[tuple[str, str, int, list[Task], list[Task]]]:
        return [
            (each.name, each.member_id, each.epoch, each.tasks(ACTIVE), each.tasks(STANDBY)) for each in self._threads
        ]

    def _work(self) -> None:
        """Every thread gets its steps through. Each stateful task has a copy in another process, and loads are even."""
        copies = Counter(task for each in self._threads for task in each.tasks(STANDBY))
        require(copies == {(STATEFUL, number): 1 for number in range(WORDS)}, f"standby tasks: {copies}")
        loads = [len(each.tasks(ACTIVE)) for each in self._threads]
        require(max(loads) - min(loads) <= 1, f"T3: {loads} active tasks")
        wanted = {each.name: each.transactions.steps + _STEPS_IN_THE_END for each in self._threads}
        for _round in range(_ROUNDS_MAX):
            for thread in self._threads:
                if thread.tasks(ACTIVE):
                    thread.transactions.act(thread)
                thread.go_on()
                self._world.settle()
            # An older transaction may have to time out before an offset is stable.
            self._world.tick(_ROUND_MS)
            self.check()
            if all(each.transactions.steps >= wanted[each.name] for each in self._threads if each.tasks(ACTIVE)):
                return
        raise AssertionError(f"I11: no work gets done: {self._shown()}")

    def _lose_one(self) -> None:
        """The others get the tasks of a member that dies, and no stateful task of their own moves."""
        lost = self._rng.choice(self._threads)
        before = {each.name: each.stateful() for each in self._threads}
        lost.end()
        self._come_to_rest(without=lost)
        for thread in self._threads:
            if thread is not lost:
                kept = before[thread.name] <= thread.stateful()
                require(kept, f"T4: {thread.name} had {before[thread.name]}, and has {thread.stateful()}")

    def _check_chain(self, task: Task) -> None:
        """The committed records of a task are one chain of steps, up to its committed offset."""
        partition = self._book.done_partition(task)
        reading = self._world.read(partition, isolation=Isolation.READ_COMMITTED)
        steps = [step_of(entry.value) for entry in reading.entries]
        at = 0
        for step in steps:
            require(step.task == task, f"{partition} has a step of {step.task}")
            require(step.start == at, f"I10: {task} went on from {step.start} when {at} was committed: {steps}")
            at = step.end
        committed = max(0, self._world.inside.groups.committed(STREAMS_GROUP, _source(task)))
        require(committed == at, f"I10: {task} has records up to {at}, and {committed} is committed")
        require(at >= self._book.floors.get(task, 0), f"{task} is at {at}, and more was told to be committed")


def _source(task: Task) -> str:
    """Return the partition that a task reads."""
    return f"{LINES if task[0] == 'map' else 'by-word'}-{task[1]}"
