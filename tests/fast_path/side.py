"""One of two servers that live through the same, and everything that can be seen of it.

A side is a `World` behind the door that clients use: bytes of session messages go in, bytes come out. What the world
writes, answers, logs and counts is noted group by group and step by step.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

import structlog

from coordinator_api.v1 import session_pb2
from coordinator_core.assembly import Core
from coordinator_runtime.commit_groups import CommitThread
from coordinator_runtime.decision import Turn
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import CallContext
from coordinator_runtime.store import CommitGroup, Store
from coordinator_server.addresses import NodeAddress
from coordinator_server.build import METHODS_OF, SERVICES, observe
from coordinator_server.calls import Unanswered
from coordinator_server.events.recent import RecentEvents
from coordinator_server.grpc_front.session import Session, SessionLimits
from coordinator_server.grpc_front.wire.servicers import fast_methods, servicers
from coordinator_server.metrics.groups import GroupNumbers, group_gauges
from coordinator_server.metrics.partitions import LogNumbers, survey
from coordinator_server.metrics.readings import ServerNumbers
from coordinator_server.metrics.server import CallNumbers, RuntimeNumbers
from coordinator_server.metrics.transactions import TransactionNumbers
from coordinator_server.security.audit import AuditLog
from coordinator_server.traffic.admission import Admission, AdmissionLimits
from partition_log.records import PartitionGrew
from tests.fast_path.inventory import inventory
from tests.harness.gated import GatedDispatcher
from tests.harness.inside import WorldOptions
from tests.harness.shelf import MemoryShelf
from tests.harness.world import World
from txn_coordinator.records import TransactionRanThrough
from txn_coordinator.rules.transacting import steps_of

Mutation = Callable[[], AbstractContextManager[None]]
"""Changes the product while it is entered."""

CALLERS = ("User:p", "User:q")
"""Principals of the sessions."""
_MESSAGE_BYTES_MAX = 1 << 20
_PARTITIONS_MAX = 100


class Side:
    """A world, its sessions, and what came out of it since it was last looked at."""

    def __init__(self, options: WorldOptions, admission: AdmissionLimits, mutation: Mutation) -> None:
        self._admission = admission
        self._mutation = mutation
        self.noted: list[object] = []
        """Results: answers, rows of commit groups, log lines."""
        self._events: Counter[str] = Counter()
        """Number of events since the beginning, by name."""
        self.answers: list[session_pb2.SessionAnswer] = []
        """All answers so far, read."""
        self._defects: list[Exception] = []
        self._sessions: list[Session] = []
        self._shelf = MemoryShelf()
        self.world = World(options, self._shelf, self._begin_life)

    def do(self, action: Callable[[World], object]) -> None:
        """Something happens to the server that is no call."""
        with self._watched():
            action(self.world)
            self._take_answers()

    def send(self, session: int, message: bytes) -> None:
        """A message of a session arrives."""
        with self._watched():
            try:
                self._sessions[session].receive(message)
            except Unanswered as error:
                # The stream is over, and the client opens another one.
                self.noted.append(f"session {session}: {error.status} {error.message}")
                self._sessions[session].close()
                self._sessions[session] = self._new_session(session)
            self._take_answers()

    def dispatch(self, sessions: Sequence[int], message: bytes) -> None:
        """Let a message arrive behind the sessions, with calls of several of them."""
        calls = session_pb2.SessionRequest.FromString(message).calls
        contexts = [_context(session) for session in sessions]
        with self._watched():
            replies = self._dispatcher.message(
                [(call.method, call.body, context) for call, context in zip(calls, contexts, strict=True)]
            )
            for call, reply in zip(calls, replies, strict=True):
                reply.on_settled(partial(self._take_answer, call.correlation_id))

    def look(self) -> dict[str, object]:
        """Return the results since the last look, and the state of work under way."""
        noted, self.noted = self.noted, []
        runtime, groups = self.world.inside.runtime, self.world.inside.runtime.groups
        assert not self._defects, self._defects
        timers = runtime.timers
        armed = sorted(timers._armed.items(), key=lambda item: (item[1].deadline_ms, item[1].generation))
        return {
            "noted": noted,
            "events": dict(self._events),
            # The key of a call that waits is the place of its reply in memory.
            "timers": [
                (key if each.kind != "parked" else "", each.deadline_ms, each.kind, each.owner) for key, each in armed
            ],
            "decided timers": sorted(map(repr, timers._staged)),
            "parked": {repr(key): len(queue) for key, queue in runtime.parking.queues.items()},
            "groups": (groups.durable_version, len(groups.sealed), groups.undurable_bytes, sorted(groups.open.shards)),
            "groups that a crash may lose": self.world.undurable_groups,
            "calls in flight": self._dispatcher.calls_in_flight(),
        }

    def holdings(self) -> dict[str, object]:
        """Everything that the shards hold."""
        return {str(key): inventory(shard) for key, shard in sorted(self.world.inside.runtime.table.served.items())}

    def numbers(self) -> dict[str, object]:
        """Everything that is counted as it happens, and what a scrape looks up."""
        core, numbers, now_ms = self.world.inside.core, self._numbers, self._clock.wall_ms()
        return {
            **numbers.transactions.readings(now_ms),
            **numbers.calls.readings(self._dispatcher.calls_in_flight()),
            **numbers.log.readings(),
            **numbers.groups.readings(),
            **numbers.runtime.readings(),
            **survey(core.runtime, core.catalog, _PARTITIONS_MAX).readings(now_ms),
            **group_gauges(core.runtime, now_ms),
            "verifications": dict(core.transactions.service.verifications),
        }

    def _begin_life(self, core: Core) -> None:
        # The last answers of a process that failed.
        self._take_answers()
        runtime, clock, store = core.runtime, core.runtime.clock, self._shelf.store
        self._note_rows(store)
        admission = Admission(self._admission, lambda: len(runtime.parking))
        self._dispatcher = GatedDispatcher(SERVICES, admission, clock, message_bytes_max=_MESSAGE_BYTES_MAX)
        numbers = ServerNumbers(
            TransactionNumbers(), CallNumbers(METHODS_OF), LogNumbers(), GroupNumbers(), RuntimeNumbers()
        )
        # It never runs: the world writes the groups.
        commits = CommitThread(store, clock, on_durable=_unused, on_failure=_unused, mark_durable=_unused)
        on_defect = runtime.on_defect
        audit = AuditLog(clock, lambda kind, **told: self.noted.append(f"audit: {kind} {told}"))
        core.loader.listen(observe(core, commits, self._dispatcher.gatekeeper, numbers, audit, RecentEvents(clock)))
        runtime.on_defect = on_defect
        numbers.calls.on_defect = self._defects.append
        self._numbers = numbers
        observe_event = runtime.on_event

        def on_event(event: object, turn: Turn) -> None:
            self._count(event, turn)
            observe_event(event, turn)

        runtime.on_event = on_event
        self._dispatcher.open(servicers(core, NodeAddress(1, "h", 1)), fast_methods(core))
        self._clock = clock
        self._sessions = [self._new_session(number) for number in range(len(CALLERS))]

    def _new_session(self, number: int) -> Session:
        return Session(self._dispatcher, self._clock, _context(number), SessionLimits())

    def _count(self, event: object, turn: Turn) -> None:
        """The fast path tells of several transactions of a partition at once."""
        match event:
            case TransactionRanThrough():
                self._events.update(repr((step, turn)) for step in steps_of(event))
            case PartitionGrew():
                about = f"{event.ordinal} {event.outcome}"
                self._events[f"{about} records"] += event.record_count
                self._events[f"{about} bytes"] += event.size_bytes
                self._events[f"{about} marker bytes"] += event.marker_bytes
                self._events[f"{about} markers"] += 0 if event.outcome is None else event.marker_count
            case _:
                self._events[repr((event, turn))] += 1

    def _note_rows(self, store: Store) -> None:
        """Note every commit group that is written from now on: its rows, whatever the order in which they were staged,
        and what counts as its size."""
        write = store.write

        def noting(groups: list[CommitGroup]) -> None:
            for group in groups:
                rows = {(family, key): value for family, key, value in group.mutations}
                self.noted.append((group.version, rows, group.deleted_ranges, group.size_bytes))
            write(groups)

        store.write = noting  # type: ignore[method-assign,assignment]  # of this one store

    def _take_answers(self) -> None:
        for number, session in enumerate(self._sessions):
            while (body := session.take()) is not None:
                self.noted.append((number, body))
                self.answers += session_pb2.SessionResponse.FromString(body).answers

    def _take_answer(self, correlation_id: int, reply: Pending[bytes]) -> None:
        self.noted.append((correlation_id, reply.result()))
        self.answers.append(session_pb2.SessionAnswer(correlation_id=correlation_id, body=reply.result()))

    @contextmanager
    def _watched(self) -> Iterator[None]:
        steps = logging.getLogger("transactions")
        level = steps.level
        # Every step of a transaction has a line then.
        steps.setLevel(logging.DEBUG)
        try:
            with structlog.testing.capture_logs() as lines, self._mutation():
                yield
        finally:
            steps.setLevel(level)
        # Two exceptions that say the same are not equal.
        self.noted += [{**line, "exc_info": repr(line.get("exc_info"))} for line in lines]


def _context(session: int) -> CallContext:
    return CallContext(principal=CALLERS[session], host=f"10.0.0.{session}", connection=session)


def _unused(_of: Any) -> None:
    raise AssertionError("the commit thread never runs")
