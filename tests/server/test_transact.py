"""Transact over a real port, as a unary call and as a call of a session."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from coordinator_api.v1 import (
    common_pb2,
    group_pb2,
    group_pb2_grpc,
    log_pb2,
    log_pb2_grpc,
    session_pb2,
    session_pb2_grpc,
    transaction_pb2,
    transaction_pb2_grpc,
)
from coordinator_protocol.errors import ErrorClass, ErrorCode, error_class
from coordinator_protocol.methods import Method
from tests.harness.in_process import InProcessServer, in_process_server
from tests.harness.patience import DEADLINE_SECONDS, TRANSACTION_TIMEOUT_MS
from txn_coordinator.outcomes import TwoPhase

Send = Callable[[transaction_pb2.TransactRequest], Awaitable[transaction_pb2.TransactResponse]]
UNTRIED = ErrorCode.OPERATION_NOT_ATTEMPTED


@pytest.fixture(params=list(TwoPhase))
async def server(request: pytest.FixtureRequest) -> AsyncIterator[InProcessServer]:
    async with in_process_server(two_phase=request.param) as running:
        topics = [log_pb2.NewTopic(name="t", partition_count=3)]
        created = await _log(running).CreateTopics(log_pb2.CreateTopicsRequest(topics=topics), timeout=DEADLINE_SECONDS)
        assert created.results[0].error_code == 0
        yield running


@pytest.fixture(params=["unary", "session"])
async def send(request: pytest.FixtureRequest, server: InProcessServer) -> AsyncIterator[Send]:
    if request.param == "unary":
        stub = _transactions(server)
        yield lambda transact: stub.Transact(transact, timeout=DEADLINE_SECONDS)
        return
    stream = session_pb2_grpc.SessionServiceStub(server.channel).Session(timeout=DEADLINE_SECONDS)
    numbers = iter(range(1, 1_000))

    async def operate(transact: transaction_pb2.TransactRequest) -> transaction_pb2.TransactResponse:
        number = next(numbers)
        call = session_pb2.SessionCall(correlation_id=number, method="Transact", body=transact.SerializeToString())
        await stream.write(session_pb2.SessionRequest(calls=[call]))
        while True:
            for result in (await stream.read()).answers:
                assert (result.correlation_id, result.status) == (number, 0), result
                return transaction_pb2.TransactResponse.FromString(result.body)

    yield operate
    await stream.done_writing()


async def test_a_whole_transaction_is_one_request(server: InProcessServer, send: Send) -> None:
    producer_id, epoch = await _init(server)
    request = _transact(producer_id, epoch, b"1" * 16, {0: b"a", 1: b"b", 2: b"c"}, offset=7)
    answer = await send(request)
    assert answer.error_code == 0, answer.error_message
    assert (answer.producer_id, answer.producer_epoch, answer.csn) == (producer_id, epoch + 1, 1)
    assert [(each.topic, each.partition, each.first_offset) for each in answer.results] == [
        ("t", 0, 0),
        ("t", 1, 0),
        ("t", 2, 0),
    ]
    repeated = await send(request)
    assert repeated == answer
    following = await send(_transact(producer_id, epoch + 1, b"2" * 16, {1: b"d"}))
    assert (following.csn, following.results[0].first_offset) == (2, 2)
    assert await _read(server, 1) == [b"b", b"d"]
    assert await _offset(server) == 7


async def test_what_is_refused_anywhere_is_refused_as_a_whole_and_named(server: InProcessServer, send: Send) -> None:
    producer_id, epoch = await _init(server)
    request = _transact(producer_id, epoch, b"1" * 16, {0: b"a", 1: b"b"}, offset=7)
    request.batches[1].batch.base_sequence = 3
    refused = await send(request)
    assert refused.error_code == ErrorCode.UNKNOWN_PRODUCER_ID
    assert refused.error_class == ErrorClass.ABORT
    assert refused.error_message.startswith("partition t-1: ")
    assert (refused.producer_id, refused.csn) == (0, 0)
    assert _told(refused) == (
        [("t", 0, UNTRIED, ErrorClass.ABORT), ("t", 1, ErrorCode.UNKNOWN_PRODUCER_ID, ErrorClass.ABORT)],
        [("g", UNTRIED)],
    )
    assert [each.first_offset for each in refused.results] == [0, 0]
    assert await _read(server, 0) == []
    assert await _offset(server) == -1
    request.batches[1].batch.base_sequence = 0
    assert (await send(request)).csn == 1


@pytest.mark.parametrize(
    ("change", "code", "at_fault"),
    [
        (lambda request: setattr(request.batches[1], "topic", "u"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 1),
        (lambda request: setattr(request.batches[1], "topic", "no topic"), ErrorCode.INVALID_TOPIC_EXCEPTION, 1),
        (lambda request: setattr(request.batches[1], "partition", -1), ErrorCode.INVALID_REQUEST, 1),
        (lambda request: setattr(request.batches[0].batch, "record_count", 0), ErrorCode.INVALID_RECORD, 0),
        (lambda request: setattr(request.batches[0].batch, "crc32c", 7), ErrorCode.CORRUPT_MESSAGE, 0),
        (lambda request: setattr(request.batches[0].batch, "payload", b"?"), ErrorCode.INVALID_RECORD, 0),
        (
            lambda request: setattr(request.groups[0], "generation_id_or_member_epoch", 3),
            ErrorCode.ILLEGAL_GENERATION,
            "g",
        ),
        (lambda request: setattr(request.groups[0], "group_id", ""), ErrorCode.INVALID_GROUP_ID, ""),
        (
            lambda request: setattr(request.groups[0].topics[0], "topic", "u"),
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "g",
        ),
        (lambda request: setattr(request, "producer_epoch", 9), ErrorCode.PRODUCER_FENCED, None),
        (lambda request: setattr(request, "producer_id", -1), ErrorCode.INVALID_REQUEST, None),
        (lambda request: setattr(request, "transactional_id", ""), ErrorCode.INVALID_REQUEST, None),
        (lambda request: setattr(request, "transactional_id", "nobody"), ErrorCode.INVALID_PRODUCER_ID_MAPPING, None),
        (lambda request: request.header.ClearField("request_id"), ErrorCode.INVALID_REQUEST, None),
    ],
)
async def test_fields_tell_which_partition_or_group_is_at_fault(
    change: Callable[[transaction_pb2.TransactRequest], None], code: ErrorCode, at_fault: int | str | None
) -> None:
    async with in_process_server() as server:
        topics = [log_pb2.NewTopic(name="t", partition_count=2)]
        await _log(server).CreateTopics(log_pb2.CreateTopicsRequest(topics=topics), timeout=DEADLINE_SECONDS)
        producer_id, epoch = await _init(server)
        request = _transact(producer_id, epoch, b"1" * 16, {0: b"a", 1: b"b"}, offset=7)
        change(request)
        answer = await _transactions(server).Transact(request, timeout=DEADLINE_SECONDS)
    parts: list[int | str] = [0, 1, request.groups[0].group_id]
    expected = [code if at_fault in (None, part) else UNTRIED for part in parts]
    assert ErrorCode(answer.error_code) is code, answer.error_message
    told = [*answer.results, *answer.group_results]
    assert [ErrorCode(each.error_code) for each in told] == expected
    assert [each.error_class for each in told] == [error_class(Method.TRANSACT, each) for each in expected]
    named = [(each.topic, each.partition) for each in answer.results]
    assert named == [(each.topic, each.partition) for each in request.batches]


async def test_all_batches_of_the_partition_at_fault_say_so() -> None:
    async with in_process_server() as server:
        topics = [log_pb2.NewTopic(name="t", partition_count=2)]
        created = await _log(server).CreateTopics(log_pb2.CreateTopicsRequest(topics=topics), timeout=DEADLINE_SECONDS)
        producer_id, epoch = await _init(server)
        request = _transact(producer_id, epoch, b"1" * 16, {0: b"a", 1: b"b"})
        again = request.batches.add()
        again.CopyFrom(request.batches[1])
        # By its id alone, and with a sequence number that does not follow.
        again.topic, again.topic_id, again.batch.base_sequence = "", created.results[0].topic_id, 5
        answer = await _transactions(server).Transact(request, timeout=DEADLINE_SECONDS)
    sequence = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert [ErrorCode(each.error_code) for each in answer.results] == [UNTRIED, sequence, sequence]


def _told(answer: transaction_pb2.TransactResponse) -> tuple[list[tuple[str, int, int, int]], list[tuple[str, int]]]:
    return (
        [(each.topic, each.partition, each.error_code, each.error_class) for each in answer.results],
        [(each.group_id, each.error_code) for each in answer.group_results],
    )


async def test_more_batches_than_partitions_are_allowed_are_refused() -> None:
    async with in_process_server(partitions_per_transaction_max=2) as server:
        producer_id, epoch = await _init(server)
        request = _transact(producer_id, epoch, b"1" * 16, {0: b"a", 1: b"b", 2: b"c"})
        answer = await _transactions(server).Transact(request, timeout=DEADLINE_SECONDS)
        assert answer.error_code == ErrorCode.INVALID_REQUEST
        assert "3 batches" in answer.error_message


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda request: request.header.ClearField("request_id"), ErrorCode.INVALID_REQUEST),
        # Taken for an abort, it would lose the records and be answered as a success.
        (lambda request: request.ClearField("committed"), ErrorCode.INVALID_REQUEST),
        (lambda request: setattr(request.header, "client_txn_version", 1), ErrorCode.UNSUPPORTED_VERSION),
        (lambda request: setattr(request.header, "request_id", b"short"), ErrorCode.INVALID_REQUEST),
        (lambda request: setattr(request, "producer_id", -1), ErrorCode.INVALID_REQUEST),
        (lambda request: setattr(request, "transactional_id", "nobody"), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (lambda request: setattr(request, "producer_epoch", 9), ErrorCode.PRODUCER_FENCED),
        (lambda request: setattr(request.batches[0], "topic", "u"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        # Nothing that it names exists: not to be taken for a request without batches.
        (
            lambda request: (request.ClearField("groups"), setattr(request.batches[0], "topic", "u")),
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ),
        (lambda request: setattr(request.batches[0], "partition", -1), ErrorCode.INVALID_REQUEST),
        (lambda request: setattr(request.batches[0].batch, "record_count", 0), ErrorCode.INVALID_RECORD),
        (lambda request: setattr(request.batches[0].batch, "crc32c", 7), ErrorCode.CORRUPT_MESSAGE),
        (lambda request: setattr(request.batches[0].batch, "producer_id", 99), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (lambda request: request.batches[0].batch.ClearField("base_sequence"), ErrorCode.INVALID_RECORD),
        (lambda request: request.groups.add(group_id="g"), ErrorCode.INVALID_REQUEST),
        (lambda request: setattr(request.groups[0], "group_id", ""), ErrorCode.INVALID_GROUP_ID),
        (lambda request: setattr(request.groups[0], "generation_id_or_member_epoch", 3), ErrorCode.ILLEGAL_GENERATION),
        (
            lambda request: setattr(request.groups[0].topics[0], "topic", "u"),
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ),
        (
            lambda request: setattr(request.groups[0].topics[0].partitions[0], "committed_offset", -1),
            ErrorCode.INVALID_REQUEST,
        ),
    ],
)
async def test_bad_requests(change: Callable[[transaction_pb2.TransactRequest], None], code: ErrorCode) -> None:
    async with in_process_server() as server:
        topics = [log_pb2.NewTopic(name="t", partition_count=1)]
        await _log(server).CreateTopics(log_pb2.CreateTopicsRequest(topics=topics), timeout=DEADLINE_SECONDS)
        producer_id, epoch = await _init(server)
        request = _transact(producer_id, epoch, b"1" * 16, {0: b"a"}, offset=7)
        change(request)
        answer = await _transactions(server).Transact(request, timeout=DEADLINE_SECONDS)
        assert ErrorCode(answer.error_code) is code, answer.error_message
        assert await _read(server, 0) == []
        assert await _offset(server) == -1
        # Nothing was opened either.
        assert await _state(server) == "Empty"


async def test_an_end_that_does_not_say_which_ends_nothing() -> None:
    async with in_process_server() as server:
        producer_id, epoch = await _init(server)
        group = group_pb2.TxnOffsetCommitRequest(
            transactional_id="id", producer_id=producer_id, producer_epoch=epoch, group_id="g"
        )
        topics = [log_pb2.NewTopic(name="t", partition_count=1)]
        await _log(server).CreateTopics(log_pb2.CreateTopicsRequest(topics=topics), timeout=DEADLINE_SECONDS)
        group.topics.add(topic="t").partitions.add(partition=0, committed_offset=1)
        opened = await group_pb2_grpc.GroupServiceStub(server.channel).TxnOffsetCommit(group, timeout=DEADLINE_SECONDS)
        assert opened.error_code == ErrorCode.NONE
        end = transaction_pb2.EndTxnRequest(transactional_id="id", producer_id=producer_id, producer_epoch=epoch)
        answer = await _transactions(server).EndTxn(end, timeout=DEADLINE_SECONDS)
        assert (answer.error_code, answer.error_class) == (ErrorCode.INVALID_REQUEST, ErrorClass.REJECTED)
        assert await _state(server) == "Ongoing"


def _transact(
    producer_id: int, epoch: int, request_id: bytes, values: dict[int, bytes], offset: int | None = None
) -> transaction_pb2.TransactRequest:
    request = transaction_pb2.TransactRequest(
        header=common_pb2.RequestHeader(request_id=request_id),
        transactional_id="id",
        producer_id=producer_id,
        producer_epoch=epoch,
        committed=True,
    )
    for partition, value in values.items():
        records = log_pb2.Records(records=[log_pb2.Record(value=value, timestamp_ms=1)])
        batch = log_pb2.RecordBatch(
            record_count=1,
            base_timestamp_ms=1,
            max_timestamp_ms=1,
            base_sequence=0,
            encoding=log_pb2.ENCODING_RECORDS_V1,
            payload=records.SerializeToString(),
        )
        request.batches.add(topic="t", partition=partition, batch=batch)
    if offset is not None:
        group = request.groups.add(group_id="g")
        group.topics.add(topic="t").partitions.add(partition=0, committed_offset=offset)
    return request


def _log(server: InProcessServer) -> log_pb2_grpc.LogServiceAsyncStub:
    return log_pb2_grpc.LogServiceStub(server.channel)  # type: ignore[return-value]  # the stubs are typed by channel


def _transactions(server: InProcessServer) -> transaction_pb2_grpc.TransactionServiceAsyncStub:
    return transaction_pb2_grpc.TransactionServiceStub(server.channel)  # type: ignore[return-value]  # the same


async def _init(server: InProcessServer) -> tuple[int, int]:
    request = transaction_pb2.InitProducerIdRequest(
        transactional_id="id", transaction_timeout_ms=TRANSACTION_TIMEOUT_MS
    )
    answer = await _transactions(server).InitProducerId(request, timeout=DEADLINE_SECONDS)
    assert answer.error_code == 0, answer.error_message
    return answer.producer_id, answer.producer_epoch


async def _state(server: InProcessServer) -> str:
    request = transaction_pb2.DescribeTransactionsRequest(transactional_ids=["id"])
    (found,) = (await _transactions(server).DescribeTransactions(request, timeout=DEADLINE_SECONDS)).transactions
    return found.state


async def _read(server: InProcessServer, partition: int) -> list[bytes]:
    """The committed values; waits for a marker that is on its way."""
    while True:
        item = log_pb2.FetchPartition(topic="t", partition=partition)
        answer = await _log(server).Fetch(log_pb2.FetchRequest(partitions=[item]), timeout=DEADLINE_SECONDS)
        (found,) = answer.results
        if found.last_stable_offset == found.high_watermark:
            break
    return [record.value for each in found.batches for record in log_pb2.Records.FromString(each.payload).records]


async def _offset(server: InProcessServer) -> int:
    stub = group_pb2_grpc.GroupServiceStub(server.channel)
    topics = [common_pb2.TopicPartitions(topic="t", partitions=[0])]
    asked = group_pb2.OffsetFetchGroup(group_id="g", topics=group_pb2.PartitionSet(topics=topics))
    answer = await stub.OffsetFetch(group_pb2.OffsetFetchRequest(groups=[asked]), timeout=DEADLINE_SECONDS)
    return answer.groups[0].offsets[0].committed_offset
