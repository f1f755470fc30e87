"""Engines that write batches to a sink while everything else goes on: runs that replace each other, zombies, tasks that
are repeated, decisions whose answers are lost.

What must hold is told by the engines' own books: of each batch readers see what one decision named, whole, in all
partitions and under one csn, or nothing; and a decision that was answered is the one.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, Final

from coordinator_protocol.errors import CoordinatorError, ErrorCode
from coordinator_protocol.marker import Outcome
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import CallContext
from partition_log.catalog.settings import RETENTION_BYTES, RETENTION_MS
from partition_log.catalog.state import NewTopic
from partition_log.requests import CreateTopics
from tests.harness.calls import called
from tests.harness.payloads import UNREADABLE_PAYLOADS
from tests.harness.world import World
from tests.simulation.history import History
from tests.simulation.passing import Passing
from tests.simulation.translation import plain_entry
from txn_coordinator.sinks.decisions import Decided, JoinedBatch
from txn_coordinator.sinks.rules import AbortRequest, CommitRequest, JoinRequest
from txn_coordinator.sinks.service import SealMember
from txn_coordinator.state import Identity

_SINK: Final = "engine/query"
_PARTITIONS: Final = ("s-0", "s-1")
_PASSING_SHARE: Final = 0.5
"""Share of the tasks that also write to the topic that may be deleted under them."""
_TIMEOUT_MS: Final = 5_000
_TASKS_MAX: Final = 4
_LEAVING_SHARE: Final = 0.05
"""Share of the acts of a task, sealed or not, in which it fails and aborts its member."""
_RUN_SHARE: Final = 0.02
"""Share of the steps in which a run starts."""
_NEWEST_SHARE: Final = 0.8
_ACTS: Final = 3
"""What engines do in one step: else hardly any batch comes as far as its decision."""
_STEPS_TO_REST: Final = 12
_SLICES: Final = 10
"""More than a sink takes that gives up its members, one slice after the other, under a wall clock that was set back."""


@dataclass(slots=True)
class _Task:
    """One attempt of a task."""

    value: str
    partitions: tuple[str, ...] = _PARTITIONS
    """Where it writes, in this order."""
    passing_id: bytes = b""
    """The id that the passing topic had when it wrote there; empty: it did not."""
    call: Pending[Any] | None = None
    transactional_id: str = ""
    identity: Identity | None = None
    written: int = 0
    is_sealed: bool = False
    is_lost: bool = False


@dataclass(slots=True)
class _Engine:
    """One run of the query."""

    run_id: str
    batch_id: int
    tasks: list[_Task] = field(default_factory=list)
    decision: tuple[_Task, ...] = ()
    """The members of the CommitBatch that is not answered yet."""
    call: Pending[Decided] | None = None
    has_lost: bool = False
    """Records of the members were deleted with their topic, durably, before this was asked."""
    is_dead: bool = False


class Sinks:
    """All engines, and their books."""

    def __init__(self, world: World, seed: int, history: History, passing: Passing, *, is_wanted: bool) -> None:
        self._world = world
        self._passing = passing
        self._rng = Random(f"sinks {seed}")
        self._leaving = Random(f"leaving {seed}")
        self._numbers = itertools.count(1)
        self._engines: list[_Engine] = []
        self._asked: defaultdict[int, list[frozenset[str]]] = defaultdict(list)
        """What each CommitBatch named, by batch."""
        self._answered: dict[int, frozenset[str]] = {}
        """What a decision was for that was answered as new, by batch."""
        self._csns: dict[int, int] = {}
        """Under which number, by batch."""
        self._history = history
        self._is_wanted = is_wanted
        self.partitions = _PARTITIONS if is_wanted else ()
        """What the engines write to."""
        if is_wanted:
            keep_all = {RETENTION_MS: "-1", RETENTION_BYTES: "-1"}
            topic = NewTopic("s", len(_PARTITIONS), UNREADABLE_PAYLOADS | keep_all)
            world.inside.topics.create_topics(CreateTopics([topic]), CallContext())
            world.settle()

    def forsaken(self) -> None:
        """The server started anew: calls that were under way are never answered."""
        for engine in self._engines:
            engine.is_dead = engine.is_dead or self._rng.random() < 0.4
            engine.call = None
            for task in engine.tasks:
                task.is_lost = task.is_lost or task.call is not None
                task.call = None

    def step(self) -> None:
        """One run does something; a replaced one seldom."""
        live = [engine for engine in self._engines if not engine.is_dead]
        if not live or self._rng.random() < _RUN_SHARE:
            live = [_Engine(f"run {next(self._numbers)}", max(self._asked, default=0))]
            self._engines += live
        for _ in range(_ACTS):
            self._act(live[-1] if self._rng.random() < _NEWEST_SHARE else self._rng.choice(live))

    def _act(self, engine: _Engine) -> None:
        if engine.decision:
            self._go_on_deciding(engine)
            return
        sealed = [task for task in engine.tasks if task.is_sealed]
        if sealed and self._rng.random() < 0.4:
            engine.decision = tuple(task for task in sealed if self._rng.random() < 0.8) or (sealed[0],)
            if self._rng.random() < 0.1:
                # A defect of the engine, which must be noticed: one that is not sealed, perhaps.
                engine.decision = tuple(task for task in engine.tasks if task.identity is not None)
            self._asked[engine.batch_id].append(frozenset(task.value for task in engine.decision))
            self._go_on_deciding(engine)
        elif len(engine.tasks) < _TASKS_MAX and self._rng.random() < 0.5:
            self._join(engine)
        elif self._rng.random() < 0.03:
            request = AbortRequest(sink=_SINK, run_id=engine.run_id, batch_id=engine.batch_id)
            self._ask(lambda service: service.abort_batch(request, CallContext()))
            engine.tasks = []
        elif engine.tasks:
            self._work(self._rng.choice(engine.tasks))

    def _ask(self, call: Callable[[Any], Pending[Any]]) -> Pending[Any]:
        return called(lambda: call(self._world.inside.core.transactions.sinks))

    def _join(self, engine: _Engine) -> None:
        number = next(self._numbers)
        task = _Task(f"b{engine.batch_id}.{number}")
        if self._passing.topic_id() and self._rng.random() < _PASSING_SHARE:
            task.partitions = (self._passing.partition, *_PARTITIONS)
        request = JoinRequest(
            sink=_SINK,
            run_id=engine.run_id,
            batch_id=engine.batch_id,
            attempt=task.value,
            txn_timeout_ms=_TIMEOUT_MS,
            request_id=number.to_bytes(16, "big"),
        )
        task.call = self._ask(lambda service: service.join_batch(request, CallContext()))
        engine.tasks.append(task)

        def answered(settled: Pending[JoinedBatch]) -> None:
            task.call = None
            try:
                joined = settled.result()
            except CoordinatorError as error:
                task.is_lost = True
                is_over = error.code in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_TXN_STATE)
                engine.is_dead = engine.is_dead or is_over
                return
            if joined.identity is None:
                engine.batch_id, engine.tasks = engine.batch_id + 1, []
            task.transactional_id, task.identity = joined.transactional_id, joined.identity

        task.call.on_settled(answered)

    def _work(self, task: _Task) -> None:
        if task.call is not None or task.identity is None or task.is_lost:
            return
        if self._leaving.random() < _LEAVING_SHARE:
            task.is_lost = True
            end = partial(self._world.end, task.transactional_id, task.identity, Outcome.ABORT)
            called(end).on_settled(lambda _settled: None)
            return
        if task.is_sealed:
            return
        if task.written < len(task.partitions):
            partition = task.partitions[task.written]
            task.call = self._world.produce(task.transactional_id, task.identity, partition, [task.value], sequence=0)
        else:
            command = SealMember(transactional_id=task.transactional_id, identity=task.identity)
            task.call = self._ask(lambda service: service.seal_member(command, CallContext()))

        def answered(settled: Pending[Any]) -> None:
            task.call = None
            try:
                result = settled.result()
            except CoordinatorError:
                task.is_lost = True
                return
            if task.written == len(task.partitions):
                task.is_sealed = True
            elif result.error is None:
                task.written += 1
                if result.name.topic_id == self._passing.topic_id():
                    task.passing_id = result.name.topic_id
            else:
                task.is_lost = True

        task.call.on_settled(answered)

    def _go_on_deciding(self, engine: _Engine) -> None:
        """Ask until it is answered: the same request, however often."""
        if engine.call is not None:
            return
        members = [task.identity for task in engine.decision if task.identity is not None]
        request = CommitRequest(sink=_SINK, run_id=engine.run_id, batch_id=engine.batch_id, members=members)
        written_to = {task.passing_id for task in engine.decision if task.passing_id}
        engine.has_lost = bool(written_to - {self._passing.topic_id()})
        engine.call = self._ask(lambda service: service.commit_batch(request, CallContext()))
        named = frozenset(task.value for task in engine.decision)

        def answered(settled: Pending[Decided]) -> None:
            engine.call = None
            try:
                decided = settled.result()
            except CoordinatorError as error:
                engine.is_dead = error.code is ErrorCode.PRODUCER_FENCED
                engine.tasks, engine.decision = [], ()
                return
            if not decided.was_committed:
                assert engine.batch_id not in self._answered, f"batch {engine.batch_id} is decided twice"
                assert not engine.has_lost, f"batch {engine.batch_id} is committed, and records of it had been deleted"
                self._answered[engine.batch_id], self._csns[engine.batch_id] = named, decided.csn
            engine.batch_id, engine.tasks, engine.decision = engine.batch_id + 1, [], ()

        engine.call.on_settled(answered)

    def check_calm(self) -> None:
        """All engines are dead, and so long that nothing of them waits for anybody."""
        if not self._is_wanted:
            return
        for _ in range(_STEPS_TO_REST):
            self._world.tick(_TIMEOUT_MS)
            for _slice in range(_SLICES):
                self._world.settle()
                self._world.tick(1)
        csns: defaultdict[int, set[int]] = defaultdict(set)
        seen: dict[str, list[str]] = {}
        for partition in _PARTITIONS:
            raw = self._world.read(partition, is_raw=True)
            self._history.sink_logs[partition] = [*map(plain_entry, raw.entries)]
            assert raw.last_stable_offset == raw.high_watermark, f"{partition}: a member pins the last stable offset"
            assert not self._world.remembered(partition), f"{partition} remembers members that are gone"
            seen[partition] = self._world.read(partition).values
            values = {entry.producer_id: entry.value for entry in raw.entries if entry.marker is None}
            for entry in raw.entries:
                if entry.marker is not None and entry.marker.outcome is Outcome.COMMIT and entry.producer_id in values:
                    csns[_batch_of(values[entry.producer_id])].add(entry.marker.csn)
        assert all(len(found) == 1 for found in csns.values()), f"one decision has one csn: {dict(csns)}"
        first, second = (sorted(values) for values in seen.values())
        assert first == second, f"part of a batch is in one partition only: {first} and {second}"
        batches: defaultdict[int, list[str]] = defaultdict(list)
        for value in first:
            batches[_batch_of(value)].append(value)
        for batch_id, values_seen in batches.items():
            found = frozenset(values_seen)
            assert len(found) == len(values_seen), f"batch {batch_id} is there twice: {values_seen}"
            assert found in self._asked[batch_id], f"batch {batch_id} has {values_seen}, which was not asked for"
        for batch_id, named in self._answered.items():
            assert frozenset(batches[batch_id]) == named, f"batch {batch_id} was committed with {sorted(named)}"
            assert csns[batch_id] <= {self._csns[batch_id]}, f"batch {batch_id} is not marked with its own csn"
        found_sinks = self._world.inside.core.transactions.sinks.describe_sinks([], CallContext())
        assert not any(each.members for each in found_sinks), "members are left undecided"


def _batch_of(value: str) -> int:
    return int(value.removeprefix("b").partition(".")[0])
