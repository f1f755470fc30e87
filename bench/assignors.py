"""Measures assignors, beside the figures of the specification (spec groups 5.8).

The figures are milliseconds of the process's CPU time with garbage collection off. Each is the lowest of several
medians, taken in rounds over all columns, because a shared machine slows down for seconds at a time. After the slash is
the figure of the specification, measured with a prototype on an idle machine of two cores. Groups:

- *full*: no member owns anything; *swapped*: one member has left and one has joined since;
- *buckets*: five sets of members, each with a fifth of the topics; *again*: nothing has changed since;
- *overlapping*: five sets of members, each with half of the topics, each shifted by a tenth of the topics.

The second table has the targets of a server's groups. They are computed on its loop if that takes at most 2 ms,
otherwise in the worker process. Then the loop only packs the task and unpacks the result.
"""

from __future__ import annotations

import asyncio
import gc
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter_ns, process_time_ns
from typing import Final

from coordinator_protocol.assignors.cooperative_sticky import assign_cooperative_sticky
from coordinator_protocol.assignors.range import assign_range
from coordinator_protocol.assignors.round_robin import assign_round_robin
from coordinator_protocol.assignors.sticky import assign_sticky
from coordinator_protocol.assignors.values import MemberSpec, Shares, TopicSpec
from coordinator_runtime.ports import TopicShape
from coordinator_runtime.timeline import Journal
from coordinator_runtime.worker import WorkerProcess
from group_coordinator.assignors import SERVER_ASSIGNORS
from group_coordinator.consumer.computing import compute, compute_away
from group_coordinator.consumer.group import ConsumerGroup
from group_coordinator.consumer.records import MemberChanged
from group_coordinator.consumer.state import ConsumerMember, MemberSubscription
from group_coordinator.consumer.targets import is_large, target_task

SETS: Final = 5
ROUNDS: Final = 5
RUNS: Final = 15
"""Number of runs in each round."""
RUNS_OF_THE_LARGEST: Final = 5
_LARGE: Final = 1_000_000
_NEWCOMER: Final = "newcomer"

Members = Mapping[str, MemberSpec[str]]
Topics = Mapping[str, TopicSpec]


@dataclass(frozen=True, slots=True)
class Size:
    """One line of the table: the size of the group, and the figures of the specification by column (ms)."""

    members: int
    partitions: int
    topics: int
    figures: Mapping[str, float]


SIZES: Final = (
    Size(10, 100, 10, {}),
    Size(
        100,
        1_000,
        10,
        {"full": 0.4, "swapped": 0.3, "range": 0.5, "buckets": 0.5, "buckets again": 0.3, "overlapping": 0.8},
    ),
    Size(
        1_000,
        10_000,
        100,
        {"full": 2.1, "swapped": 1.8, "range": 12, "buckets": 9.7, "buckets again": 6.7, "overlapping": 21},
    ),
    Size(5_000, 50_000, 100, {"full": 10, "swapped": 7.5, "buckets": 57, "buckets again": 44}),
    Size(10_000, 100_000, 1_000, {"full": 22, "swapped": 20, "buckets": 490, "buckets again": 310}),
    Size(2_000, _LARGE, 500, {"full": 218, "swapped": 142}),
)
SERVER_SIZES: Final = (SIZES[0], SIZES[1], Size(10, 1_000, 1_000, {}), SIZES[2], SIZES[3])
COLUMNS: Final = (
    "full",
    "swapped",
    "swapped cooperatively",
    "range",
    "round robin",
    "buckets",
    "buckets again",
    "overlapping",
)


def main() -> None:
    """Print the tables, line by line."""
    print(f"| members | partitions | topics | {' | '.join(COLUMNS)} |")
    print(f"|{' --- |' * (len(COLUMNS) + 3)}")
    for size in SIZES:
        found = measure(size)
        cells = [_cell(found.get(column), size.figures.get(column)) for column in COLUMNS]
        print(f"| {size.members:,} | {size.partitions:,} | {size.topics:,} | {' | '.join(cells)} |", flush=True)
    print()
    asyncio.run(_print_server_table())


def measure(size: Size) -> dict[str, float]:
    """Return milliseconds by column."""
    runs = RUNS_OF_THE_LARGEST if size.partitions >= _LARGE else RUNS
    calls = dict(_calls(size))
    rounds = [{column: median_ms(call, runs) for column, call in calls.items()} for _ in range(ROUNDS)]
    return {column: min(found[column] for found in rounds) for column in calls}


