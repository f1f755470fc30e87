"""Calls that wait on the server while the disk is slow: none is decided again before its first decision is durable.

Clients of all kinds ask whatever can be parked, held for news, answered by another member's call or sent once more, in
any order, and nothing reaches the disk unless the schedule says so. A witness watches every operation. What it would
miss, an operation that is made anew for each attempt, shows in the answers to the members of a consumer group: each
follows them, is never fenced, and owns no partition that another one owns.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator_api.v1 import common_pb2, group_pb2
from coordinator_protocol.errors import CoordinatorError, ErrorCode
from coordinator_protocol.marker import Outcome
from coordinator_runtime.parking import WaitEnded, WaitResult
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import CallContext
from group_coordinator.config import GroupConfig
from tests.harness.calls import called
from tests.harness.decided_once import DecidedOnce
from tests.harness.inside import WorldOptions
from tests.harness.world import TransactContents, World
from txn_coordinator.config import TwoPhase
from txn_coordinator.sinks.rules import AbortRequest, CommitRequest, JoinRequest
from txn_coordinator.sinks.service import SealMember
from txn_coordinator.state import Identity

PARTITIONS = tuple(f"t-{number}" for number in range(6))
GROUPS = GroupConfig(
    initial_rebalance_delay_ms=0,
    consumer_assignment_interval_ms=0,
    session_timeout_ms_min=1,
    consumer_session_timeout_ms=600_000,
    consumer_session_timeout_ms_max=600_000,
)
"""No member expires by silence: the schedule alone decides."""
PATIENCE_MS = 600_000

CHOICES = 840
"""Numbers that a schedule may say to a client, which reads in its digits what to do and how."""

Step = tuple[str, int]


class Consumer:
    """A member of a consumer group, as a client that sends heartbeats one by one. Whatever happens to a call, it does
    what the last answer said that it heard."""

    def __init__(self, scene: Scene, name: str) -> None:
        self.scene = scene
        self.name = name
        self._lives = 0
        self._begin()

    def _begin(self) -> None:
        self._lives += 1
        self.member_id = f"{self.name}{self._lives}"
        self.epoch = 0
        self.owned: frozenset[int] = frozenset()
        self._said: frozenset[int] | None = frozenset()
        self._has_missed = False
        self._topics: tuple[str, ...] = ("t",)
        self._calls: list[Pending[Any]] = []

    def act(self, choice: int) -> None:
        waiting = [call for call in self._calls if not call.is_settled]
        if waiting and self.epoch == 0:
            return
        verb = ("overtake", "give up", "miss", "subscribe", "leave", "beat")[min(choice % 10, 5)]
        if verb in ("give up", "miss") or (verb == "leave" and self.epoch):
            # The client hears no more of what it asked, or its connection broke.
            for call in waiting:
                self._calls.remove(call)
                if verb != "miss":
                    call.cancel()
            self._has_missed |= bool(waiting)
        elif waiting and verb != "overtake":
            return
        if verb == "leave" and self.epoch:
            self.scene.ask(self._request(member_epoch=-1))
            self._begin()
        elif verb == "subscribe" and self.epoch:
            self._topics = ("t",) if len(self._topics) == 2 else ("t", "u")
            self._beat(choice, subscribed_topic_names=group_pb2.TopicNames(names=self._topics))
        else:
            self._beat(choice)

    def _beat(self, choice: int, **fields: Any) -> None:
        if self.epoch == 0 or self._has_missed:
            # It says everything, as one that joins does, and so the answer has everything.
            fields["rebalance_timeout_ms"] = PATIENCE_MS
            fields["subscribed_topic_names"] = group_pb2.TopicNames(names=self._topics)
        if self.epoch == 0 or self._has_missed or self._said != self.owned or choice // 40 % 3 == 0:
            fields["topic_partitions"] = self.scene.partition_set(self.owned)
        self._said, self._has_missed = self.owned, False
        request = self._request(member_epoch=self.epoch, max_wait_ms=(0, 5, 40, 5_000)[choice // 10 % 4], **fields)
        call = self.scene.ask(request)
        self._calls.append(call)
        call.on_settled(self._hears)

    def _request(self, **fields: Any) -> group_pb2.ConsumerGroupHeartbeatRequest:
        return group_pb2.ConsumerGroupHeartbeatRequest(group_id="consumers", member_id=self.member_id, **fields)

    def _hears(self, call: Pending[Any]) -> None:
        if call not in self._calls:
            return
        self._calls.remove(call)
        response = call.result()
        assert response.error_code == ErrorCode.NONE, f"{self.member_id} did as it was told: {response}"
        self.epoch = response.member_epoch
        if response.HasField("assignment"):
            self.owned = self.scene.numbers(response.assignment)
            self.scene.check_owners()


class Classic:
    """A member of a classic group: it joins, asks for its part, and sends heartbeats that may wait."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self._fields: dict[str, Any] = {"group_id": "classics", "member_id": "", "generation_id": -1}
        self._leader = ""
        self._next: Callable[[int], None] = self._join
        self._call: Pending[Any] | None = None

    def act(self, choice: int) -> None:
        if self._call is not None and not self._call.is_settled:
            if choice % 7:
                return
            self._call.cancel()
        self._next(choice)

    def _ask(self, request: Any, hears: Callable[[Any], None]) -> None:
        call = self._call = self.scene.ask(request)

        def settled(reply: Pending[Any]) -> None:
            if self._call is call:
                hears(reply.result())

        call.on_settled(settled)

    def _join(self, _choice: int) -> None:
        protocol = group_pb2.JoinGroupProtocol(name="range", metadata=b"m")
        request = group_pb2.JoinGroupRequest(
            group_id="classics",
            member_id=self._fields["member_id"],
            session_timeout_ms=PATIENCE_MS,
            rebalance_timeout_ms=1_000,
            protocol_type="tests",
            protocols=[protocol],
        )
        self._ask(request, self._joined)

    def _joined(self, response: Any) -> None:
        if response.error_code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            self._fields["member_id"] = response.member_id
        if response.error_code == ErrorCode.NONE:
            self._fields["generation_id"] = response.generation_id
            self._leader = response.leader
            self._next = self._sync
        elif response.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
            self._fields["member_id"] = ""

    def _sync(self, _choice: int) -> None:
        member_id = self._fields["member_id"]
        plan = [group_pb2.SyncGroupAssignment(member_id=member_id, assignment=b"all")]
        request = group_pb2.SyncGroupRequest(**self._fields, assignments=plan if self._leader == member_id else [])
        self._ask(request, self._heard)

    def _beat(self, choice: int) -> None:
        request = group_pb2.HeartbeatRequest(**self._fields, max_wait_ms=(0, 5, 5_000)[choice % 3])
        self._ask(request, self._heard)

    def _heard(self, response: Any) -> None:
        self._next = self._beat if response.error_code == ErrorCode.NONE else self._join


