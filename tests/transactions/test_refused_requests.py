"""Answers to the parts of a refused request: AddPartitionsToTxn names every partition that it was asked for, in the
order asked, each with an error, whatever was wrong; and an answer that rests on the catalog waits for that to be
durable."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator_api.v1 import transaction_pb2
from coordinator_api.v1.common_pb2 import TopicPartitions
from coordinator_protocol.acls import CLUSTER_NAME
from coordinator_protocol.errors import ErrorClass, ErrorCode, Refused, error_class
from coordinator_protocol.marker import Outcome
from coordinator_protocol.methods import Method
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import CallContext, PartitionName
from coordinator_server.grpc_front.wire.transactions.servicer import TransactionServicer
from tests.conformance.transactions.case_world import CaseWorld, Denies
from tests.harness.world import World
from txn_coordinator.requests import AddPartitions, PrepareTransaction
from txn_coordinator.state import Identity

MINE, THEIRS = "orders", "theirs"
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
UNTRIED = ErrorCode.OPERATION_NOT_ATTEMPTED
INVALID = ErrorCode.INVALID_REQUEST

T0, T1 = TopicPartitions(topic="t", partitions=[1]), TopicPartitions(topic="t", partitions=[0, 2])

REFUSED: list[tuple[str, dict[str, Any], ErrorCode]] = [
    (
        "an id that the caller may not write",
        {"transactional_id": THEIRS},
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ),
    ("an empty id", {"transactional_id": ""}, INVALID),
    ("NUL in the id", {"transactional_id": "a\0b"}, INVALID),
    ("an uninitialised id", {"transactional_id": "ghost"}, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ("a negative producer id", {"producer_id": -1}, INVALID),
    ("an epoch beyond 16 bits", {"producer_epoch": 40_000}, INVALID),
    ("another producer id", {"producer_id": 99}, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ("an epoch of the future", {"producer_epoch": 9}, ErrorCode.PRODUCER_FENCED),
    ("a partition named twice", {"topics": [T0, T1, T0]}, INVALID),
    ("a negative partition", {"topics": [T0, TopicPartitions(topic="t", partitions=[-1])]}, INVALID),
    ("half a topic id", {"topics": [T0, TopicPartitions(topic="t", topic_id=b"ab", partitions=[0])]}, INVALID),
    ("a topic without a name", {"topics": [T0, TopicPartitions(partitions=[0])]}, INVALID),
]


def told(world: CaseWorld, reply: Pending[Any]) -> Any:
    world.settle()
    return reply.result()


def results(answer: Any) -> list[tuple[str, bytes, int, int, int]]:
    return [(each.topic, each.topic_id, each.partition, each.error_code, each.error_class) for each in answer.results]


def fields(world: CaseWorld, said: dict[str, Any]) -> dict[str, Any]:
    identity = world.ready(MINE).identity
    return {
        "transactional_id": MINE,
        "producer_id": identity.producer_id,
        "producer_epoch": identity.producer_epoch,
        "topics": [T0, T1],
    } | said


@pytest.mark.parametrize("verify_only", [False, True])
@pytest.mark.parametrize(
    ("said", "code"), [row[1:] for row in REFUSED], ids=[row[0].replace(" ", "_") for row in REFUSED]
)
def test_a_refusal_of_the_whole_request_is_repeated_for_every_partition(
    said: dict[str, Any], code: ErrorCode, verify_only: bool
) -> None:
    world = CaseWorld()
    request = transaction_pb2.AddPartitionsToTxnRequest(**fields(world, said), verify_only=verify_only)
    before = world.version
    answer = told(world, world.servicer(Denies({THEIRS})).AddPartitionsToTxn(request, CallContext()))
    check_repeated(answer, request, code)
    assert world.version == before, "a refused request wrote something"


@pytest.mark.parametrize(
    ("said", "code"), [row[1:] for row in REFUSED[1:]], ids=[row[0].replace(" ", "_") for row in REFUSED[1:]]
)
def test_so_is_that_of_one_transaction_of_a_batch(said: dict[str, Any], code: ErrorCode) -> None:
    world = CaseWorld()
    bad = transaction_pb2.AddPartitionsToTxnTransaction(**fields(world, said))
    good = transaction_pb2.AddPartitionsToTxnTransaction(
        transactional_id="good", topics=[T0], producer_id=world.ready("good").identity.producer_id
    )
    request = transaction_pb2.AddPartitionsToTxnRequest(transactions=[bad, good])
    answer = told(world, world.servicer().AddPartitionsToTxn(request, CallContext()))
    refused, added = answer.transactions
    check_repeated(refused, bad, code)
    assert (added.error_code, results(added)) == (0, [("t", b"", 1, 0, 0)])


def test_a_batch_by_a_stranger_names_every_transaction_and_partition() -> None:
    world = CaseWorld()
    members = [transaction_pb2.AddPartitionsToTxnTransaction(transactional_id=each, topics=[T0, T1]) for each in "ab"]
    request = transaction_pb2.AddPartitionsToTxnRequest(transactions=members)
    answer = told(world, stranger(world).AddPartitionsToTxn(request, CallContext()))
    assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert [each.transactional_id for each in answer.transactions] == ["a", "b"]
    for each, member in zip(answer.transactions, members, strict=True):
        check_repeated(each, member, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


def stranger(world: CaseWorld) -> TransactionServicer:
    return world.servicer(Denies({CLUSTER_NAME}))


def check_repeated(answer: Any, request: Any, code: ErrorCode) -> None:
    what = error_class(Method.ADD_PARTITIONS_TO_TXN, code)
    assert (answer.error_code, answer.error_class) == (code, what), answer.error_message
    assert answer.error_message
    named = [(each.topic, each.topic_id, partition) for each in request.topics for partition in each.partitions]
    assert results(answer) == [(*name, code, what) for name in named]


def test_partitions_at_fault_say_so_and_the_others_were_not_attempted() -> None:
    world = CaseWorld()
    request = transaction_pb2.AddPartitionsToTxnRequest(
        **fields(
            world,
            {"topics": [T0, TopicPartitions(topic="no", partitions=[0]), TopicPartitions(topic="t", partitions=[9])]},
        )
    )
    answer = told(world, world.servicer().AddPartitionsToTxn(request, CallContext()))
    assert (answer.error_code, answer.error_class) == (UNKNOWN, ErrorClass.ABORT)
    assert [each.error_code for each in answer.results] == [UNTRIED, UNKNOWN, UNKNOWN]


# "There is no such topic" may rest on a deletion that a crash would take back (promise 1).


@pytest.fixture
def world() -> World:
    """An open transaction with a record in t-0, and a deletion of `gone` that is not durable."""
    world = World()
    world.create_topic("t", 1)
    world.create_topic("gone", 1)
    identity = world.init(MINE)
    world.settle()
    world.produce(MINE, identity.result(), "t-0", ["x"], sequence=0)
    world.settle()
    world.delete_topic("gone")
    return world


GONE = PartitionName("gone", b"", 0)


def asked(world: World, question: str) -> Pending[Any]:
    identity, transactions = Identity(0, 0), world.inside.transactions
    if question == "add":
        return transactions.add_partitions(
            AddPartitions(transactional_id=MINE, identity=identity, partitions=[GONE]), CallContext()
        )
    if question == "prepare":
        command = PrepareTransaction(transactional_id=MINE, identity=identity, last_sequences=[(GONE, 0)])
        return transactions.prepare_transaction(command, CallContext())
    return world.end(MINE, identity, Outcome.COMMIT, last_sequences=[("gone-0", 0)])


@pytest.mark.parametrize("question", ["add", "prepare", "end"])
def test_that_a_topic_is_gone_is_told_once_it_is_durable(world: World, question: str) -> None:
    answer = asked(world, question)
    assert not answer.is_settled
    world.crash()
    assert not answer.is_settled, "no answer was sent"
    assert world.inside.catalog.resolve(*GONE).topic == "gone", "because it is still there"
    world.delete_topic("gone")
    answer = asked(world, question)
    world.settle()
    assert refusal_of(answer) is UNKNOWN


def refusal_of(answer: Pending[Any]) -> ErrorCode:
    try:
        added = answer.result()
    except Refused as refusal:
        return refusal.code
    return ErrorCode(added.error.code)
