"""The fast path does what the general path does: the same rows, answers, events, timers and state, whatever came
before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from coordinator_core.fast_path import FastPath
from coordinator_protocol.batch import BatchHeader, Encoding
from coordinator_protocol.errors import CoordinatorError
from coordinator_protocol.marker import Marker, Outcome
from coordinator_runtime.decision import Turn
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import (
    CallContext,
    ClientBatch,
    Committer,
    GroupOffsets,
    NamedOffset,
    PartitionName,
    Permission,
    ResourceType,
)
from coordinator_runtime.runtime import RuntimeLimits
from coordinator_runtime.store import Family
from partition_log.catalog.state import NewTopic
from partition_log.records import PartitionGrew
from partition_log.requests import CreateTopics
from tests.harness.calls import partition_name
from tests.harness.fast_path_calls import transact_all
from tests.harness.inside import StateView, WorldOptions
from tests.harness.workers import HeldWorker
from tests.harness.world import World
from txn_coordinator.config import TwoPhase
from txn_coordinator.records import TransactionRanThrough
from txn_coordinator.requests import Transact
from txn_coordinator.rules.transacting import steps_of
from txn_coordinator.state import Identity

IDS = ("a", "b", "c")
PARTITIONS = ("t-0", "t-1", "t-2", "gone-0", "t-9")
GROUPS = ("g", "h")
EVERYTHING = b"\xff" * 64


class Side:
    """One of the two servers, and all that can be seen of it."""

    def __init__(self, options: WorldOptions) -> None:
        self.world = World(options)
        self.events: Counter[str] = Counter()
        self.replies: list[Pending[Any]] = []
        self.world.create_topic("t", 3)
        self.world.create_topic("gone", 1)
        self.watch()

    @property
    def worker(self) -> HeldWorker:
        worker = self.world.inside.core.checks.worker
        assert isinstance(worker, HeldWorker)
        return worker

    def watch(self) -> None:
        """Note what happens, as often as it does: the fast path tells of several transactions of a partition at
        once."""
        self.world.inside.runtime.on_event = self._note

    def _note(self, event: object, turn: Turn) -> None:
        match event:
            case TransactionRanThrough():
                for step in steps_of(event):
                    self.events[repr((step, turn))] += 1
            case PartitionGrew():
                what = f"{event.ordinal} {event.outcome}"
                self.events[what + " records"] += event.record_count
                self.events[what + " bytes"] += event.size_bytes
                self.events[what + " marker bytes"] += event.marker_bytes
                self.events[what + " markers"] += 0 if event.outcome is None else event.marker_count
            case _:
                self.events[repr((event, turn))] += 1

    def rows(self) -> dict[tuple[Family, bytes], bytes]:
        store = self.world.shelf.store
        return {(family, key): value for family in Family for key, value in store.scan(family, b"", EVERYTHING)}

    def state(self) -> StateView:
        """All that is durable in the shards that serve."""
        inside = self.world.inside
        return inside.state(inside.runtime.table.served.__contains__)

    def answers(self) -> list[object]:
        return [_answer(reply) for reply in self.replies]

    def timers(self) -> object:
        runtime = self.world.inside.runtime
        staged = runtime.groups.undurable_bytes
        return runtime.timers.next_deadline_ms(), len(runtime.parking), staged, self.world.undurable_groups


def _answer(reply: Pending[Any]) -> object:
    if not reply.is_settled:
        return None
    try:
        return reply.result()
    except CoordinatorError as error:
        return type(error), error.code, error.message


class Twins:
    """The same happens to a server with a fast path and to one without."""

    def __init__(self, **options: Any) -> None:
        self.sides = [Side(WorldOptions(**options, lane=lane)) for lane in (True, False)]
        self.with_lane = self.sides[0].world
        self.identities: dict[str, Identity] = {}
        self.request = 0

    def do(self, action: Callable[[World], Pending[Any] | None]) -> None:
        """To both; an answer is kept."""
        for side in self.sides:
            reply = action(side.world)
            if reply is not None:
                side.replies.append(reply)

    def message(self, *calls: tuple[Transact, CallContext]) -> None:
        for side in self.sides:
            side.replies += transact_all(side.world.inside.core, calls)

    def init(self, name: str) -> None:
        self.do(lambda world: world.init(name))
        self.settle()
        answer = _answer(self.sides[0].replies[-1])
        if isinstance(answer, Identity):
            self.identities[name] = answer

    def settle(self) -> None:
        self.do(World.settle)
        self.compare()

    def crash(self, kept_groups: int) -> None:
        self.do(lambda world: world.crash(kept_groups=kept_groups))
        for side in self.sides:
            side.watch()

    def call(
        self,
        name: str,
        partitions: Sequence[str],
        *,
        group: str | None = None,
        read: str = "t-0",
        epoch: int = 0,
        sequence: int = 0,
        outcome: Outcome = Outcome.COMMIT,
        is_repeated: bool = False,
        principal: str = "p",
        **said: Any,
    ) -> tuple[Transact, CallContext]:
        """A Transact. `epoch`: how far its epoch is from that of the id as it is live; `said`: what its header says."""
        self.request += not is_repeated
        header = {"request_id": self.request.to_bytes(16, "big"), "client_id": "client"} | said
        context = CallContext(principal, host="host", method="Transact", **header)
        identity = self.identities.get(name, Identity(0, 0))
        identity = Identity(identity.producer_id, max(0, identity.producer_epoch + epoch))
        offset = NamedOffset(partition_name(read), self.request, None, "")
        groups = () if group is None else (GroupOffsets(group, Committer(), (offset,)),)
        batches = [_batch(partition, f"{name}{self.request}", sequence) for partition in partitions]
        return Transact(name, identity, outcome, batches, groups), context

    def went_on(self, name: str, by: int = 1) -> None:
        """The epoch of an id, if its call was taken."""
        identity = self.identities.get(name)
        if identity is not None:
            self.identities[name] = Identity(identity.producer_id, identity.producer_epoch + by)

    def compare(self) -> None:
        one, other = self.sides
        assert list(map(repr, one.answers())) == list(map(repr, other.answers()))
        assert one.rows() == other.rows()
        assert one.state() == other.state()
        assert one.events == other.events
        assert one.timers() == other.timers()


def _batch(partition: str, value: str, sequence: int) -> ClientBatch:
    header = BatchHeader(
        base_offset=0,
        record_count=1,
        base_timestamp_ms=5,
        max_timestamp_ms=5,
        base_sequence=sequence,
        encoding=Encoding.RECORDS_V1,
    )
    return ClientBatch(partition_name(partition), header, value.encode(), None)


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ids whose calls a fast path took."""
    found: list[str] = []
    transact = FastPath.transact

    def noted(lane: FastPath, name: str, *columns: Any) -> object:
        result = transact(lane, name, *columns)
        if result is not None:
            found.append(name)
        return result

    monkeypatch.setattr(FastPath, "transact", noted)
    return found


