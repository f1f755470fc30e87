"""H. Offsets in transactions."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator_api.v1 import common_pb2, group_pb2
from coordinator_protocol.errors import ErrorClass, ErrorCode, Refused, error_class
from coordinator_protocol.marker import Marker
from coordinator_protocol.methods import Method
from coordinator_server.kafka_front.apis import ApiKey
from coordinator_server.kafka_front.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.conformance.transactions.case_world import CaseWorld
from tests.conformance.transactions.cases import case, not_drivable
from tests.harness.committed_offsets import ABORT, COMMIT, identity
from tests.harness.group_world import group_world
from tests.harness.groups import GROUP, OK, code
from tests.harness.kafka_caller import KafkaCaller
from tests.harness.world import World
from txn_coordinator.config import TwoPhase

FAIL_STOP = "design 5: an append never fails in place, the process ends (fail-stop)"
UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT

both_kinds = pytest.mark.parametrize("kind", ["classic", "consumer"])


def group_of(world: World, kind: str, *, topic: str = "foo") -> Any:
    """A group of this kind, and its one member."""
    if kind == "classic":
        member: Any = world.classic.subscriber(topics=(topic,))
        world.classic.form(member, plan={})
    else:
        member = world.consumers.member("m")
        member.joins(topic)
    return member


@case(238)
def test_a_group_has_a_name_and_a_server_that_stops_says_so() -> None:
    assert group_world().offsets.producer().commits({"foo-0": 1}, group_id="") == {"foo-0": ErrorCode.INVALID_GROUP_ID}
    world = group_world()
    producer = world.offsets.producer()
    world.inside.runtime.fail(OSError("the disk"))
    assert code(world.ask(producer.request({"foo-0": 1}))) is ErrorCode.COORDINATOR_NOT_AVAILABLE


not_drivable(239, FAIL_STOP)


@case(241)
def test_a_generation_of_no_group_is_an_illegal_one() -> None:
    producer = group_world().offsets.producer()
    assert producer.commits({"foo-0": 1}, generation_id_or_member_epoch=10) == {"foo-0": ErrorCode.ILLEGAL_GENERATION}
    assert producer.groups() == []


@case(242)
@both_kinds
def test_an_unknown_member_commits_nothing(kind: str) -> None:
    world = group_world()
    said = {**identity(group_of(world, kind)), "member_id": "who"}
    assert world.offsets.producer().commits({"foo-0": 1}, **said) == {"foo-0": ErrorCode.UNKNOWN_MEMBER_ID}


@case(243)
@both_kinds
@pytest.mark.parametrize("distance", [-1, 1])
def test_a_wrong_epoch_is_an_illegal_generation_for_a_transaction(kind: str, distance: int) -> None:
    world = group_world()
    said = identity(group_of(world, kind))
    said["generation_id_or_member_epoch"] += distance
    if kind == "consumer" and distance < 0:
        said["generation_id_or_member_epoch"] = 0
    assert world.offsets.producer().commits({"foo-0": 1}, **said) == {"foo-0": ErrorCode.ILLEGAL_GENERATION}


@case(
    245,
    differs="spec groups 11: as in later Kafka, a producer that says nothing of the group is accepted, and not fenced",
)
@pytest.mark.parametrize("is_empty", [True, False])
def test_who_says_nothing_of_a_consumer_group_commits_to_it(is_empty: bool) -> None:
    world = group_world()
    member = group_of(world, "consumer")
    if is_empty:
        member.leaves()
    assert world.offsets.producer().commits({"foo-0": 1}) == {"foo-0": OK}


@case(246)
def test_what_waits_is_unstable_and_then_there() -> None:
    world = group_world()
    world.offsets.commits({"foo-0": 100, "foo-1": 110, "bar-0": 200})
    producer = world.offsets.producer()
    producer.commits({"foo-0": 101, "foo-1": 111, "bar-1": 201})
    every = ("foo-0", "foo-1", "bar-0", "bar-1")
    stable = {"foo-0": UNSTABLE, "foo-1": UNSTABLE, "bar-0": 200, "bar-1": UNSTABLE}
    assert world.offsets.fetches(*every, stable=True) == world.offsets.fetches(stable=True) == stable
    assert world.offsets.fetches(*every) == {"foo-0": 100, "foo-1": 110, "bar-0": 200, "bar-1": -1}
    assert world.offsets.fetches() == {"foo-0": 100, "foo-1": 110, "bar-0": 200}
    producer.ends(COMMIT)
    after = {"foo-0": 101, "foo-1": 111, "bar-0": 200, "bar-1": 201}
    assert world.offsets.fetches(*every, stable=True) == world.offsets.fetches() == after


@case(247)
def test_a_marker_settles_what_is_its_own() -> None:
    world = group_world()
    five, six = world.offsets.producer("five"), world.offsets.producer("six")
    five.commits({"foo-0": 100})
    six.commits({"foo-1": 200})
    before = world.offsets.state()
    unknown = Marker(
        producer_id=77,
        txn_epoch=0,
        next_epoch=1,
        coordinator_shard=0,
        coordinator_epoch=1,
        outcome=COMMIT,
        csn=99,
    )
    world.offsets.send_marker(unknown)
    assert world.offsets.state() == before
    five.ends(COMMIT)
    six.ends(ABORT)
    assert world.offsets.fetches(stable=True) == {"foo-0": 100}


@case(249)
@both_kinds
def test_a_deleted_offset_takes_what_waits_with_it(kind: str) -> None:
    world = group_world()
    member = group_of(world, kind, topic="bar")
    world.offsets.committed_by(member, 1)
    producer = world.offsets.producer()
    producer.commits({"foo-0": 2}, **identity(member))
    assert world.offsets.deletes("foo-0") == {"foo-0": OK}
    assert world.offsets.fetches("foo-0", stable=True) == {"foo-0": -1}
    producer.ends(COMMIT)
    assert world.offsets.fetches("foo-0", stable=True) == {"foo-0": -1}


@case(250)
def test_a_deleted_group_leaves_nothing_that_a_marker_could_bring_back() -> None:
    world = group_world()
    world.offsets.commits({"foo-0": 1, "foo-1": 1})
    producer = world.offsets.producer()
    producer.commits({"foo-1": 2, "foo-2": 2})
    assert world.groups.delete() is OK
    assert (world.offsets.state(), world.groups.listed()) == ({}, {})
    producer.ends(COMMIT)
    world.restart()
    assert (world.offsets.state(), world.groups.listed()) == ({}, {})


@case(251)
def test_nothing_expires_where_a_transaction_holds_an_offset() -> None:
    world = group_world(offsets_retention_check_interval_ms=1_000, offsets_retention_ms=5_000)
    world.offsets.commits({"foo-0": 1, "foo-1": 1})
    producer = world.offsets.producer()
    producer.commits({"foo-0": 2})
    world.pass_time(10_000)
    assert world.offsets.fetches() == {"foo-0": 1}
    producer.ends(ABORT)
    world.pass_time(1_000)
    assert (world.offsets.fetches(), world.groups.listed()) == ({}, {})


@case(253)
def test_good_and_bad_partitions_are_answered_in_one_reply() -> None:
    world = group_world()
    producer = world.offsets.producer()
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert producer.commits({"foo-0": 1, "who-0": 1, "foo-77": 1}) == {"foo-0": OK, "who-0": unknown, "foo-77": unknown}
    assert world.offsets.fetches(stable=True) == {"foo-0": UNSTABLE}
    other = world.offsets.producer("other")
    assert other.commits({"who-0": 1}) == {"who-0": unknown}
    assert other.groups() == [], "with nothing left to keep, the transaction is not touched"


@case(254)
def test_while_the_server_loads_it_says_so_in_a_code_that_the_client_knows() -> None:
    world = CaseWorld()
    request = group_pb2.TxnOffsetCommitRequest(
        header=common_pb2.RequestHeader(client_txn_version=1), transactional_id="orders", group_id=GROUP
    )
    loading = ErrorCode(world.while_loading(request))
    assert loading is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    of_kafka = TxnOffsetCommitRequest(
        transactional_id="orders",
        group_id=GROUP,
        topics=(TxnOffsetCommitRequestTopic(name="t", partitions=(TxnOffsetCommitRequestPartition(),)),),
    )
    for version, told in ((0, 15), (1, 15), (2, 14)):
        refusal = Refused(loading, "loading")
        response = KafkaCaller(world).refused(ApiKey.TXN_OFFSET_COMMIT, version, of_kafka, refusal)
        assert response.topics[0].partitions[0].error_code == told


@case(255)
def test_a_group_that_was_not_added_gets_no_offsets_of_the_transaction() -> None:
    world = group_world()
    producer = world.offsets.producer(version=1)
    assert producer.commits({"foo-0": 1}) == {"foo-0": ErrorCode.INVALID_TXN_STATE}
    producer.adds("another")
    assert producer.commits({"foo-0": 1}) == {"foo-0": ErrorCode.INVALID_TXN_STATE}
    assert (world.offsets.state(), world.groups.listed()) == ({}, {})
    assert producer.groups() == ["another"]


@case(257)
@pytest.mark.parametrize("two_phase", list(TwoPhase))
def test_a_copy_that_aborts_every_other_time_has_every_record_once(two_phase: TwoPhase) -> None:
    """From t-1 to t-0, a batch per transaction, going on from what the group has committed."""
    world = CaseWorld(split=two_phase is TwoPhase.SPLIT)
    source = [f"v{number}" for number in range(500)]
    client = world.ready()
    attempts = 0
    while (position := max(world.inside.groups.committed("copiers", "t-1"), 0)) < len(source):
        attempts += 1
        batch = source[position : position + 20]
        assert client.write("t-0", *batch) == 0
        kept = world.commit_offset(
            client.transactional_id, client.identity, "copiers", position + len(batch), partition="t-1"
        )
        world.settle()
        kept.result()
        client.end(ABORT if attempts % 2 else COMMIT)
        world.settle()
    assert attempts == 50
    assert visible(world) == source


def visible(world: World) -> list[str]:
    """All committed records of t-0."""
    values: list[str] = []
    offset = 0
    while (reading := world.read("t-0", fetch_offset=offset)).next_offset > offset:
        values += reading.values
        offset = reading.next_offset
    return values


@case(258)
@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        ({"member_id": "who", "group_instance_id": None}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "who", "group_instance_id": "i1"}, ErrorCode.FENCED_INSTANCE_ID),
        ({"generation_id_or_member_epoch": 77}, ErrorCode.ILLEGAL_GENERATION),
    ],
)
def test_a_group_that_moved_on_costs_the_transaction_and_not_the_producer(
    wrong: dict[str, Any], expected: ErrorCode
) -> None:
    world = group_world()
    member = world.classic.subscriber("i1")
    world.classic.form(member, plan={})
    producer = world.offsets.producer()
    assert producer.commits({"foo-0": 1}, **identity(member)) == {"foo-0": OK}
    assert producer.commits({"foo-0": 2}, **{**identity(member), **wrong}) == {"foo-0": expected}
    assert error_class(Method.TXN_OFFSET_COMMIT, expected) is ErrorClass.ABORT
    producer.ends(ABORT)
    assert producer.commits({"foo-0": 3}, **identity(member)) == {"foo-0": OK}
    producer.ends(COMMIT)
    assert world.offsets.fetches("foo-0", stable=True) == {"foo-0": 3}
