"""Measures the targets of streams groups: their computation, and the turns of the server's loop.

    python -m bench streams_targets

The first table has the assignor alone, in milliseconds of the process's CPU time with garbage collection off, as in
`bench.assignors`. *Full*: no member has a task; *again*: nothing has changed; *one left*: one member has left. Then
come the whole way through the worker process, and the packing, which runs on the worker's thread and holds the GIL.

The second table has a whole server in this process, without a network, and the largest group of the first table. It
shows the longest turn of the loop, by the clock and by the processor time of the loop's thread, and the time until the
target of the newest epoch is there. Each member has a process of its own, and ten subtopologies share the tasks.
"""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from time import perf_counter
from typing import Any, Final

from bench.assignors import median_ms
from bench.inside import Inside, run_inside
from bench.turn_meter import TurnMeter
from coordinator_api.v1 import group_pb2 as group
from coordinator_api.v1 import log_pb2 as log
from coordinator_runtime.worker import WorkerProcess
from group_coordinator.streams.assignor import PlacedMember, SubtopologyTasks
from group_coordinator.streams.computing import TaskPlan, is_large, place
from group_coordinator.streams.state import Wishes

_SUBTOPOLOGIES: Final = 10
_RUNS: Final = 5
_GROUP: Final = "words"
_AT_A_TIME: Final = 50
"""Number of members that send a heartbeat at the same time."""
_POLL_S: Final = 0.01
_SETTLED_S_MAX: Final = 120
_SESSION_MS: Final = 600_000
_SETTINGS: Final = {
    "group_streams_session_timeout_ms": _SESSION_MS,
    "group_streams_session_timeout_ms_max": _SESSION_MS,
    "group_streams_num_standby_replicas": 1,
    "group_streams_initial_rebalance_delay_ms": 500,
}


@dataclass(frozen=True, slots=True)
class Size:
    """Size of a group."""

    members: int
    tasks: int


SIZES: Final = (Size(10, 100), Size(100, 1_000), Size(1_000, 10_000))
_KINDS: Final = (("stateless", False, 0), ("stateful", True, 0), ("a standby each", True, 1))


def main(_arguments: Sequence[str] = ()) -> None:
    """Print both tables, line by line."""
    asyncio.run(_print_computations())
    print("\n| what happens | longest turn, ms | by processor time, ms | target there after, ms |")
    print("| --- | --- | --- | --- |")
    run_inside(lambda inside: _Story(inside, SIZES[-1]).tell(), **_SETTINGS)


# The assignor alone


async def _print_computations() -> None:
    print("| members | tasks | group | full | again | one left | leaves the loop | packing | in all |")
    print(f"|{' --- |' * 9}")
    worker = WorkerProcess()
    for size in SIZES:
        for kind, is_stateful, standbys in _KINDS:
            row = await computed(worker, size, is_stateful=is_stateful, standbys=standbys)
            print(f"| {size.members:,} | {size.tasks:,} | {kind} | {' | '.join(row)} |", flush=True)
    worker.close()


async def computed(worker: WorkerProcess, size: Size, *, is_stateful: bool, standbys: int) -> list[str]:
    """Return the cells of one group."""
    full = _plan(size, is_stateful=is_stateful, standbys=standbys)
    members = {name: PlacedMember(process_id=name, before=roles) for name, roles in place(full).changed.items()}
    again = full._replace(members=members)
    gone = min(members)
    one_left = full._replace(members={name: each for name, each in members.items() if name != gone})
    spent_ms = [median_ms(partial(place, plan), _RUNS) for plan in (full, again, one_left)]
    result = pickle.dumps(place(full))
    packing_ms = median_ms(lambda: pickle.dumps(one_left), _RUNS) + median_ms(lambda: pickle.loads(result), _RUNS)
    away_ms = []
    for _ in range(_RUNS):
        began = perf_counter()
        await worker.run(place, one_left)
        away_ms.append((perf_counter() - began) * 1_000)
    cells = [
        *(f"{each:.1f}" for each in spent_ms),
        "yes" if is_large(size.members, size.tasks) else "no",
        f"{packing_ms:.1f}",
    ]
    return [*cells, f"{median(away_ms):.1f}"]


def _plan(size: Size, *, is_stateful: bool, standbys: int) -> TaskPlan:
    members = {name: PlacedMember(process_id=name) for name in _names(size)}
    each = size.tasks // _SUBTOPOLOGIES
    parts = tuple(SubtopologyTasks(f"{number}", each, is_stateful) for number in range(_SUBTOPOLOGIES))
    return TaskPlan(_GROUP, 1, members, parts, Wishes(standbys))


