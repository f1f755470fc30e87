"""Transactions through a whole server, with bare stubs: both ways to finish, through a kill, and bad input."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest

from coordinator_api.v1 import common_pb2, log_pb2, log_pb2_grpc, transaction_pb2, transaction_pb2_grpc
from coordinator_protocol.errors import ErrorCode
from tests.harness.patience import DEADLINE_SECONDS, TRANSACTION_TIMEOUT_MS
from tests.harness.server_process import ServerProcess

pytestmark = [pytest.mark.slow, pytest.mark.kill, pytest.mark.usefixtures("combination")]

TOPIC = "flights"
PARTITIONS = 2


@dataclass
class Wire:
    """Both services of one server, and the identity of one producer."""

    server: ServerProcess
    channel: grpc.Channel
    producer_id: int = -1
    producer_epoch: int = -1
    transactional_id: str = "loader"

    def __post_init__(self) -> None:
        self.transactions = transaction_pb2_grpc.TransactionServiceStub(self.channel)
        self.log = log_pb2_grpc.LogServiceStub(self.channel)

    def create_topic(self) -> None:
        request = log_pb2.CreateTopicsRequest(topics=[log_pb2.NewTopic(name=TOPIC, partition_count=PARTITIONS)])
        (result,) = self.log.CreateTopics(request, timeout=DEADLINE_SECONDS, wait_for_ready=True).results
        assert result.error_code == 0, result.error_message

    def init(self) -> None:
        request = transaction_pb2.InitProducerIdRequest(
            transactional_id=self.transactional_id, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS
        )
        answer = self.transactions.InitProducerId(request, timeout=DEADLINE_SECONDS)
        assert answer.error_code == 0, answer.error_message
        self.producer_id, self.producer_epoch = answer.producer_id, answer.producer_epoch

    def produce(self, partition: int, sequence: int, *values: bytes) -> log_pb2.ProduceResult:
        payload = log_pb2.Records(records=[log_pb2.Record(value=value) for value in values]).SerializeToString()
        batch = log_pb2.RecordBatch(
            record_count=len(values),
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=sequence,
            is_transactional=True,
            encoding=log_pb2.ENCODING_RECORDS_V1,
            payload=payload,
        )
        request = log_pb2.ProduceRequest(
            transactional_id=self.transactional_id,
            batches=[log_pb2.PartitionBatch(topic=TOPIC, partition=partition, batch=batch)],
        )
        answer = self.log.Produce(request, timeout=DEADLINE_SECONDS)
        assert answer.error_code == 0, answer.error_message
        return answer.results[0]

    def end(self, *, committed: bool) -> transaction_pb2.EndTxnResponse:
        request = transaction_pb2.EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            committed=committed,
        )
        answer = self.transactions.EndTxn(request, timeout=DEADLINE_SECONDS)
        if answer.error_code == 0:
            self.producer_id, self.producer_epoch = answer.producer_id, answer.producer_epoch
        return answer

    def committed(self, partition: int) -> list[bytes]:
        """Return the values that a read-committed reader sees."""
        fetch = log_pb2.FetchPartition(topic=TOPIC, partition=partition)
        answer = self.log.Fetch(log_pb2.FetchRequest(partitions=[fetch]), timeout=DEADLINE_SECONDS)
        assert answer.error_code == 0, answer.error_message
        assert answer.results[0].error_code == 0, answer.results[0].error_message
        return [
            record.value
            for batch in answer.results[0].batches
            for record in log_pb2.Records.FromString(batch.payload).records
        ]

    def state(self) -> str:
        request = transaction_pb2.DescribeTransactionsRequest(transactional_ids=[self.transactional_id])
        answer = self.transactions.DescribeTransactions(request, timeout=DEADLINE_SECONDS)
        return answer.transactions[0].state

    def crash_and_restart(self) -> None:
        self.server.kill()
        self.server.start()
        # The old channel may write into the lost connection before it notices, or wait before it tries again.
        self.channel.close()
        self.channel = grpc.insecure_channel(self.server.address)
        self.__post_init__()
        wait = transaction_pb2.DescribeTransactionsRequest(transactional_ids=[self.transactional_id])
        self.transactions.DescribeTransactions(wait, timeout=DEADLINE_SECONDS, wait_for_ready=True)


@pytest.fixture(params=["fused", "split"])
def wire(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Wire]:
    with ServerProcess(tmp_path / "data", "--two-phase", request.param) as server:
        wire = Wire(server, grpc.insecure_channel(server.address))
        wire.create_topic()
        wire.init()
        yield wire
        wire.channel.close()


def test_a_commit_shows_all_partitions_and_an_abort_shows_none(wire: Wire) -> None:
    assert wire.produce(0, 0, b"a", b"b").error_code == 0
    assert wire.produce(1, 0, b"c").error_code == 0
    assert (wire.committed(0), wire.committed(1)) == ([], [])
    assert wire.end(committed=True).error_code == 0
    assert wire.produce(0, 0, b"hidden").error_code == 0
    assert wire.end(committed=False).error_code == 0
    if wire.state() == "PrepareAbort":
        wire.init()
    assert (wire.committed(0), wire.committed(1)) == ([b"a", b"b"], [b"c"])


def test_a_transaction_that_was_open_at_a_kill_goes_on_and_commits(wire: Wire) -> None:
    assert wire.produce(0, 0, b"before").error_code == 0
    wire.crash_and_restart()
    assert wire.state() == "Ongoing"
    assert wire.produce(0, 1, b"after").error_code == 0
    assert wire.end(committed=True).error_code == 0
    wire.init()
    assert wire.committed(0) == [b"before", b"after"]


def test_a_commit_that_was_answered_survives_a_kill(wire: Wire) -> None:
    assert wire.produce(0, 0, b"kept").error_code == 0
    assert wire.end(committed=True).error_code == 0
    wire.crash_and_restart()
    wire.init()
    assert wire.state() == "Empty"
    assert wire.committed(0) == [b"kept"]


def test_a_new_instance_fences_the_old_one(wire: Wire) -> None:
    old = Wire(wire.server, wire.channel, wire.producer_id, wire.producer_epoch)
    assert old.produce(0, 0, b"zombie").error_code == 0
    wire.init()
    assert old.produce(0, 1, b"zombie").error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert old.end(committed=True).error_code == ErrorCode.PRODUCER_FENCED
    assert wire.committed(0) == []


@pytest.mark.long
@pytest.mark.parametrize("transactional_id", ["", "a\0b", "x" * 1001])
def test_ids_that_cannot_be_are_refused_and_the_server_goes_on(wire: Wire, transactional_id: str) -> None:
    request = transaction_pb2.InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS
    )
    answer = wire.transactions.InitProducerId(request, timeout=DEADLINE_SECONDS)
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert answer.error_class == common_pb2.ERROR_CLASS_REJECTED
    assert wire.state() == "Empty"
