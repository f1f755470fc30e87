"""Payloads over a real port: what no reader could decode is refused in every way to write, and order is kept while a
large one is checked in its own process."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from coordinator_api.v1 import log_pb2, log_pb2_grpc, session_pb2, session_pb2_grpc, transaction_pb2
from coordinator_protocol.batch import Compression
from coordinator_protocol.compression import pack
from coordinator_protocol.errors import ErrorClass, ErrorCode
from coordinator_protocol.limits import MEBI
from partition_log.batch_checks import UNPACKED_HERE_BYTES_MAX
from tests.harness.in_process import InProcessServer, in_process_server
from tests.harness.patience import DEADLINE_SECONDS

GARBAGE = {"payload": b"garbage"}


@pytest.fixture
async def server() -> AsyncIterator[InProcessServer]:
    async with in_process_server() as running:
        topics = [log_pb2.NewTopic(name="t", partition_count=1)]
        stub = log_pb2_grpc.LogServiceStub(running.channel)
        await stub.CreateTopics(log_pb2.CreateTopicsRequest(topics=topics), timeout=DEADLINE_SECONDS)
        yield running


class Session:
    """Calls that are sent one after the other, without waiting, and answered in any order."""

    def __init__(self, server: InProcessServer) -> None:
        stub = session_pb2_grpc.SessionServiceStub(server.channel)
        self._stream = stub.Session(timeout=DEADLINE_SECONDS)
        self._sent: dict[int, type] = {}

    async def send(self, *requests) -> None:
        message = session_pb2.SessionRequest()
        for request in requests:
            name = type(request).__name__.removesuffix("Request")
            module = log_pb2 if hasattr(log_pb2, f"{name}Response") else transaction_pb2
            number = len(self._sent) + 1
            self._sent[number] = getattr(module, f"{name}Response")
            message.calls.add(correlation_id=number, method=name, body=request.SerializeToString())
        await self._stream.write(message)

    async def answers(self, count: int) -> dict[int, object]:
        found: dict[int, object] = {}
        while len(found) < count:
            for result in (await self._stream.read()).answers:
                assert result.status == 0, result
                found[result.correlation_id] = self._sent[result.correlation_id].FromString(result.body)
        return found


def a_batch(rows: int = 1, **fields) -> log_pb2.RecordBatch:
    records = log_pb2.Records(records=[log_pb2.Record(value=b"v" * 1_000)] * rows)
    compression = Compression(fields.get("compression", 0))
    plain = records.SerializeToString()
    given = {
        "record_count": rows,
        "encoding": log_pb2.ENCODING_RECORDS_V1,
        "payload": pack(plain, compression),
    }
    return log_pb2.RecordBatch(**{**given, **fields})


def produce(batch: log_pb2.RecordBatch, transactional_id: str | None = None) -> log_pb2.ProduceRequest:
    item = log_pb2.PartitionBatch(topic="t", partition=0, batch=batch)
    return log_pb2.ProduceRequest(transactional_id=transactional_id, batches=[item])


def transact(producer_id: int, *batches: log_pb2.RecordBatch) -> transaction_pb2.TransactRequest:
    request = transaction_pb2.TransactRequest(
        transactional_id="id", producer_id=producer_id, producer_epoch=0, committed=True
    )
    request.header.request_id = bytes(16)
    for batch in batches:
        request.batches.add(topic="t", partition=0, batch=batch)
    return request


async def initialised(session: Session) -> int:
    await session.send(transaction_pb2.InitProducerIdRequest(transactional_id="id", transaction_timeout_ms=60_000))
    (answer,) = (await session.answers(1)).values()
    assert isinstance(answer, transaction_pb2.InitProducerIdResponse)
    assert (answer.error_code, answer.producer_epoch) == (0, 0)
    return answer.producer_id


async def committed_records(server: InProcessServer) -> int:
    stub = log_pb2_grpc.LogServiceStub(server.channel)
    request = log_pb2.CountRecordsRequest(partitions=[log_pb2.CountQuery(topic="t")])
    answer = await stub.CountRecords(request, timeout=DEADLINE_SECONDS)
    return answer.results[0].committed_records


@pytest.mark.parametrize(
    "bad",
    [
        GARBAGE,
        {"record_count": 2},
        {"compression": 4, "payload": b"no zstd"},
        {"compression": 4, "payload": pack(bytes(17 * MEBI), Compression.ZSTD)},
    ],
)
async def test_what_no_reader_could_decode_is_refused_in_every_way(server: InProcessServer, bad: dict) -> None:
    session = Session(server)
    producer_id = await initialised(session)
    of_transaction = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0, "is_transactional": True}
    stub = log_pb2_grpc.LogServiceStub(server.channel)
    unary = (await stub.Produce(produce(a_batch(**bad)), timeout=DEADLINE_SECONDS)).results[0]
    await session.send(
        produce(a_batch(**bad)),
        produce(a_batch(**of_transaction, **bad), "id"),
        transact(producer_id, a_batch(base_sequence=0), a_batch(base_sequence=1, **bad)),
    )
    plain, within, whole = [answer for _, answer in sorted((await session.answers(3)).items())]
    for refused in (unary, plain.results[0], within.results[0], whole):
        assert (refused.error_code, refused.error_class) == (ErrorCode.INVALID_RECORD, ErrorClass.REJECTED)
        assert "no reader could read the batch: " in refused.error_message
    assert whole.error_message.startswith("partition t-0: ")
    assert await committed_records(server) == 0


@pytest.mark.parametrize("compression", sorted(set(Compression) - {Compression.NONE}))
async def test_a_transaction_with_a_large_batch_is_sent_at_once(
    server: InProcessServer, compression: Compression
) -> None:
    """Records, the end of their transaction and the next transaction, all without waiting for an answer."""
    session = Session(server)
    producer_id = await initialised(session)
    rows = 4 * UNPACKED_HERE_BYTES_MAX // 1_000
    of_transaction = {"producer_id": producer_id, "producer_epoch": 0, "is_transactional": True}
    large = a_batch(rows, base_sequence=0, compression=int(compression), **of_transaction)
    small = a_batch(1, base_sequence=rows, **of_transaction)
    end = transaction_pb2.EndTxnRequest(
        transactional_id="id", producer_id=producer_id, producer_epoch=0, committed=True
    )
    end.last_sequences.add(topic="t", partition=0, sequence=rows)
    next_one = transact(producer_id, a_batch(rows, base_sequence=0, compression=int(compression)))
    next_one.producer_epoch = 1
    await session.send(produce(large, "id"), produce(small, "id"), end, next_one)
    for answer in (await session.answers(4)).values():
        assert answer.error_code == 0, answer
    assert await committed_records(server) == 2 * rows + 1


async def test_the_setting_of_a_topic_is_shown(server: InProcessServer) -> None:
    stub = log_pb2_grpc.LogServiceStub(server.channel)
    topics = [log_pb2.NewTopic(name="any", partition_count=1, config={"validate_payload": "header"})]
    await stub.CreateTopics(log_pb2.CreateTopicsRequest(topics=topics), timeout=DEADLINE_SECONDS)
    described = await stub.DescribeTopics(log_pb2.DescribeTopicsRequest(), timeout=DEADLINE_SECONDS)
    assert [topic.config["validate_payload"] for topic in described.topics] == ["header", "full"]
