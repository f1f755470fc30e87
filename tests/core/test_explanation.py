"""Explanations of blocked committed readers: the rule by its table, and the use case by what can happen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from msgspec.structs import replace

from coordinator_api.v1 import admin_pb2
from coordinator_core.explanation import Blocking, ExplainPartition, Explanation, View, explain
from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.next_event import NextEvent
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import (
    AllowAll,
    CallContext,
    OpenInPartition,
    PartitionName,
    PartitionRef,
    Permission,
    ResourceType,
)
from coordinator_runtime.store import CommitGroup, Family
from partition_log.requests import PartitionStanding
from partition_log.state import PartitionHead
from tests.conformance.transactions.case_world import EXHAUSTED, CaseWorld
from tests.harness.calls import called
from tests.harness.world import World, partition_name
from tests.transactions.administered import ADMIN, CLIENT, COMMIT, Administered
from tests.transactions.test_unknown_state import UNKNOWN, store_state
from tests.transactions.world_of_one import NOW_MS, PRODUCER_ID, transaction
from txn_coordinator.codec import step_of
from txn_coordinator.config import TwoPhase
from txn_coordinator.hanging import HangingReason
from txn_coordinator.records import TransactionChanged
from txn_coordinator.requests import History
from txn_coordinator.state import DECIDED, NO_TIMEOUT_MS, Identity, Transaction, TransactionState

ONGOING, EMPTY = TransactionState.ONGOING, TransactionState.EMPTY
STANDING = PartitionStanding(
    PartitionRef("t", b"i" * 16, 1, 1),
    PartitionHead(log_end_offset=50, last_stable_offset=40, open_transactions=1),
    OpenInPartition(1, PRODUCER_ID, 5, 3, 6, 40, NOW_MS - 300),
)
AWAY = Refused(ErrorCode.NOT_COORDINATOR, "transactions shard 3 is not served here")


def test_the_numbers_are_those_of_the_wire() -> None:
    assert {f"NEXT_EVENT_{each.name}": each.value for each in NextEvent} == dict(admin_pb2.NextEvent.items())
    assert NextEvent(99) is NextEvent.UNSPECIFIED, "a newer server may tell what is not known here"


@dataclass
class Case:
    owner: Transaction | Refused | None
    next_event: NextEvent
    time_left_ms: int | None = None
    hanging_reason: HangingReason | None = None
    reason: str = ""


def prepared(state: TransactionState) -> Transaction:
    return transaction(state, epoch=6)


CASES = [
    Case(transaction(ONGOING), NextEvent.CLIENT_OR_TIMEOUT, 9_000),
    Case(replace(transaction(ONGOING), start_ms=NOW_MS - 20_000), NextEvent.CLIENT_OR_TIMEOUT, 0),
    Case(replace(transaction(ONGOING), txn_timeout_ms=NO_TIMEOUT_MS), NextEvent.OUTSIDE_DECISION),
    Case(replace(transaction(ONGOING), prepared_ms=NOW_MS), NextEvent.OUTSIDE_DECISION),
    Case(prepared(TransactionState.PREPARE_COMMIT), NextEvent.MARKER_BEING_WRITTEN),
    Case(prepared(TransactionState.PREPARE_ABORT), NextEvent.MARKER_BEING_WRITTEN),
    Case(None, NextEvent.HANGING, hanging_reason=HangingReason.UNKNOWN_PRODUCER),
    Case(transaction(EMPTY), NextEvent.HANGING, hanging_reason=HangingReason.NOT_OPEN),
    Case(transaction(ONGOING, epoch=6), NextEvent.HANGING, hanging_reason=HangingReason.OTHER_EPOCH),
    Case(
        replace(transaction(ONGOING), partitions=frozenset({9})),
        NextEvent.HANGING,
        hanging_reason=HangingReason.NOT_A_MEMBER,
    ),
    Case(AWAY, NextEvent.OWNER_UNKNOWN, reason=AWAY.message),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.next_event.name)
@pytest.mark.parametrize("may_describe_owner", [True, False])
@pytest.mark.parametrize("may_read_topic", [True, False])
def test_what_is_told_of_whom_and_to_whom(case: Case, may_describe_owner: bool, may_read_topic: bool) -> None:
    explained = explain(
        View(
            standing=STANDING,
            owner=case.owner,
            may_read_topic=may_read_topic,
            may_describe_owner=may_describe_owner,
            now_ms=NOW_MS,
        )
    )
    is_owned = isinstance(case.owner, Transaction)
    shown = case.owner if isinstance(case.owner, Transaction) and may_describe_owner else None
    assert (explained.ref, explained.head, explained.next_event) == (STANDING.ref, STANDING.head, case.next_event)
    assert explained.blocking == Blocking(
        start_offset=40,
        start_ms=NOW_MS - 300,
        age_ms=300,
        identity=Identity(PRODUCER_ID, 5) if may_read_topic else None,
        owner=None if case.hanging_reason else shown,
        is_owner_hidden=is_owned and not may_describe_owner,
        time_left_ms=case.time_left_ms,
        hanging_reason=case.hanging_reason,
        transactional_id=shown.transactional_id if shown is not None and case.hanging_reason else "",
        owner_unknown_reason=case.reason,
    )


def test_every_state_of_an_owner_and_every_reason_is_in_the_table() -> None:
    assert {case.hanging_reason for case in CASES} - {None} == set(HangingReason)
    assert {case.owner.state for case in CASES if isinstance(case.owner, Transaction)} >= {ONGOING, *DECIDED}
    assert {case.next_event for case in CASES} == set(NextEvent) - {
        NextEvent.UNSPECIFIED,
        NextEvent.NOTHING_IN_THE_WAY,
    }


def test_nothing_is_in_the_way_where_nothing_is_open() -> None:
    explained = explain(View(standing=replace(STANDING, oldest_open=None), now_ms=NOW_MS))
    assert (explained.next_event, explained.blocking) == (NextEvent.NOTHING_IN_THE_WAY, None)


def test_a_clock_that_goes_back_makes_no_negative_age() -> None:
    blocking = explain(View(standing=STANDING, owner=transaction(ONGOING), now_ms=0)).blocking
    assert blocking is not None
    assert blocking.age_ms == 0


# The use case


def asked(
    world: World, partition: str = "t-0", context: CallContext = ADMIN, *, history_limit: int = 0
) -> Pending[Explanation]:
    return asked_by_name(world, partition_name(partition), context, history_limit=history_limit)


def asked_by_name(
    world: World, name: PartitionName, context: CallContext = ADMIN, *, history_limit: int = 0
) -> Pending[Explanation]:
    command = ExplainPartition(name, history_limit)
    return called(lambda: world.inside.core.admin.explainer.explain_partition(command, context))


def explained(
    world: World, partition: str = "t-0", context: CallContext = ADMIN, *, history_limit: int = 0
) -> Blocking:
    """Return what blocks committed readers."""
    blocking = asked(world, partition, context, history_limit=history_limit).result().blocking
    assert blocking is not None
    return blocking


def next_event(world: World, partition: str = "t-0") -> NextEvent:
    return asked(world, partition).result().next_event


@pytest.mark.parametrize("two_phase", list(TwoPhase))
def test_an_open_transaction_is_explained_from_its_first_record_to_its_end(two_phase: TwoPhase) -> None:
    world = Administered(two_phase)
    assert next_event(world) is NextEvent.NOTHING_IN_THE_WAY
    identity = world.opened("a", "t-0", "t-1")
    world.opened("b", "t-0")
    world.tick(1_500)
    found = asked(world, history_limit=1).result()
    assert (found.ref.topic, found.ref.partition, found.next_event) == ("t", 0, NextEvent.CLIENT_OR_TIMEOUT)
    assert (found.head.last_stable_offset, found.head.log_end_offset, found.head.open_transactions) == (0, 2, 2)
    blocking = found.blocking
    assert blocking is not None
    assert (blocking.identity, blocking.start_offset, blocking.age_ms) == (identity, 0, 1_500)
    assert blocking.time_left_ms == 58_500
    assert blocking.description is not None
    assert blocking.description.transaction == world.describe("a")
    assert [(ref.topic, ref.partition) for ref in blocking.description.partitions] == [("t", 0), ("t", 1)]
    history = blocking.description.history
    assert history is not None
    (last,) = history.steps
    assert (last.cause, last.client_id, last.host) == ("add", CLIENT.client_id, CLIENT.host)

    world.end("a", identity, COMMIT, CLIENT)
    world.settle()
    assert explained(world).start_offset == 1, "the next one is in the way"
    assert next_event(world, "t-1") is NextEvent.NOTHING_IN_THE_WAY


@pytest.mark.parametrize("two_phase", list(TwoPhase))
def test_what_is_told_is_durable_and_of_one_moment(two_phase: TwoPhase) -> None:
    """At every step of a transaction and of its end, whatever is staged: no view is one that never was."""
    world = Administered(two_phase)
    identity = world.ready("a")
    steps: list[Callable[[], object]] = [
        lambda: world.produce("a", identity, "t-0", ["x"], sequence=0, context=CLIENT),
        lambda: world.produce("a", identity, "t-1", ["y"], sequence=0, context=CLIENT),
        lambda: world.end("a", identity, COMMIT, CLIENT),
    ]
    seen = []
    for step in steps:
        step()
        is_more = True
        while is_more:
            found = asked(world, history_limit=3).result()
            seen.append(found.next_event)
            if found.blocking is not None:
                description = found.blocking.description
                assert description is not None
                assert description.history is not None
                assert description.transaction == world.describe("a")
                newest = description.history.steps[0].after
                assert newest is not None
                assert replace(newest, decided=None) == replace(
                    step_of(TransactionChanged(description.transaction)), decided=None
                )
                assert found.head.last_stable_offset == found.blocking.start_offset
            is_more = world.flush()
    assert seen[0] is seen[-1] is NextEvent.NOTHING_IN_THE_WAY
    decided = {NextEvent.MARKER_BEING_WRITTEN} if two_phase is TwoPhase.SPLIT else set()
    assert set(seen) == {NextEvent.NOTHING_IN_THE_WAY, NextEvent.CLIENT_OR_TIMEOUT} | decided


def test_a_step_that_reached_the_store_and_is_not_durable_is_left_out() -> None:
    world = Administered()
    identity = world.opened("a")
    world.end("a", identity, COMMIT, CLIENT)
    world.inside.driver.write_unsynced(1)
    description = explained(world, history_limit=5).description
    assert description is not None
    assert description.history is not None
    assert [step.cause for step in description.history.steps] == ["add", "init"]
    assert description.history.is_complete


def test_steps_that_are_not_there_any_more_make_no_complete_history() -> None:
    world = Administered()
    world.opened("a")
    store = world.shelf.store
    rows = [key for key, _ in store.scan(Family.HISTORY, b"", b"\xff" * 16)]
    store.write([CommitGroup(store.version() + 1, [(Family.HISTORY, key, None) for key in rows])])
    description = explained(world, history_limit=5).description
    assert description is not None
    assert description.history == History([], is_complete=False)


def test_an_id_that_takes_another_producer_id_still_owns_what_is_durably_open() -> None:
    world = CaseWorld(near_the_end=True)
    client = world.ongoing(epoch=EXHAUSTED)
    client.sends_end(COMMIT)
    assert next_event(world) is NextEvent.CLIENT_OR_TIMEOUT, "the commit is staged, and so is the rotation"
    world.settle()
    assert next_event(world) is NextEvent.NOTHING_IN_THE_WAY


def test_one_that_waits_for_an_outside_decision_never_times_out() -> None:
    world = Administered()
    recovered = world.recover("a", CLIENT, enable_2pc=True)
    world.settle()
    identity = recovered.result().identity
    world.produce("a", identity, "t-0", ["x"], sequence=0, context=CLIENT)
    world.settle()
    assert (next_event(world), explained(world).time_left_ms) == (NextEvent.OUTSIDE_DECISION, None)

    other = world.opened("b", "t-1")
    assert next_event(world, "t-1") is NextEvent.CLIENT_OR_TIMEOUT
    world.prepare("b", other, CLIENT)
    world.settle()
    assert (next_event(world, "t-1"), explained(world, "t-1").time_left_ms) == (NextEvent.OUTSIDE_DECISION, None)


def test_a_decided_one_waits_for_its_marker_as_long_as_that_is_refused() -> None:
    world = CaseWorld(split=True)
    client = world.ongoing()
    world.answers_markers(Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, "not now"), "t-0")
    client.sends_end(COMMIT)
    world.settle()
    world.tick(5_000)
    world.settle()
    blocking = explained(world, history_limit=1)
    assert next_event(world) is NextEvent.MARKER_BEING_WRITTEN
    assert (blocking.time_left_ms, blocking.owner and blocking.owner.state) == (None, TransactionState.PREPARE_COMMIT)
    world.answers_markers(None)
    world.tick(5_000)
    world.settle()
    assert next_event(world) is NextEvent.NOTHING_IN_THE_WAY


def test_one_that_hangs_has_a_reason() -> None:
    world = Administered()
    given = world.init_plain()
    world.settle()
    world.leave_hanging("t-0", given.result())
    blocking = explained(world)
    assert next_event(world) is NextEvent.HANGING
    assert (blocking.hanging_reason, blocking.identity) == (HangingReason.UNKNOWN_PRODUCER, given.result())
    assert (blocking.description, blocking.transactional_id, blocking.is_owner_hidden) == (None, "", False)

    world.leave_hanging("t-1", world.ready("idle"))
    blocking = explained(world, "t-1")
    assert (blocking.hanging_reason, blocking.transactional_id) == (HangingReason.NOT_OPEN, "idle")


def test_its_owner_is_unknown_while_the_shard_does_not_serve() -> None:
    world = Administered()
    world.opened("a")
    world.unload("a")
    world.settle()
    blocking = explained(world)
    assert next_event(world) is NextEvent.OWNER_UNKNOWN
    assert (blocking.owner, blocking.start_offset) == (None, 0)
    assert "transactions shard" in blocking.owner_unknown_reason
    loaded = world.load("a")
    world.settle()
    loaded.result()
    assert next_event(world) is NextEvent.CLIENT_OR_TIMEOUT


def test_an_owner_is_told_while_another_shard_does_not_serve() -> None:
    world = Administered()
    world.opened("a")
    other = next(name for name in map(str, range(100)) if world.shard_of(name) != world.shard_of("a"))
    world.unload(other)
    world.settle()
    assert next_event(world) is NextEvent.CLIENT_OR_TIMEOUT


def test_of_an_id_that_only_a_newer_server_can_read_nothing_is_told_not_even_its_name() -> None:
    world = Administered()
    world.opened("secret")
    store_state(world, "secret", UNKNOWN)
    blocking = explained(world)
    assert next_event(world) is NextEvent.OWNER_UNKNOWN
    assert "newer server" in blocking.owner_unknown_reason
    assert "secret" not in blocking.owner_unknown_reason


# Names and rights


@pytest.mark.parametrize(
    ("name", "code"),
    [
        (("gone", b"", 0), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (("t", b"", 2), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (("", b"x" * 16, 0), ErrorCode.UNKNOWN_TOPIC_ID),
        (("t", b"x" * 16, 0), ErrorCode.INCONSISTENT_TOPIC_ID),
        (("no topic", b"", 0), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (("t", b"", -1), ErrorCode.INVALID_REQUEST),
        (("", b"", 0), ErrorCode.INVALID_REQUEST),
        (("t", b"x", 0), ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_is_no_partition_is_refused(name: tuple[str, bytes, int], code: ErrorCode) -> None:
    found = asked_by_name(Administered(), PartitionName(*name))
    with pytest.raises(Refused) as refused:
        found.result()
    assert refused.value.code is code


@pytest.mark.parametrize("limit", [-1, 101])
def test_a_history_has_its_bounds(limit: int) -> None:
    with pytest.raises(Refused, match="0 to 100"):
        asked(Administered(), history_limit=limit).result()


def test_a_refusal_that_rests_on_a_deletion_waits_until_that_is_durable() -> None:
    world = Administered()
    world.delete_topic("t")
    found = asked(world)
    assert not found.is_settled
    world.flush()
    with pytest.raises(Refused, match="there is no topic"):
        found.result()


@dataclass
class Without(AllowAll):
    """Denies the administrator one permission on one name."""

    permission: Permission
    resource: ResourceType
    name: str

    def is_allowed(self, context: CallContext, permission: Permission, resource: ResourceType, name: str) -> bool:
        is_administrator = context.client_id == ADMIN.client_id
        return not is_administrator or (permission, resource, name) != (self.permission, self.resource, self.name)


@pytest.mark.parametrize("name", ["t-0", "gone-0"])
def test_who_may_not_describe_a_topic_does_not_learn_whether_it_is_there(name: str) -> None:
    topic, _, _ = name.partition("-")
    world = Administered(authorizer=Without(Permission.DESCRIBE, ResourceType.TOPIC, topic))
    with pytest.raises(Refused) as refused:
        asked(world, name).result()
    assert refused.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_whose_transaction_it_is_is_hidden_from_who_may_not_describe_the_id() -> None:
    world = Administered(authorizer=Without(Permission.DESCRIBE, ResourceType.TRANSACTIONAL_ID, "secret"))
    identity = world.opened("secret")
    blocking = explained(world, history_limit=5)
    assert next_event(world) is NextEvent.CLIENT_OR_TIMEOUT, "what to expect of the partition is no secret"
    assert blocking.is_owner_hidden
    assert blocking.identity == identity
    assert "secret" not in str(blocking)
    assert explained(world, context=CLIENT).owner is not None
    world.leave_hanging("t-1", identity)
    assert "secret" not in str(explained(world, "t-1"))


def test_who_may_not_read_the_topic_is_not_told_the_producer() -> None:
    world = Administered(authorizer=Without(Permission.READ, ResourceType.TOPIC, "t"))
    world.opened("a")
    blocking = explained(world)
    assert (blocking.identity, blocking.start_offset) == (None, 0)
    assert blocking.description is not None, "describe on the id tells it as DescribeTransactions does"


def test_partitions_of_a_topic_that_the_caller_may_not_describe_are_left_out() -> None:
    world = Administered(authorizer=Without(Permission.DESCRIBE, ResourceType.TOPIC, "hidden"))
    world.create_topic("hidden", 1)
    world.opened("a", "t-0", "hidden-0")
    description = explained(world).description
    assert description is not None
    assert [ref.topic for ref in description.partitions] == ["t"]
