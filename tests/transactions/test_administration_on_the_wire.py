"""Requests of administrators and peers, over real gRPC."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio

from coordinator_api.v1 import (
    admin_pb2,
    admin_pb2_grpc,
    common_pb2,
    log_pb2,
    log_pb2_grpc,
    transaction_pb2,
    transaction_pb2_grpc,
)
from coordinator_protocol.errors import ErrorClass, ErrorCode
from coordinator_runtime.decision import Coordinator, ShardRouter
from tests.harness.in_process import in_process_server

_Selector = admin_pb2.TransactionSelector
_Topic = common_pb2.TopicPartitions
_Member = transaction_pb2.AddPartitionsToTxnTransaction
HEADER = common_pb2.RequestHeader(client_id="console")


SHARD_COUNT = 4


def shard_of(transactional_id: str) -> int:
    """Its coordinator shard."""
    return ShardRouter(Coordinator.TRANSACTIONS, SHARD_COUNT).shard_key(transactional_id).number


@dataclass
class Api:
    """The stubs. They are not generic, so their answers are Any."""

    transactions: Any
    log: Any
    admin: Any

    async def init(self, transactional_id: str) -> Any:
        return await self.transactions.InitProducerId(
            transaction_pb2.InitProducerIdRequest(
                header=common_pb2.RequestHeader(client_id="billing"),
                transactional_id=transactional_id,
                transaction_timeout_ms=60_000,
            )
        )

    async def opened(self, transactional_id: str, partition: int = 0) -> Any:
        identity = await self.init(transactional_id)
        batch = log_pb2.RecordBatch(
            record_count=1,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            base_sequence=0,
            is_transactional=True,
            encoding=log_pb2.ENCODING_RECORDS_V1,
            payload=log_pb2.Records(records=[log_pb2.Record(value=b"x")]).SerializeToString(),
        )
        batches = [log_pb2.PartitionBatch(topic="t", partition=partition, batch=batch)]
        produced = await self.log.Produce(
            log_pb2.ProduceRequest(header=HEADER, transactional_id=transactional_id, batches=batches)
        )
        assert not produced.results[0].error_code, produced
        return identity


@pytest_asyncio.fixture
async def api() -> AsyncIterator[Api]:
    async with in_process_server(shard_count=SHARD_COUNT) as served:
        found = Api(
            transaction_pb2_grpc.TransactionServiceStub(served.channel),
            log_pb2_grpc.LogServiceStub(served.channel),
            admin_pb2_grpc.AdminServiceStub(served.channel),
        )
        await found.log.CreateTopics(
            log_pb2.CreateTopicsRequest(topics=[log_pb2.NewTopic(name="t", partition_count=2)])
        )
        yield found


async def test_abort_and_fence_answer_the_fenced_identity_and_the_age(api: Api) -> None:
    identity = await api.opened("a")
    for dry_run in (True, False):
        reply = await api.admin.AbortTransactions(
            admin_pb2.AbortTransactionsRequest(
                selector=_Selector(transactional_ids=["a", "ghost"]), dry_run=dry_run, header=HEADER
            )
        )
        aborted, ghost = reply.results
        assert (aborted.error_code, aborted.state, aborted.partition_count) == (0, "Ongoing", 1)
        assert (aborted.fenced_producer_id, aborted.fenced_producer_epoch) == (
            identity.producer_id,
            identity.producer_epoch,
        )
        assert aborted.age_ms >= 0
        assert ghost.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    fenced = await api.admin.FenceProducers(
        admin_pb2.FenceProducersRequest(selector=_Selector(transactional_id_prefix="a"), header=HEADER)
    )
    (result,) = fenced.results
    assert (result.state, result.fenced_producer_epoch) == ("CompleteAbort", identity.producer_epoch + 1)
    assert not result.HasField("age_ms")
    nothing = await api.admin.AbortTransactions(admin_pb2.AbortTransactionsRequest(header=HEADER))
    assert nothing.error_code == ErrorCode.INVALID_REQUEST


async def test_a_description_has_a_history_when_asked(api: Api) -> None:
    identity = await api.opened("a")
    await api.admin.FenceProducers(
        admin_pb2.FenceProducersRequest(selector=_Selector(transactional_ids=["a"]), header=HEADER)
    )
    request = transaction_pb2.DescribeTransactionsRequest(transactional_ids=["a", "ghost"], history_limit=3)
    described, ghost = (await api.transactions.DescribeTransactions(request)).transactions
    assert ghost.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert [(step.state, step.cause, step.client_id) for step in described.history] == [
        ("Empty", "admin", "console"),
        ("CompleteAbort", "admin", "console"),
        ("PrepareAbort", "admin", "console"),
    ]
    decided = described.history[2]
    assert (decided.fenced_producer_id, decided.fenced_producer_epoch) == (
        identity.producer_id,
        identity.producer_epoch,
    )
    assert (decided.participant_count, decided.csn) == (1, 1)
    assert decided.host
    assert not described.history_complete
    plain = await api.transactions.DescribeTransactions(
        transaction_pb2.DescribeTransactionsRequest(transactional_ids=["a"])
    )
    assert not plain.transactions[0].history
    for limit in (-1, 101):
        refused = await api.transactions.DescribeTransactions(
            transaction_pb2.DescribeTransactionsRequest(transactional_ids=["a"], history_limit=limit)
        )
        assert refused.error_code == ErrorCode.INVALID_REQUEST
    many = await api.transactions.DescribeTransactions(
        transaction_pb2.DescribeTransactionsRequest(transactional_ids=[str(n) for n in range(101)], history_limit=1)
    )
    assert many.error_code == ErrorCode.INVALID_REQUEST


async def test_producers_are_described_with_what_they_have_open(api: Api) -> None:
    identity = await api.opened("a")
    topics = [_Topic(topic="t", partitions=[0, 1, 7]), _Topic(topic="no", partitions=[0]), _Topic(topic="a b")]
    topics[2].partitions.append(0)
    reply = await api.log.DescribeProducers(log_pb2.DescribeProducersRequest(topics=topics))
    described, empty, *refused = reply.partitions
    (producer,) = described.producers
    assert (producer.producer_id, producer.producer_epoch) == (identity.producer_id, identity.producer_epoch)
    assert (producer.last_sequence, producer.coordinator_epoch, producer.last_marker_csn) == (0, -1, 0)
    assert producer.current_txn_start_offset == 0
    assert producer.HasField("current_txn_start_offset")
    assert producer.last_timestamp_ms == producer.current_txn_start_ms > 0
    assert not empty.producers
    assert [each.error_code for each in refused] == [3, 3, ErrorCode.INVALID_TOPIC_EXCEPTION]

    await api.admin.AbortTransactions(
        admin_pb2.AbortTransactionsRequest(selector=_Selector(transactional_ids=["a"]), header=HEADER)
    )
    reply = await api.log.DescribeProducers(log_pb2.DescribeProducersRequest(topics=topics[:1]))
    (producer,) = reply.partitions[0].producers
    assert (producer.producer_epoch, producer.last_marker_csn) == (identity.producer_epoch + 1, 1)
    assert producer.coordinator_shard == shard_of("a")
    assert producer.coordinator_epoch > 0
    assert not producer.HasField("current_txn_start_offset")


async def test_a_partition_is_explained_with_all_that_is_known(api: Api) -> None:
    request = admin_pb2.ExplainPartitionRequest(header=HEADER, topic="t", partition=0, history_limit=2)
    nothing = await api.admin.ExplainPartition(request)
    assert (nothing.error_code, nothing.next_event) == (0, admin_pb2.NEXT_EVENT_NOTHING_IN_THE_WAY)
    assert not nothing.HasField("blocking")

    identity = await api.opened("a")
    explained = await api.admin.ExplainPartition(request)
    assert (explained.topic, len(explained.topic_id), explained.partition) == ("t", 16, 0)
    assert (explained.log_start_offset, explained.last_stable_offset, explained.high_watermark) == (0, 0, 1)
    assert (explained.undecided_offsets, explained.open_transactions) == (1, 1)
    assert explained.next_event == admin_pb2.NEXT_EVENT_CLIENT_OR_TIMEOUT
    blocking = explained.blocking
    assert (blocking.producer_id, blocking.producer_epoch) == (identity.producer_id, identity.producer_epoch)
    assert (blocking.start_offset, blocking.owner_hidden, blocking.hanging_reason) == (0, False, "")
    assert blocking.start_ms > 0
    assert 0 <= blocking.time_left_ms <= 60_000
    described = blocking.transaction
    assert (described.transactional_id, described.state, described.transaction_timeout_ms) == ("a", "Ongoing", 60_000)
    assert described.topics == [_Topic(topic="t", topic_id=explained.topic_id, partitions=[0])]
    assert [(step.state, step.cause) for step in described.history] == [("Ongoing", "add"), ("Empty", "init")]
    assert described.history[0].host
    assert described.history_complete

    by_id = await api.admin.ExplainPartition(admin_pb2.ExplainPartitionRequest(topic_id=explained.topic_id))
    assert (by_id.topic, by_id.blocking.transaction.transactional_id) == ("t", "a")
    assert not by_id.blocking.transaction.history


async def test_what_cannot_be_explained_is_refused_in_band(api: Api) -> None:
    for fields, code in (
        ({"topic": "no"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"topic": "t", "partition": 2}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"topic": "a b"}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ({"topic": "t", "topic_id": b"short"}, ErrorCode.INVALID_REQUEST),
        ({}, ErrorCode.INVALID_REQUEST),
        ({"topic": "t", "history_limit": 101}, ErrorCode.INVALID_REQUEST),
    ):
        refused = await api.admin.ExplainPartition(admin_pb2.ExplainPartitionRequest(**fields))
        assert (refused.error_code, refused.error_class) == (code, ErrorClass.REJECTED), fields
        assert refused.error_message
        assert refused.next_event == admin_pb2.NEXT_EVENT_UNSPECIFIED


async def test_markers_from_outside_answer_per_producer_and_partition(api: Api) -> None:
    empty = await api.log.WriteTxnMarkers(log_pb2.WriteTxnMarkersRequest(header=HEADER))
    assert (empty.error_code, list(empty.results)) == (0, [])
    identity = await api.opened("a")
    marker = log_pb2.ControlMarker(
        committed=True, next_epoch=1, coordinator_epoch=1, csn=1, coordinator_shard=shard_of("a")
    )
    asked = log_pb2.TxnMarker(
        producer_id=identity.producer_id, marker=marker, topics=[_Topic(topic="t", partitions=[0, 5])]
    )
    reply = await api.log.WriteTxnMarkers(log_pb2.WriteTxnMarkersRequest(header=HEADER, markers=[asked]))
    (of_producer,) = reply.results
    assert of_producer.producer_id == identity.producer_id
    assert [(each.partition, each.error_code, each.error_class) for each in of_producer.partitions] == [
        (0, ErrorCode.INVALID_REQUEST, ErrorClass.REJECTED),  # no outcome was ever decided here
        (5, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorClass.REJECTED),
    ]


@pytest.mark.parametrize("shard", [64, 65_534])
async def test_a_marker_of_a_coordinator_shard_that_is_none_is_refused(api: Api, shard: int) -> None:
    identity = await api.opened("a")
    marker = log_pb2.ControlMarker(committed=True, next_epoch=1, coordinator_epoch=1, csn=1, coordinator_shard=shard)
    asked = log_pb2.TxnMarker(
        producer_id=identity.producer_id, marker=marker, topics=[_Topic(topic="t", partitions=[1])]
    )
    reply = await api.log.WriteTxnMarkers(log_pb2.WriteTxnMarkersRequest(header=HEADER, markers=[asked]))
    (result,) = reply.results[0].partitions
    assert (result.error_code, result.error_class) == (ErrorCode.INVALID_REQUEST, ErrorClass.REJECTED)
    assert f"there is no coordinator shard {shard}" in result.error_message


@pytest.mark.parametrize("shard", [-(2**31), -1, 65_535, 65_536, 2**31 - 1])
async def test_a_marker_of_a_coordinator_shard_that_none_can_have_refuses_the_request(api: Api, shard: int) -> None:
    marker = log_pb2.ControlMarker(committed=True, next_epoch=1, coordinator_epoch=1, csn=1, coordinator_shard=shard)
    asked = log_pb2.TxnMarker(producer_id=7, marker=marker, topics=[_Topic(topic="t", partitions=[0])])
    reply = await api.log.WriteTxnMarkers(log_pb2.WriteTxnMarkersRequest(header=HEADER, markers=[asked]))
    assert (reply.error_code, reply.error_class) == (ErrorCode.INVALID_REQUEST, ErrorClass.REJECTED)
    assert f"coordinator shard {shard} cannot be" in reply.error_message


async def test_members_of_a_batch_are_independent(api: Api) -> None:
    first, second = await api.init("a"), await api.init("b")
    topic = [_Topic(topic="t", partitions=[0])]
    reply = await api.transactions.AddPartitionsToTxn(
        transaction_pb2.AddPartitionsToTxnRequest(
            header=HEADER,
            transactions=[
                _Member(transactional_id="a", producer_id=first.producer_id, topics=topic),
                _Member(transactional_id="b", producer_id=second.producer_id, producer_epoch=9, topics=topic),
                _Member(transactional_id="", topics=topic),
                _Member(transactional_id="b", producer_id=second.producer_id, topics=[_Topic(topic="no"), *topic]),
                _Member(transactional_id="a", producer_id=first.producer_id, topics=topic, verify_only=True),
                _Member(transactional_id="b", producer_id=second.producer_id, topics=topic, verify_only=True),
            ],
        )
    )
    assert (reply.error_code, list(reply.results)) == (0, [])
    assert [
        (each.transactional_id, each.error_code, [result.error_code for result in each.results])
        for each in reply.transactions
    ] == [
        ("a", 0, [0]),
        ("b", ErrorCode.PRODUCER_FENCED, [ErrorCode.PRODUCER_FENCED]),
        ("", ErrorCode.INVALID_REQUEST, [ErrorCode.INVALID_REQUEST]),
        ("b", 0, [0]),  # a topic without partitions names none
        ("a", 0, [0]),
        ("b", 0, [0]),
    ]
    partly = await api.transactions.AddPartitionsToTxn(
        transaction_pb2.AddPartitionsToTxnRequest(
            transactions=[
                _Member(
                    transactional_id="a",
                    producer_id=first.producer_id,
                    topics=[_Topic(topic="t", partitions=[1, 7])],
                )
            ]
        )
    )
    (member,) = partly.transactions
    assert [result.error_code for result in member.results] == [
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]


async def test_a_batch_that_is_also_a_single_request_or_too_large_is_refused(api: Api) -> None:
    member = _Member(transactional_id="b", topics=[_Topic(topic="t", partitions=[1])])
    for request, said in (
        (transaction_pb2.AddPartitionsToTxnRequest(transactional_id="a", transactions=[member]), "not both"),
        (transaction_pb2.AddPartitionsToTxnRequest(transactions=[member] * 1_001), "1001 transactions"),
    ):
        reply = await api.transactions.AddPartitionsToTxn(request)
        assert reply.error_code == ErrorCode.INVALID_REQUEST
        assert said in reply.error_message
        assert len(reply.transactions) == len(request.transactions)
        for each in reply.transactions:
            assert (each.transactional_id, each.error_code) == ("b", ErrorCode.INVALID_REQUEST)
            assert [(result.partition, result.error_code) for result in each.results] == [(1, each.error_code)]


async def test_nothing_hangs_and_what_is_owned_is_not_aborted_by_partition(api: Api) -> None:
    await api.opened("a", partition=1)
    listed = await api.admin.ListHangingTransactions(admin_pb2.ListHangingTransactionsRequest(header=HEADER))
    assert list(listed.transactions) == []
    for partition, said in ((1, "use AbortTransactions"), (0, "no such transaction is open")):
        refused = await api.admin.AbortHangingTransactions(
            admin_pb2.AbortHangingTransactionsRequest(header=HEADER, topic="t", partition=partition)
        )
        assert refused.error_code == ErrorCode.INVALID_TXN_STATE
        assert said in refused.error_message
    unknown = await api.admin.AbortHangingTransactions(
        admin_pb2.AbortHangingTransactionsRequest(header=HEADER, topic="t", partition=9)
    )
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(
    "named", [{}, {"run_id": "r"}, {"batch_id": 0}, {"run_id": "r", "batch_id": 0, "every_run": True}]
)
async def test_who_does_not_say_which_batch_gives_up_none(api: Api, named: dict[str, Any]) -> None:
    join = transaction_pb2.JoinBatchRequest(
        header=common_pb2.RequestHeader(client_id="task", request_id=bytes(16)),
        sink="s",
        run_id="r",
        transaction_timeout_ms=60_000,
    )
    assert (await api.transactions.JoinBatch(join)).error_code == 0
    refused = await api.transactions.AbortBatch(transaction_pb2.AbortBatchRequest(sink="s", **named))
    assert (refused.error_code, refused.error_class) == (ErrorCode.INVALID_REQUEST, ErrorClass.REJECTED)
    for meant in ({"run_id": "r", "batch_id": 0}, {"every_run": True}):
        answer = await api.transactions.AbortBatch(transaction_pb2.AbortBatchRequest(sink="s", **meant))
        assert (answer.error_code, answer.member_count) == (0, 1 if "run_id" in meant else 0)