def test_a_message_of_common_calls_is_taken_as_a_whole(taken: list[str]) -> None:
    twins = Twins()
    for name in IDS:
        twins.init(name)
    for _ in range(3):
        twins.message(*(twins.call(name, ["t-0", "t-1"]) for name in IDS))
        twins.settle()
        for name in IDS:
            twins.went_on(name)
    assert taken == [*IDS] * 3
    assert twins.with_lane.read("t-0").values == [
        f"{name}{3 * turn + n + 1}" for turn in range(3) for n, name in enumerate(IDS)
    ]


def test_offsets_of_a_group_are_committed_with_the_records(taken: list[str]) -> None:
    twins = Twins()
    for name in IDS:
        twins.init(name)
    for _ in range(2):
        twins.message(*(twins.call(name, ["t-0"], group="g") for name in IDS))
        twins.settle()
        for name in IDS:
            twins.went_on(name)
    # The first of all makes the group, which is told of.
    assert taken == ["b", "c", *IDS]


def test_what_is_unusual_keeps_its_place(taken: list[str]) -> None:
    twins = Twins()
    for name in IDS:
        twins.init(name)
    twins.message(
        twins.call("a", ["t-0"]),
        twins.call("b", ["t-0"], outcome=Outcome.ABORT),
        twins.call("c", ["t-0"]),
        twins.call("a", ["t-0"], epoch=1),
        twins.call("a", ["t-0"], epoch=0),
        twins.call("c", ["t-0", "t-0"], epoch=1),
    )
    twins.settle()
    assert taken == ["a", "c", "a"]