def _names(size: Size) -> list[str]:
    return [f"member{number:05}" for number in range(size.members)]


# A whole server


class _Member:
    """One member, which has what it was given last."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.epoch = 0
        self.tasks = group.StreamsTasks()

    def request(self, topology: group.StreamsTopology) -> group.StreamsGroupHeartbeatRequest:
        request = group.StreamsGroupHeartbeatRequest(
            group_id=_GROUP, member_id=self.name, member_epoch=self.epoch, owned_tasks=self.tasks
        )
        if not self.epoch:
            request.topology.CopyFrom(topology)
            request.process_id, request.rebalance_timeout_ms = self.name, _SESSION_MS
        return request

    def note(self, answer: group.StreamsGroupHeartbeatResponse) -> None:
        self.epoch = answer.member_epoch
        if answer.HasField("assignment"):
            self.tasks = answer.assignment


class _Story:
    """A group that forms, that loses a member and gets it back."""

    def __init__(self, inside: Inside, size: Size) -> None:
        self._inside = inside
        self._size = size
        self._members = [_Member(name) for name in _names(size)]
        self._topology = group.StreamsTopology(
            subtopologies=[
                group.StreamsSubtopology(
                    subtopology_id=f"{number}",
                    source_topics=[f"source-{number}"],
                    state_changelog_topics=[group.StreamsInternalTopic(name=f"changelog-{number}")],
                )
                for number in range(_SUBTOPOLOGIES)
            ]
        )

    async def tell(self) -> None:
        await self._make_topics()
        await self._print(f"{self._size.members:,} members join", self._join)
        await self._print("they take their tasks", self._settle)
        await self._print("one member leaves", self._leave)
        await self._settle()
        await self._print("one member joins", self._come_back)

    async def _print(self, what: str, act: Callable[[], Awaitable[None]]) -> None:
        turns, began = TurnMeter(), perf_counter()
        await act()
        await self._target_there()
        turns.end()
        times = f"{turns.took_ms:.1f} | {turns.processor_ms:.1f} | {(perf_counter() - began) * 1_000:.0f}"
        print(f"| {what}, {self._size.tasks:,} tasks | {times} |", flush=True)

    async def _make_topics(self) -> None:
        """Make all topics, those included that the server would make."""
        partitions = self._size.tasks // _SUBTOPOLOGIES
        for number in range(_SUBTOPOLOGIES):
            for topic, config in ((f"source-{number}", {}), (f"changelog-{number}", {"cleanup_policy": "compact"})):
                new = log.NewTopic(name=topic, partition_count=partitions, config=config)
                await self._ask(log.CreateTopicsRequest(topics=[new]), log.CreateTopicsResponse)

    async def _join(self) -> None:
        await self._beat(self._members)

    async def _settle(self) -> None:
        """Let the members send heartbeats until all have their tasks."""
        async with asyncio.timeout(_SETTLED_S_MAX):
            while await self._state() != "Stable":
                await self._beat(self._members)

    async def _leave(self) -> None:
        leaver = self._members[0]
        leaver.epoch = -1
        await self._beat([leaver])
        self._members = self._members[1:]

    async def _come_back(self) -> None:
        self._members = [_Member(_names(self._size)[0]), *self._members]
        await self._beat(self._members[:1])

    async def _beat(self, members: Sequence[_Member]) -> None:
        for first in range(0, len(members), _AT_A_TIME):
            some = members[first : first + _AT_A_TIME]
            asked = [self._ask(each.request(self._topology), group.StreamsGroupHeartbeatResponse) for each in some]
            for member, answer in zip(some, await asyncio.gather(*asked), strict=True):
                member.note(answer)

    async def _target_there(self) -> None:
        """Return once the target is that of the group's epoch."""
        async with asyncio.timeout(_SETTLED_S_MAX):
            while await self._state() == "Assigning":  # noqa: ASYNC110  the server tells members, and not us
                await asyncio.sleep(_POLL_S)

    async def _state(self) -> str:
        """Return the state of the group, from the list of groups: a description would have all members."""
        found = await self._ask(group.ListGroupsRequest(), group.ListGroupsResponse)
        (listed,) = found.groups
        return str(listed.group_state)

    async def _ask(self, request: Any, answer: Any) -> Any:  # noqa: ANN401  of generated code
        name = type(request).__name__.removesuffix("Request")
        # The request was made in an earlier turn.
        await asyncio.sleep(0)
        found = answer.FromString(await self._inside.ask(name, request.SerializeToString()))
        assert not found.error_code, f"{name}: {found}"
        return found


if __name__ == "__main__":
    main()
