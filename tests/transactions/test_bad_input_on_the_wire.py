"""Bad requests to the TransactionService, over real gRPC: a precise code, nothing changed, the server up."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from google.protobuf.message import Message

from coordinator_api.v1 import common_pb2, log_pb2, log_pb2_grpc, transaction_pb2, transaction_pb2_grpc
from coordinator_protocol.errors import ErrorClass, ErrorCode
from tests.harness.in_process import InProcessServer, in_process_server

_Init = transaction_pb2.InitProducerIdRequest
_Add = transaction_pb2.AddPartitionsToTxnRequest
_End = transaction_pb2.EndTxnRequest
_Topic = common_pb2.TopicPartitions
_Header = common_pb2.RequestHeader

LONG_ID = "x" * 1_001
KNOWN = {"transactional_id": "known", "producer_id": 0, "producer_epoch": 0}


@pytest_asyncio.fixture
async def server() -> AsyncIterator[InProcessServer]:
    """A server with one topic and one transactional id, `known`, whose identity is (0, 0)."""
    async with in_process_server() as served:
        created = await log_pb2_grpc.LogServiceStub(served.channel).CreateTopics(
            log_pb2.CreateTopicsRequest(topics=[log_pb2.NewTopic(name="t", partition_count=2)])
        )
        assert not created.results[0].error_code
        init = await transaction_pb2_grpc.TransactionServiceStub(served.channel).InitProducerId(
            _Init(transactional_id="known", transaction_timeout_ms=60_000)
        )
        assert (init.producer_id, init.producer_epoch) == (0, 0)
        yield served


def _init(**fields: object) -> Message:
    return _Init(**({"transactional_id": "new", "transaction_timeout_ms": 60_000} | fields))  # type: ignore[arg-type]


def _add(*topics: common_pb2.TopicPartitions, **fields: object) -> Message:
    return _Add(topics=topics or [_Topic(topic="t", partitions=[0])], **(KNOWN | fields))  # type: ignore[arg-type]


def _end(**fields: object) -> Message:
    return _End(**(KNOWN | {"committed": True} | fields))  # type: ignore[arg-type]


BAD = [
    ("an empty transactional id", _init(transactional_id=""), ErrorCode.INVALID_REQUEST, "empty"),
    ("NUL in a transactional id", _init(transactional_id="a\0b"), ErrorCode.INVALID_REQUEST, "NUL"),
    ("a transactional id of 1,001 bytes", _init(transactional_id=LONG_ID), ErrorCode.INVALID_REQUEST, "1001"),
    ("a transactional id of 100 kB", _init(transactional_id="x" * 100_000), ErrorCode.INVALID_REQUEST, "100000"),
    ("no timeout", _init(transaction_timeout_ms=0), ErrorCode.INVALID_TRANSACTION_TIMEOUT, "1 to 900000"),
    ("a negative timeout", _init(transaction_timeout_ms=-5), ErrorCode.INVALID_TRANSACTION_TIMEOUT, "-5"),
    (
        "a timeout over the maximum",
        _init(transaction_timeout_ms=900_001),
        ErrorCode.INVALID_TRANSACTION_TIMEOUT,
        "900001",
    ),
    ("half an expected identity", _init(expected_producer_id=3), ErrorCode.INVALID_REQUEST, "belong together"),
    (
        "an expected identity that cannot be",
        _init(expected_producer_id=-7, expected_producer_epoch=2),
        ErrorCode.INVALID_REQUEST,
        "no identity",
    ),
    ("a request id of 3 bytes", _init(header=_Header(request_id=b"abc")), ErrorCode.INVALID_REQUEST, "16"),
    ("a client version of the future", _init(header=_Header(client_txn_version=9)), ErrorCode.UNSUPPORTED_VERSION, "9"),
    ("a switched-off feature", _init(enable_2pc=True), ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "two-phase"),
    ("add: an empty id", _add(transactional_id=""), ErrorCode.INVALID_REQUEST, "empty"),
    ("add: an uninitialised id", _add(transactional_id="ghost"), ErrorCode.INVALID_PRODUCER_ID_MAPPING, "ghost"),
    ("add: a negative epoch", _add(producer_epoch=-1), ErrorCode.INVALID_REQUEST, "-1"),
    ("add: an epoch beyond 16 bits", _add(producer_epoch=40_000), ErrorCode.INVALID_REQUEST, "40000"),
    ("add: another producer id", _add(producer_id=99), ErrorCode.INVALID_PRODUCER_ID_MAPPING, "99"),
    ("add: an epoch of the future", _add(producer_epoch=5), ErrorCode.PRODUCER_FENCED, "epoch 5"),
    (
        "add: an unknown topic",
        _add(_Topic(topic="nowhere", partitions=[0])),
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "nowhere",
    ),
    ("add: an unknown partition", _add(_Topic(topic="t", partitions=[2])), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "2"),
    ("add: a negative partition", _add(_Topic(topic="t", partitions=[-1])), ErrorCode.INVALID_REQUEST, "-1"),
    ("add: a partition twice", _add(_Topic(topic="t", partitions=[1, 1])), ErrorCode.INVALID_REQUEST, "twice"),
    ("add: a topic without a name", _add(_Topic(partitions=[0])), ErrorCode.INVALID_REQUEST, "without a topic"),
    (
        "add: a topic id that is another topic's",
        _add(_Topic(topic="t", topic_id=b"?" * 16, partitions=[0])),
        ErrorCode.INCONSISTENT_TOPIC_ID,
        "does not have the id",
    ),
    ("add: half a topic id", _add(_Topic(topic="t", topic_id=b"ab", partitions=[0])), ErrorCode.INVALID_REQUEST, "16"),
    ("end: an empty id", _end(transactional_id=""), ErrorCode.INVALID_REQUEST, "empty"),
    ("end: nothing to commit", _end(), ErrorCode.INVALID_TXN_STATE, "no transaction"),
    ("end: a negative producer id", _end(producer_id=-1), ErrorCode.INVALID_REQUEST, "no identity"),
    (
        "end: a negative sequence",
        _end(last_sequences=[transaction_pb2.LastSequence(topic="t", partition=0, sequence=-1)]),
        ErrorCode.INVALID_REQUEST,
        "negative",
    ),
]


@pytest.mark.parametrize(
    ("request_", "code", "said"), [row[1:] for row in BAD], ids=[row[0].replace(" ", "_") for row in BAD]
)
async def test_a_bad_request_is_refused_precisely_and_changes_nothing(
    server: InProcessServer, request_: Message, code: ErrorCode, said: str
) -> None:
    stub = transaction_pb2_grpc.TransactionServiceStub(server.channel)
    before = server.store.version()
    method = request_.DESCRIPTOR.name.removesuffix("Request")
    response = await getattr(stub, method)(request_)
    assert ErrorCode(response.error_code) is code, response
    assert response.error_class not in (ErrorClass.NONE, ErrorClass.UNKNOWN_OUTCOME)
    assert said in response.error_message, response.error_message
    assert server.store.version() == before, "a refused request wrote something"
    again = await stub.InitProducerId(_init(transactional_id="after"))
    assert not again.error_code, "the server goes on"


async def test_what_holds_for_every_partition_is_said_once(server: InProcessServer) -> None:
    """Ten thousand copies of a long message would be more than a client takes that was made with defaults."""
    stub = transaction_pb2_grpc.TransactionServiceStub(server.channel)
    response = await stub.AddPartitionsToTxn(
        _add(_Topic(topic="t", partitions=range(2)), transactional_id="x" * 1_000, producer_id=7)
    )
    assert response.error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert "x" * 1_000 in response.error_message
    assert [(each.error_code, each.error_message) for each in response.results] == [(response.error_code, "")] * 2


async def test_what_is_wrong_with_each_partition_is_said_of_it(server: InProcessServer) -> None:
    stub = transaction_pb2_grpc.TransactionServiceStub(server.channel)
    response = await stub.AddPartitionsToTxn(_add(_Topic(topic="t", partitions=[0, 8, 9])))
    untried, first, second = response.results
    assert "no partition 8" in response.error_message
    assert (untried.error_message, first.error_message) == ("", ""), "the response says it"
    assert "no partition 9" in second.error_message


@pytest.mark.parametrize("key_type", [0, 2, 4, -1])
async def test_a_key_of_no_type_has_no_coordinator(server: InProcessServer, key_type: int) -> None:
    """Kafka's 0 is a group: here callers that forget it send it, be it for a transactional id."""
    stub = transaction_pb2_grpc.TransactionServiceStub(server.channel)
    request = transaction_pb2.FindCoordinatorRequest(key_type=key_type, keys=["known"])  # type: ignore[arg-type]
    (found,) = (await stub.FindCoordinator(request)).coordinators
    assert (found.error_code, found.key, found.host) == (ErrorCode.INVALID_REQUEST, "known", "")
    assert f"key_type is {key_type}" in found.error_message


