"""Members of a streams group as programs. They get tasks, give them up, report lags and die, as threads of processes.

What a member has follows its answers. A task that it is told to give up stays with it until it says so.

Source: spec groups 6.6 to 6.8; 10.5, I1 (epochs never go back).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from coordinator_api.v1 import group_pb2
from tests.harness.streams_groups import subtopology, task_ids, tasks_of, topology
from tests.simulation.members import REBALANCE_TIMEOUT_MS, Around, Member
from tests.simulation.streams_tasks import Task, TaskTransactions

STREAMS_GROUP: Final = "streams-members"
LINES: Final = "lines"
WORDS: Final = 4
"""Number of stateful tasks: enough for some to move, by warm-ups, to a process that comes back."""
TOPOLOGY: Final = topology(
    subtopology("map", LINES, sinks=["by-word"]),
    subtopology("count", changelogs=["counts"], repartition={"by-word": WORDS}),
)
"""A word count: stateless tasks, as many as the topic has partitions, and stateful ones."""
STATEFUL: Final = "count"
ACTIVE, STANDBY, WARMUP = "active", "standby", "warmup"
_NEW_LAG: Final = 100
_CAUGHT_UP_PER_REPORT: Final = 40
_HANG_SHARE: Final = 0.1
_SILENT_ACTS_MAX: Final = 20

Has = dict[Task, str]
"""Role of each task."""


class Process:
    """One process. Its threads have one process id until it dies."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lives = 0
        self.threads: list[StreamsThread] = []

    @property
    def process_id(self) -> str:
        return f"{self._name}.{self._lives}"

    def die(self) -> None:
        self._lives += 1
        for thread in self.threads:
            thread.end()