def test_a_group_of_commits_is_as_large_as_without_a_fast_path(taken: list[str]) -> None:
    twins = Twins(runtime_limits=RuntimeLimits(group_bytes_max=9_000, undurable_bytes_max=90_000))
    names = [f"n{number}" for number in range(15)]
    for name in names:
        twins.init(name)
    for _ in range(12):
        twins.message(*(twins.call(name, ["t-0", "t-1"]) for name in names))
        for name in names:
            twins.went_on(name)
    assert twins.sides[0].timers() == twins.sides[1].timers()
    twins.settle()
    assert set(taken[:15]) < set(names), "some of a message fill the group"
    assert any(isinstance(answer, tuple) for answer in twins.sides[0].answers()), "some are throttled"


def test_a_zombie_is_fenced(taken: list[str]) -> None:
    twins = Twins()
    twins.init("a")
    twins.message(twins.call("a", ["t-0"]))
    twins.init("a")
    twins.message(twins.call("a", ["t-0"], epoch=-1))
    twins.message(twins.call("a", ["t-0"], epoch=-2))
    twins.message(twins.call("a", ["t-0"], epoch=1))
    twins.message(twins.call("a", ["t-0"]))
    twins.settle()
    assert taken == ["a", "a"]
    assert twins.with_lane.read("t-0").values == ["a1", "a5"]


class Wardens:
    """Keeps one principal from a topic and an id, and notes whom it told so."""

    def __init__(self) -> None:
        self.refused: list[tuple[str, str]] = []

    def is_allowed(self, context: CallContext, _permission: Permission, resource: ResourceType, name: str) -> bool:
        return context.principal != "q" or name not in ("t", "a")

    def on_refused(self, context: CallContext, permission: Permission, resource: ResourceType, name: str) -> None:
        self.refused.append((context.principal, name))


def test_who_may_not_is_told_so_once(taken: list[str]) -> None:
    wardens = Wardens()
    twins = Twins(authorizer=wardens)
    for name in IDS:
        twins.init(name)
    twins.message(twins.call("a", ["t-0"]), twins.call("b", ["gone-0"], principal="q"))
    twins.settle()
    twins.message(
        twins.call("c", ["gone-0"], principal="q"),
        twins.call("b", ["t-0"], epoch=1, principal="q"),
        twins.call("c", ["gone-0"], epoch=1, principal="q"),
        twins.call("a", ["gone-0"], epoch=1, principal="q"),
    )
    twins.settle()
    # Another caller than that of the calls before begins a message of his own.
    assert taken == ["a", "c", "c"]
    assert sorted(wardens.refused) == [("q", "a"), ("q", "a"), ("q", "t"), ("q", "t")], "by either server, once"


@pytest.mark.parametrize("said", [{"request_id": b""}, {"client_txn_version": 1}, {"client_id": "another"}])
def test_what_a_header_says_counts(said: dict[str, object]) -> None:
    twins = Twins()
    twins.init("a")
    twins.init("b")
    for epoch in range(2):
        twins.message(twins.call("a", ["t-0"], epoch=epoch), twins.call("b", ["t-0"], epoch=epoch))
        twins.settle()
    twins.message(twins.call("a", ["t-0"], epoch=2), twins.call("b", ["t-0"], epoch=2, **said))
    twins.settle()


def test_offsets_of_no_topic_refuse_all_of_it(taken: list[str]) -> None:
    twins = Twins()
    twins.init("a")
    twins.init("b")
    twins.message(twins.call("a", ["t-0"], group="g"))
    twins.message(
        twins.call("a", ["t-0"], epoch=1, group="g", read="nowhere-0"), twins.call("b", ["t-0"], group="g", read="t-9")
    )
    twins.settle()
    assert taken == []
    assert twins.with_lane.read("t-0").values == ["a1"]