class Producer:
    """A transactional id whose client sends without waiting for answers, and may send all of it twice."""

    def __init__(self, scene: Scene, transactional_id: str) -> None:
        self.scene = scene
        self.transactional_id = transactional_id
        self.identity = Identity(0, 0)
        self._sequence = 0
        self._number = 0

    def act(self, choice: int) -> None:
        self._number += 1
        verbs = (self._init, self._add, self._produce, self._commit_offset, self._end, self._end, self._transact)
        for _time in range(1 + (choice % 5 == 0)):
            verbs[choice % 7](PARTITIONS[choice % 2], self._number.to_bytes(16, "big"), choice)

    def _context(self, method: str, request_id: bytes) -> CallContext:
        return CallContext(request_id=request_id, method=method)

    def _take(self, identity: Identity) -> None:
        self.identity, self._sequence = identity, 0

    def _init(self, _partition: str, request_id: bytes, _choice: int) -> None:
        context = self._context("InitProducerId", request_id)
        pending = self.scene.world.init(self.transactional_id, context, timeout_ms=PATIENCE_MS)
        self.scene.note(pending, self._take)

    def _add(self, partition: str, request_id: bytes, _choice: int) -> None:
        context = self._context("AddPartitionsToTxn", request_id)
        self.scene.note(self.scene.world.add(self.transactional_id, self.identity, [partition], context))

    def _produce(self, partition: str, request_id: bytes, _choice: int) -> None:
        context = self._context("Produce", request_id)
        world, sequence = self.scene.world, self._sequence
        call = world.produce(self.transactional_id, self.identity, partition, ["v"], sequence=sequence, context=context)
        self.scene.note(call)

    def _commit_offset(self, partition: str, request_id: bytes, choice: int) -> None:
        context = self._context("TxnOffsetCommit", request_id)
        world, name = self.scene.world, self.transactional_id
        self.scene.note(world.commit_offset(name, self.identity, "g", choice, context, partition=partition))
        self.scene.note(world.inside.groups.fetch("g", partition, require_stable=True))

    def _end(self, _partition: str, request_id: bytes, choice: int) -> None:
        outcome = Outcome.COMMIT if choice % 2 else Outcome.ABORT
        context = self._context("EndTxn", request_id)
        pending = self.scene.world.end(self.transactional_id, self.identity, outcome, context)
        self.scene.note(pending, lambda ended: self._take(ended.next_identity))

    def _transact(self, partition: str, request_id: bytes, choice: int) -> None:
        contents = TransactContents(batches=[(partition, ["v"], 0)], offsets=[("g", partition, choice)])
        context = self._context("Transact", request_id)
        pending = self.scene.world.transact(self.transactional_id, self.identity, contents, Outcome.COMMIT, context)
        self.scene.note(pending, lambda result: self._take(result.ended.next_identity))