def _calls(size: Size) -> Iterator[tuple[str, Callable[[], Shares[str]]]]:
    names = [f"topic{number:04}" for number in range(size.topics)]
    topics = {name: TopicSpec(size.partitions // size.topics) for name in names}
    equal = _group(size, [frozenset(names)])
    swapped = _swapped(equal, assign_sticky(equal, topics))
    yield "full", lambda: assign_sticky(equal, topics)
    yield "swapped", lambda: assign_sticky(swapped, topics)
    yield "swapped cooperatively", lambda: assign_cooperative_sticky(swapped, topics)
    yield "range", lambda: assign_range(equal, topics)
    yield "round robin", lambda: assign_round_robin(equal, topics)
    if size.partitions >= _LARGE:
        return
    buckets = _group(size, [frozenset(names[at::SETS]) for at in range(SETS)])
    settled = _owning(buckets, assign_sticky(buckets, topics))
    tenth = size.topics // 10
    overlapping = _group(size, [frozenset(names[at * tenth : (at + SETS) * tenth]) for at in range(SETS)])
    yield "buckets", lambda: assign_sticky(buckets, topics)
    yield "buckets again", lambda: assign_sticky(settled, topics)
    yield "overlapping", lambda: assign_sticky(overlapping, topics)


@dataclass(frozen=True, slots=True)
class _Topics:
    """Implementation of `TopicMetadata`."""

    shapes: Mapping[str, TopicShape]

    def shape(self, topic: str) -> TopicShape | None:
        return self.shapes.get(topic)

    def shape_of_id(self, topic_id: bytes) -> TopicShape | None:
        return next((shape for shape in self.shapes.values() if shape.topic_id == topic_id), None)

    def topic_names(self) -> Iterable[str]:
        return self.shapes


async def _print_server_table() -> None:
    """Print milliseconds: CPU time of the computation and of packing, and the elapsed time of a run through the
    worker."""
    print("| members | partitions | topics | group | assignor | computation | leaves the loop | packing | in all |")
    print(f"|{' --- |' * 9}")
    worker = WorkerProcess()
    for size in SERVER_SIZES:
        names = [f"topic{number:04}" for number in range(size.topics)]
        each = size.partitions // size.topics
        topics = _Topics({name: TopicShape(name, name.encode().rjust(16), each) for name in names})
        for kind, subscriptions in (("full", [names]), ("buckets", [names[at::SETS] for at in range(SETS)])):
            group = _consumer_group(size, [MemberSubscription(frozenset(wanted)) for wanted in subscriptions])
            for assignor in SERVER_ASSIGNORS:
                row = await _server_row(worker, group, topics, assignor)
                head = f"{size.members:,} | {size.partitions:,} | {size.topics:,} | {kind} | {assignor}"
                print(f"| {head} | {' | '.join(row)} |", flush=True)
    worker.close()


async def _server_row(worker: WorkerProcess, group: ConsumerGroup, topics: _Topics, assignor: str) -> list[str]:
    task = target_task(group, topics, (assignor,))
    on_loop_ms = median_ms(lambda: compute(task, SERVER_ASSIGNORS[assignor]), RUNS)
    result = compute(task, SERVER_ASSIGNORS[assignor])
    task_bytes, result_bytes = pickle.dumps(task), pickle.dumps(result)
    packing_ms = median_ms(lambda: pickle.dumps(task), RUNS) + median_ms(lambda: pickle.loads(result_bytes), RUNS)
    assert pickle.loads(task_bytes) == task
    spent_ns = []
    for _ in range(RUNS_OF_THE_LARGEST):
        start_ns = perf_counter_ns()
        await worker.run(compute_away, (task, SERVER_ASSIGNORS[assignor]))
        spent_ns.append(perf_counter_ns() - start_ns)
    is_away = "yes" if is_large(group, topics) else "no"
    return [f"{on_loop_ms:.1f}", is_away, f"{packing_ms:.1f}", f"{median(spent_ns) / 1e6:.1f}"]


def _consumer_group(size: Size, subscriptions: Sequence[MemberSubscription]) -> ConsumerGroup:
    group = ConsumerGroup("bench", Journal())
    for number in range(size.members):
        member = ConsumerMember(member_id=f"member{number:05}", subscription=subscriptions[number % len(subscriptions)])
        group.replay(MemberChanged(group.group_id, member))
    return group


def _group(size: Size, subscriptions: Sequence[frozenset[str]]) -> Members:
    return {
        f"member{number:05}": MemberSpec(topics=subscriptions[number % len(subscriptions)])
        for number in range(size.members)
    }


def _owning(members: Members, shares: Shares[str]) -> dict[str, MemberSpec[str]]:
    return {name: MemberSpec(topics=known.topics, owned=shares[name]) for name, known in members.items()}


def _swapped(members: Members, shares: Shares[str]) -> Members:
    """Return the members after the first one left, and a new one joined."""
    known = _owning(members, shares)
    gone = known.pop(min(known))
    return {**known, _NEWCOMER: MemberSpec(topics=gone.topics)}


def median_ms(call: Callable[[], object], runs: int) -> float:
    """Return the median of the CPU time of calls (ms), with garbage collection off."""
    spent_ns = []
    gc.collect()
    gc.disable()
    try:
        for _ in range(runs):
            start_ns = process_time_ns()
            result = call()
            spent_ns.append(process_time_ns() - start_ns)
            del result
    finally:
        gc.enable()
    return median(spent_ns) / 1e6


def _cell(ours_ms: float | None, theirs_ms: float | None) -> str:
    ours = "-" if ours_ms is None else f"{ours_ms:.1f}"
    return ours if theirs_ms is None else f"{ours} / {theirs_ms:g}"