def test_readers_wait_for_whoever_was_there_before(taken: list[str]) -> None:
    twins = Twins()
    for name in IDS:
        twins.init(name)
    twins.message(twins.call("b", ["t-0", "t-1"]))
    open_id = twins.identities["a"]
    twins.do(lambda world: world.produce("a", open_id, "t-0", ["x"], sequence=0))
    twins.message(twins.call("b", ["t-0", "t-1"], epoch=1), twins.call("c", ["t-1", "t-0"]))
    twins.settle()
    assert taken == ["b", "b", "c"]
    assert twins.with_lane.read("t-0").last_stable_offset == 2
    twins.do(lambda world: world.end("a", open_id, Outcome.COMMIT))
    twins.settle()
    assert twins.with_lane.read("t-0").values == ["b1", "x", "b2", "c3"]


def test_what_a_partition_refuses_is_refused(taken: list[str]) -> None:
    twins = Twins()
    for name in IDS:
        twins.init(name)
    of_another = Marker(
        producer_id=twins.identities["b"].producer_id,
        txn_epoch=0,
        next_epoch=0,
        coordinator_shard=twins.with_lane.shard_of("b").number,
        coordinator_epoch=99,
        outcome=Outcome.ABORT,
        csn=1,
    )
    twins.do(lambda world: world.send_marker("t-1", of_another))
    twins.settle()
    twins.message(twins.call("a", ["t-0"], sequence=1), twins.call("b", ["t-0", "t-1"]), twins.call("c", ["t-0"]))
    twins.settle()
    assert taken == ["c"]
    assert twins.with_lane.read("t-0").values == ["c3"]


def test_one_id_ends_one_transaction_at_a_time(taken: list[str]) -> None:
    twins = Twins()
    twins.init("a")
    twins.message(twins.call("a", ["t-0"]), twins.call("a", ["t-0"]), twins.call("a", ["t-1"], epoch=1))
    twins.settle()
    # The last one follows on the first, by the general path or behind it.
    assert taken[0] == "a"
    assert [isinstance(answer, tuple) for answer in twins.sides[0].answers()[1:]] == [False, True, False]


def test_a_partition_may_be_named_in_two_ways(taken: list[str]) -> None:
    twins = Twins()
    for name in IDS:
        twins.init(name)
    topic_id = twins.with_lane.inside.catalog.topic("t", b"").topic_id

    def by_id(call: tuple[Transact, CallContext], *partitions: int) -> tuple[Transact, CallContext]:
        command, context = call
        renamed = [
            replace(batch, name=PartitionName("", topic_id, partition))
            for batch, partition in zip(command.batches, partitions, strict=True)
        ]
        return replace(command, batches=renamed), context

    mixed, context = twins.call("c", ["t-1", "t-1"])
    mixed = replace(mixed, batches=[mixed.batches[0], by_id((mixed, context), 1, 1)[0].batches[1]])
    twins.message(twins.call("a", ["t-0", "t-1"]), by_id(twins.call("b", ["t-1", "t-0"]), 1, 0), (mixed, context))
    twins.settle()
    assert taken == ["a", "b"]


def test_nobody_overtakes_a_payload_that_is_checked_elsewhere(taken: list[str]) -> None:
    twins = Twins()
    twins.do(lambda world: world.inside.topics.create_topics(CreateTopics([NewTopic("checked", 1)]), CallContext()))
    twins.settle()
    for name in IDS[:2]:
        twins.init(name)
    for side in twins.sides:
        side.worker.is_held = True
    many, context = twins.call("a", ["checked-0"])
    (batch,) = many.batches
    assert isinstance(batch.header, BatchHeader)
    many = replace(many, batches=[replace(batch, header=replace(batch.header, record_count=40_000))])
    damaged, ahead = twins.call("b", ["checked-0"]), twins.call("a", ["t-0"])
    twins.message((many, context), ahead, damaged, twins.call("b", ["t-0"]))
    twins.settle()
    for side in twins.sides:
        side.worker.release()
    twins.settle()
    assert taken == ["b"]
    assert [isinstance(answer, tuple) for answer in twins.sides[0].answers()[3:]] == [True, False, True, False]