class StreamsThread(Member):
    """StreamsGroupHeartbeat; it processes its active tasks in transactions."""

    group_id = STREAMS_GROUP

    def __init__(self, around: Around, name: str, process: Process, transactions: TaskTransactions) -> None:
        super().__init__(around, name)
        self._process = process
        self._lives = 0
        self.transactions = transactions
        self.process_id = ""
        """The process with which it joined."""
        self.has: Has = {}
        self._told: Has = {}
        self._said: Has | None = None
        """Tasks that the server knows it has; None if it must say everything."""
        self._lags: dict[Task, int] = {}
        self._reports = True
        self._silent_acts = 0
        process.threads.append(self)

    @property
    def is_at_rest(self) -> bool:
        return self.epoch > 0 and self._said == self.has == self._told

    def tasks(self, role: str) -> list[Task]:
        return sorted(task for task, its_role in self.has.items() if its_role == role)

    def stateful(self) -> set[Task]:
        """Return its active tasks that have state."""
        return {task for task in self.tasks(ACTIVE) if task[0] == STATEFUL}

    def act(self) -> None:
        """Beat or process: each goes on while the other waits for its answer. Now and then the heartbeats of a thread
        hang, and it processes what it has lost."""
        if self._silent_acts > 0:
            self._silent_acts -= 1
            self.transactions.act(self)
        elif self.epoch > 0 and self._rng.random() < 0.5:
            if self._rng.random() < _HANG_SHARE:
                self._silent_acts = self._rng.randrange(_SILENT_ACTS_MAX)
            self.transactions.act(self)
        else:
            super().act()

    def commit(self) -> None:
        self.transactions.act(self)

    def start_over(self, *, keeps_id: bool = False) -> None:
        super().start_over(keeps_id=keeps_id)
        self._take({})
        self._said = None
        self.transactions.start_over()

    def on_lost(self) -> None:
        self._said = None

    def forsaken(self) -> None:
        super().forsaken()
        self.transactions.forsaken()

    def die(self) -> None:
        """The process ends, or a thread of it that is then replaced."""
        if self._rng.random() < 0.5:
            self._process.die()
        else:
            self.end()

    def end(self) -> None:
        self.give_up()
        self.start_over()
        self._silent_acts = 0
        self._reports = self._around.is_calm or self._rng.random() < 0.8

    def go_on(self) -> None:
        self._beat()

    def wait(self) -> None:
        self._beat(max_wait_ms=500)

    def leave(self) -> None:
        self._ask(self._request(-1), lambda _response: None)
        self.start_over()

    # Heartbeats

    def _beat(self, max_wait_ms: int = 0) -> None:
        if self.epoch > 0 and self._must_end_first():
            # In the end it has until the rebalance timeout, which chance could let pass.
            self.transactions.act(self, is_ending=self._around.is_calm)
            return
        self._take({task: role for task, role in self.has.items() if task in self._told})
        fields = self._news() if self.epoch > 0 else self._introduction()
        said, asked_epoch = dict(self.has), self.epoch
        if self._reports and (self.epoch == 0 or self._rng.random() < 0.5):
            fields["task_offsets"] = self._report()

        def heard(response: Any) -> None:
            if response.error_code:
                self.on_error(response.error_code)
                return
            assert response.member_epoch >= asked_epoch, f"I1: epoch {response.member_epoch} after {asked_epoch}"
            self.epoch = response.member_epoch
            self._said = said
            if response.HasField("assignment"):
                self._told = _roles(response.assignment)
                # It still has what it must give up.
                self._take({**self.has, **self._told})

        self._ask(self._request(self.epoch, max_wait_ms=max_wait_ms, **fields), heard)

    def _must_end_first(self) -> bool:
        """Tell whether it ends its transaction before it gives up a task of that. Careless clients do not."""
        is_touched = any(task not in self._told for task in self.transactions.open)
        return is_touched and (self._around.is_calm or self._rng.random() < 0.8)

    def _introduction(self) -> dict[str, Any]:
        if not self.member_id:
            self._lives += 1
            self.member_id = f"{self.name}-{self._lives}"
        self.process_id = self._process.process_id
        self._take({})
        self._told = {}
        return {
            "rebalance_timeout_ms": REBALANCE_TIMEOUT_MS,
            "topology": TOPOLOGY,
            "owned_tasks": group_pb2.StreamsTasks(),
            "process_id": self.process_id,
        }

    def _news(self) -> dict[str, Any]:
        if self._said == self.has:
            return {}
        roles = {role: task_ids(self.tasks(role)) for role in (ACTIVE, STANDBY, WARMUP)}
        fields: dict[str, Any] = {"owned_tasks": group_pb2.StreamsTasks(**roles)}
        if self._said is None:
            fields["rebalance_timeout_ms"] = REBALANCE_TIMEOUT_MS
        return fields

    def _request(self, member_epoch: int, **fields: Any) -> group_pb2.StreamsGroupHeartbeatRequest:
        return group_pb2.StreamsGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=member_epoch,
            **fields,
        )

    def _report(self) -> group_pb2.StreamsTaskOffsets:
        """Report all stateful tasks. A copy catches up a little from one report to the next."""
        offsets = []
        for task in sorted(self._lags):
            lag = self._lags[task] = max(0, self._lags[task] - _CAUGHT_UP_PER_REPORT)
            offset = group_pb2.StreamsTaskOffset(
                subtopology_id=task[0], partition=task[1], offset=1_000 - lag, end_offset=1_000
            )
            offsets.append(offset)
        return group_pb2.StreamsTaskOffsets(offsets=offsets)

    def _take(self, has: Has) -> None:
        """Have these tasks from now on."""
        self.has = has
        self._lags = {task: self._lags.get(task, _NEW_LAG) for task in has if task[0] == STATEFUL}
        self.transactions.keep(self.tasks(ACTIVE))


def _roles(given: group_pb2.StreamsTasks) -> Has:
    """The role of each task. Violations of the message itself are found here."""
    found: Has = {}
    parts: Mapping[str, Iterable[group_pb2.StreamsTaskIds]] = {
        ACTIVE: given.active,
        STANDBY: given.standby,
        WARMUP: given.warmup,
    }
    for role, messages in parts.items():
        for task in tasks_of(messages):
            assert task not in found, f"T2: {task} is {found[task]} and {role} at one member"
            found[task] = role
    return found