async def test_partitions_beside_an_unknown_one_are_not_attempted(server: InProcessServer) -> None:
    stub = transaction_pb2_grpc.TransactionServiceStub(server.channel)
    request = _add(_Topic(topic="t", partitions=[0]), _Topic(topic="nowhere", partitions=[0]))
    response = await stub.AddPartitionsToTxn(request)
    assert [ErrorCode(result.error_code) for result in response.results] == [
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    described = await stub.DescribeTransactions(
        transaction_pb2.DescribeTransactionsRequest(transactional_ids=["known"])
    )
    assert described.transactions[0].state == "Empty"


async def test_more_partitions_than_a_transaction_may_have_are_refused() -> None:
    async with in_process_server(partitions_per_transaction_max=3) as server:
        log = log_pb2_grpc.LogServiceStub(server.channel)
        await log.CreateTopics(log_pb2.CreateTopicsRequest(topics=[log_pb2.NewTopic(name="t", partition_count=4)]))
        stub = transaction_pb2_grpc.TransactionServiceStub(server.channel)
        await stub.InitProducerId(_init(transactional_id="known"))
        response = await stub.AddPartitionsToTxn(_add(_Topic(topic="t", partitions=range(4))))
        assert ErrorCode(response.error_code) is ErrorCode.INVALID_REQUEST
        assert "4 partitions, groups and share partitions" in response.error_message
        assert "at most 3" in response.error_message


async def test_bad_ids_of_a_description_fail_alone(server: InProcessServer) -> None:
    stub = transaction_pb2_grpc.TransactionServiceStub(server.channel)
    ids = ["", "ghost", "known", "a\0b"]
    response = await stub.DescribeTransactions(transaction_pb2.DescribeTransactionsRequest(transactional_ids=ids))
    assert [ErrorCode(described.error_code) for described in response.transactions] == [
        ErrorCode.INVALID_REQUEST,
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
    ]


async def test_filters_that_mean_nothing_are_said_to_mean_nothing(server: InProcessServer) -> None:
    stub = transaction_pb2_grpc.TransactionServiceStub(server.channel)
    response = await stub.ListTransactions(transaction_pb2.ListTransactionsRequest(state_filters=["Sleeping"]))
    assert list(response.unknown_state_filters) == ["Sleeping"]
    assert not response.transactions
    response = await stub.ListTransactions(transaction_pb2.ListTransactionsRequest(transactional_id_pattern="("))
    assert ErrorCode(response.error_code) is ErrorCode.INVALID_REGULAR_EXPRESSION


async def test_a_key_that_cannot_be_does_not_fail_the_others(server: InProcessServer) -> None:
    stub = transaction_pb2_grpc.TransactionServiceStub(server.channel)
    response = await stub.FindCoordinator(
        transaction_pb2.FindCoordinatorRequest(
            key_type=transaction_pb2.COORDINATOR_KEY_TYPE_TRANSACTION, keys=["", "known"]
        )
    )
    bad, good = response.coordinators
    assert ErrorCode(bad.error_code) is ErrorCode.INVALID_REQUEST
    assert (good.error_code, good.host, good.port) == (0, server.address.host, server.address.port)