CALL = st.tuples(
    st.sampled_from(IDS),
    st.lists(st.sampled_from(PARTITIONS[:3]), min_size=1, max_size=3, unique=True)
    | st.lists(st.sampled_from(PARTITIONS), max_size=3),
    st.sampled_from((None, None, *GROUPS)),
    st.sampled_from((0,) * 8 + (-1, 1)),
    st.sampled_from((0,) * 9 + (1,)),
    st.sampled_from((Outcome.COMMIT,) * 7 + (Outcome.ABORT,)),
    st.sampled_from((False,) * 8 + (True,)),
)
MESSAGE = st.tuples(st.just("message"), st.lists(CALL, min_size=1, max_size=6))
STEPS = st.one_of(
    MESSAGE,
    MESSAGE,
    MESSAGE,
    MESSAGE,
    st.tuples(st.just("init"), st.sampled_from(IDS)),
    st.tuples(st.just("produce"), st.sampled_from(IDS), st.sampled_from(PARTITIONS[:3])),
    st.tuples(st.just("end"), st.sampled_from(IDS), st.sampled_from(Outcome)),
    st.tuples(st.just("offset"), st.sampled_from(IDS), st.sampled_from(GROUPS)),
    st.tuples(st.just("prepare"), st.sampled_from(IDS)),
    st.tuples(st.just("settle")),
    st.tuples(st.just("flush")),
    st.tuples(st.just("seal")),
    st.tuples(st.just("tick"), st.sampled_from((1, 10, 70_000))),
    st.tuples(st.just("delete")),
    st.tuples(st.just("unload"), st.sampled_from((*IDS, "t-0", "t-1", "group:g"))),
    st.tuples(st.just("load"), st.sampled_from((*IDS, "t-0", "t-1", "group:g"))),
    st.tuples(st.just("crash"), st.integers(0, 2)),
)


@given(
    st.sampled_from((TwoPhase.FUSED, TwoPhase.FUSED, TwoPhase.SPLIT)),
    st.sampled_from((6, 30_000)),
    st.integers(1, 5),
    st.lists(STEPS, min_size=3, max_size=30),
)
@settings(max_examples=150, deadline=None)
def test_random_histories_come_to_the_same(
    two_phase: TwoPhase, epoch_max: int, stretch: int, steps: list[tuple[Any, ...]]
) -> None:
    twins = Twins(two_phase=two_phase, producer_epoch_max=epoch_max, index_interval_batches=stretch)
    for name in IDS:
        twins.init(name)
    for kind, *arguments in steps:
        _step(twins, kind, *arguments)
        twins.compare()
    twins.settle()
    twins.with_lane.check_replay()
    twins.with_lane.check_stored()


def _step(twins: Twins, kind: str, *arguments: Any) -> None:
    name, *rest = arguments or ("",)
    match kind:
        case "init":
            twins.init(name)
        case "message":
            _send(twins, name)
        case "delete":
            twins.do(lambda world: world.delete_topic("gone"))
        case "crash":
            twins.crash(name)
        case "produce" | "end" | "offset" | "prepare":
            identity = twins.identities.get(name, Identity(0, 0))
            twins.do(lambda world: _asked(world, kind, name, identity, *rest))
            _look(twins)
        case "unload" | "load":
            twins.do(lambda world: getattr(world, kind)(name))
        case _:
            twins.do(lambda world: (getattr(world, kind)(*arguments), None)[1])


def _asked(world: World, kind: str, name: str, identity: Identity, what: Any = None) -> Pending[Any]:
    match kind:
        case "produce":
            return world.produce(name, identity, what, ["x"], sequence=0)
        case "end":
            return world.end(name, identity, what)
        case "offset":
            return world.commit_offset(name, identity, what, 7)
        case _:
            return world.prepare(name, identity)


def _send(twins: Twins, calls: list[tuple[Any, ...]]) -> None:
    made = []
    for name, partitions, group, epoch, sequence, outcome, is_repeated in calls:
        call = twins.call(
            name,
            partitions,
            group=group,
            epoch=epoch,
            sequence=sequence,
            outcome=outcome,
            is_repeated=is_repeated,
        )
        made.append(call)
        if epoch == 0 and sequence == 0 and not is_repeated:
            twins.went_on(name)
    twins.message(*made)
    _look(twins)


def _look(twins: Twins) -> None:
    """Go on with the identities that the ids have, as clients do who were answered."""
    core = twins.with_lane.inside.core
    for name in IDS:
        shard = core.runtime.table.served.get(core.transactions.service.shard_key(name))
        live = None if shard is None else {each.transactional_id: each for each in shard.live_transactions()}.get(name)  # type: ignore[attr-defined]
        if live is not None:
            twins.identities[name] = live.client_identity