class Sink:
    """An engine: tasks that join batches, and a driver that commits them."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self._batch_id = 0
        self._number = 0
        self._members: list[tuple[str, Identity]] = []

    def act(self, choice: int) -> None:
        self._number += 1
        verbs = (self._join, self._join, self._write_and_seal, self._commit, self._commit, self._abort)
        for _time in range(1 + (choice % 5 == 0)):
            verbs[choice % 6]()

    @property
    def _sinks(self) -> Any:
        return self.scene.world.inside.core.transactions.sinks

    def _join(self) -> None:
        batch_id = self._batch_id
        request = JoinRequest(
            sink="sink",
            run_id="run",
            batch_id=batch_id,
            attempt=str(self._number),
            txn_timeout_ms=PATIENCE_MS,
            request_id=self._number.to_bytes(16, "big"),
        )

        def joined(answer: Any) -> None:
            if answer.identity is not None and batch_id == self._batch_id:
                self._members.append((answer.transactional_id, answer.identity))

        self.scene.note(called(lambda: self._sinks.join_batch(request, CallContext(method="JoinBatch"))), joined)

    def _write_and_seal(self) -> None:
        for transactional_id, identity in dict.fromkeys(self._members):
            self.scene.note(self.scene.world.produce(transactional_id, identity, "t-2", ["v"], sequence=0))
            seal = SealMember(transactional_id=transactional_id, identity=identity)
            context = CallContext(method="SealMember")
            self.scene.note(called(partial(self._sinks.seal_member, seal, context)))

    def _commit(self) -> None:
        members = [identity for _name, identity in dict.fromkeys(self._members)]
        request = CommitRequest(sink="sink", run_id="run", batch_id=self._batch_id, members=members)

        def committed(_decided: object) -> None:
            self._batch_id, self._members = request.batch_id + 1, []

        pending = called(lambda: self._sinks.commit_batch(request, CallContext(method="CommitBatch")))
        self.scene.note(pending, committed)

    def _abort(self) -> None:
        request = AbortRequest(sink="sink", run_id="run", batch_id=self._batch_id)
        self._members = []
        self.scene.note(called(lambda: self._sinks.abort_batch(request, CallContext(method="AbortBatch"))))


class Scene:
    """The server, its clients, and a disk that does nothing by itself."""

    def __init__(self) -> None:
        self.world = World(WorldOptions(two_phase=TwoPhase.SPLIT, group_config=GROUPS))
        self.world.create_topic("t", len(PARTITIONS))
        self.world.create_topic("u", 1)
        runtime = self.world.inside.runtime
        self.witness = DecidedOnce(runtime)
        self.parked: set[str] = set()
        runtime.parking.on_wait_ended = self._on_wait_ended
        self.calls: list[Pending[Any]] = []
        self.consumers = [Consumer(self, name) for name in "abc"]
        self.clients: dict[str, Any] = {
            **{f"consumer {consumer.name}": consumer for consumer in self.consumers},
            "classic x": Classic(self),
            "classic y": Classic(self),
            "producer p": Producer(self, "p"),
            "producer q": Producer(self, "q"),
            "sink": Sink(self),
        }

    def _on_wait_ended(self, wait: WaitEnded) -> None:
        if wait.result is WaitResult.SERVED:
            self.parked.add(wait.method)

    def ask(self, request: Any) -> Pending[Any]:
        return self.note(self.world.inside.group_wire.call(request))

    def note(self, call: Pending[Any], take: Callable[[Any], None] | None = None) -> Pending[Any]:
        """A call that must be answered in the end, whatever the answer is."""
        self.calls.append(call)

        def settled(reply: Pending[Any]) -> None:
            assert reply.error is None or isinstance(reply.error, CoordinatorError), reply.error
            if reply.error is None and take is not None:
                take(reply.result())

        call.on_settled(settled)
        return call

    def numbers(self, assignment: group_pb2.PartitionSet) -> frozenset[int]:
        """The partitions of an answer, those of the second topic after those of the first."""
        first = {"t": 0, "u": len(PARTITIONS)}
        return frozenset(first[topic.topic] + number for topic in assignment.topics for number in topic.partitions)

    def partition_set(self, numbers: frozenset[int]) -> group_pb2.PartitionSet:
        topics: dict[str, list[int]] = {}
        for number in sorted(numbers):
            topics.setdefault("t" if number < len(PARTITIONS) else "u", []).append(number % len(PARTITIONS))
        return group_pb2.PartitionSet(
            topics=[common_pb2.TopicPartitions(topic=topic, partitions=found) for topic, found in topics.items()]
        )

    def check_owners(self) -> None:
        owned = [number for consumer in self.consumers for number in consumer.owned]
        assert len(owned) == len(set(owned)), {each.member_id: sorted(each.owned) for each in self.consumers}

    def step(self, step: Step) -> None:
        what, choice = step
        match what:
            case "flush":
                self.world.flush(choice % 3 or None)
            case "pass":
                self.world.tick(choice % 60)
            case _:
                self.clients[what].act(choice)
                if choice >= CHOICES // 2:
                    self.world.seal()

    def run(self, steps: Sequence[Step]) -> None:
        for step in steps:
            self.step(step)
        # The disk is quick again, and everybody has been patient.
        for _second in range(40):
            self.world.settle()
            self.world.tick(1_000)
        self.world.settle()
        waiting = [call for call in self.calls if not call.is_settled]
        assert not waiting, f"{len(waiting)} of {len(self.calls)} calls have no answer"


HEARTBEATS = ("flush", "flush", "pass", "pass", "pass", "consumer a", "consumer b", "consumer c")
ACTORS = (*HEARTBEATS, "classic x", "classic y", "producer p", "producer q", "sink")


def steps(actors: Sequence[str]) -> st.SearchStrategy[list[Step]]:
    return st.lists(st.tuples(st.sampled_from(actors), st.integers(0, CHOICES - 1)), min_size=20, max_size=150)


@settings(max_examples=100)
@given(steps(ACTORS) | steps(HEARTBEATS))
def test_no_decision_is_made_again_while_it_stands(schedule: list[Step]) -> None:
    Scene().run(schedule)


def test_in_long_schedules_it_is_so_for_every_way_of_waiting() -> None:
    parked: set[str] = set()
    for seed in range(3):
        draw = random.Random(seed)
        scene = Scene()
        scene.run([(draw.choice(ACTORS), draw.randrange(CHOICES)) for _step in range(2_000)])
        assert scene.witness.repeated > 50
        parked |= scene.parked
    assert parked >= {"InitProducerId", "AddPartitionsToTxn", "TxnOffsetCommit", "Produce", "Transact", "EndTxn"}
    assert parked >= {"JoinBatch", "CommitBatch"}
