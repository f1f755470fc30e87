"""A producer of one transactional id over gRPC, of either client version, that says everything step by step: for tests
that want to stop a real server between two of them."""

from __future__ import annotations

from dataclasses import dataclass, field

import grpc

from coordinator_api.v1 import (
    common_pb2,
    group_pb2,
    group_pb2_grpc,
    log_pb2,
    log_pb2_grpc,
    transaction_pb2,
    transaction_pb2_grpc,
)
from coordinator_protocol.errors import ErrorCode
from tests.harness.patience import DEADLINE_SECONDS, TRANSACTION_TIMEOUT_MS, looks


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition as a reader sees it."""

    values: list[str]
    """The values that a committed reader gets."""
    markers: list[tuple[int, bool]]
    """(producer id, committed) of every marker, in order."""
    last_stable_offset: int
    high_watermark: int


class Reader:
    """Topics and offsets over gRPC."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._log = log_pb2_grpc.LogServiceStub(channel)
        self._groups = group_pb2_grpc.GroupServiceStub(channel)

    def create_topic(self, name: str, partition_count: int) -> None:
        request = log_pb2.CreateTopicsRequest(topics=[log_pb2.NewTopic(name=name, partition_count=partition_count)])
        (result,) = self._log.CreateTopics(request, timeout=DEADLINE_SECONDS).results
        assert result.error_code == 0, result

    def read(self, topic: str, partition: int) -> Partition:
        committed = self._fetch(topic, partition, is_raw=False)
        raw = self._fetch(topic, partition, is_raw=True)
        return Partition(
            [
                record.value.decode()
                for batch in committed.batches
                for record in log_pb2.Records.FromString(batch.payload).records
            ],
            [(batch.producer_id, batch.marker.committed) for batch in raw.batches if batch.is_control],
            raw.last_stable_offset,
            raw.high_watermark,
        )

    def committed(self, group_id: str, topic: str, partition: int) -> int:
        """The stable offset of a group, -1 for none."""
        asked = group_pb2.PartitionSet(topics=[common_pb2.TopicPartitions(topic=topic, partitions=[partition])])
        request = group_pb2.OffsetFetchRequest(
            groups=[group_pb2.OffsetFetchGroup(group_id=group_id, topics=asked)], require_stable=True
        )
        (found,) = self._groups.OffsetFetch(request, timeout=DEADLINE_SECONDS).groups
        (offset,) = found.offsets
        assert offset.error_code == 0, found
        return int(offset.committed_offset)

    def _fetch(self, topic: str, partition: int, *, is_raw: bool) -> log_pb2.FetchResult:
        request = log_pb2.FetchRequest(
            isolation_level=common_pb2.ISOLATION_LEVEL_READ_COMMITTED,
            partitions=[log_pb2.FetchPartition(topic=topic, partition=partition)],
            raw=is_raw,
        )
        (result,) = self._log.Fetch(request, timeout=DEADLINE_SECONDS).results
        assert result.error_code == 0, result
        return result


@dataclass(slots=True)
class ProducerByWire:
    """One instance. It asks for answers at once: 51 where it would have to wait."""

    channel: grpc.Channel
    transactional_id: str
    version: int = 2
    producer_id: int = -1
    producer_epoch: int = -1
    sequences: dict[tuple[str, int], int] = field(default_factory=dict)

    @property
    def _header(self) -> common_pb2.RequestHeader:
        return common_pb2.RequestHeader(client_id="test", client_txn_version=self.version, refuse_concurrent=True)

    @property
    def _transactions(self) -> transaction_pb2_grpc.TransactionServiceStub:
        return transaction_pb2_grpc.TransactionServiceStub(self.channel)

    def init(self) -> None:
        request = transaction_pb2.InitProducerIdRequest(
            header=self._header, transactional_id=self.transactional_id, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS
        )
        reply = self._transactions.InitProducerId(request, timeout=DEADLINE_SECONDS)
        assert reply.error_code == 0, reply
        self._become(reply.producer_id, reply.producer_epoch)

    def write(self, topic: str, partition: int, value: str) -> None:
        """Append a record inside the transaction; acknowledged on return."""
        if self.version == 1:
            self._add(topic, partition)
        sequence = self.sequences.get((topic, partition), 0)
        batch = log_pb2.RecordBatch(
            record_count=1,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=sequence,
            is_transactional=True,
            encoding=log_pb2.ENCODING_RECORDS_V1,
            payload=log_pb2.Records(records=[log_pb2.Record(value=value.encode())]).SerializeToString(),
        )
        request = log_pb2.ProduceRequest(
            header=self._header,
            transactional_id=self.transactional_id,
            batches=[log_pb2.PartitionBatch(topic=topic, partition=partition, batch=batch)],
        )
        (result,) = log_pb2_grpc.LogServiceStub(self.channel).Produce(request, timeout=DEADLINE_SECONDS).results
        assert result.error_code == 0, result
        self.sequences[topic, partition] = sequence + 1

    def commit_offset(self, group_id: str, topic: str, partition: int, offset: int) -> None:
        """Let the offset of a group move with the transaction."""
        if self.version == 1:
            self._add_group(group_id)
        kept = group_pb2.PartitionOffset(partition=partition, committed_offset=offset)
        request = group_pb2.TxnOffsetCommitRequest(
            header=self._header,
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            group_id=group_id,
            topics=[group_pb2.TopicOffsets(topic=topic, partitions=[kept])],
        )
        groups = group_pb2_grpc.GroupServiceStub(self.channel)
        (result,) = groups.TxnOffsetCommit(request, timeout=DEADLINE_SECONDS).results
        assert result.error_code == 0, result

    def _add_group(self, group_id: str) -> None:
        request = transaction_pb2.AddOffsetsToTxnRequest(
            header=self._header,
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            group_id=group_id,
        )
        reply = self._transactions.AddOffsetsToTxn(request, timeout=DEADLINE_SECONDS)
        assert reply.error_code == 0, reply

    def _add(self, topic: str, partition: int) -> None:
        request = transaction_pb2.AddPartitionsToTxnRequest(
            header=self._header,
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            topics=[common_pb2.TopicPartitions(topic=topic, partitions=[partition])],
        )
        reply = self._transactions.AddPartitionsToTxn(request, timeout=DEADLINE_SECONDS)
        assert [result.error_code for result in reply.results] == [0], reply

    def sends_end(self, *, committed: bool) -> grpc.Future:
        """EndTxn, with the answer to come."""
        request = transaction_pb2.EndTxnRequest(
            header=self._header,
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            committed=committed,
        )
        return self._transactions.EndTxn.future(request, timeout=DEADLINE_SECONDS)

    def whole_transaction(self, values: dict[int, str], group_id: str, offset: int) -> transaction_pb2.TransactRequest:
        """A Transact that commits a value per partition of the topic "t", and an offset."""
        request = transaction_pb2.TransactRequest(
            header=self._header,
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            committed=True,
        )
        request.header.request_id = b"a whole one" + bytes(5)
        for partition, value in values.items():
            batch = log_pb2.RecordBatch(
                record_count=1,
                base_sequence=0,
                encoding=log_pb2.ENCODING_RECORDS_V1,
                payload=log_pb2.Records(records=[log_pb2.Record(value=value.encode())]).SerializeToString(),
            )
            request.batches.add(topic="t", partition=partition, batch=batch)
        request.groups.add(group_id=group_id).topics.add(topic="t").partitions.add(partition=0, committed_offset=offset)
        return request

    def sends(self, request: transaction_pb2.TransactRequest) -> grpc.Future:
        """Transact, with the answer to come."""
        return self._transactions.Transact.future(request, timeout=DEADLINE_SECONDS)

    def repeats(self, request: transaction_pb2.TransactRequest) -> transaction_pb2.TransactResponse:
        """Send the same again as long as the answer is to wait."""
        for _ in looks("Transact"):
            reply: transaction_pb2.TransactResponse = self.sends(request).result()
            if reply.error_code != ErrorCode.CONCURRENT_TRANSACTIONS:
                break
        return reply

    def ends(self, *, committed: bool) -> list[int]:
        """Send EndTxn, again as long as the answer is to wait. Returns the numbers of the answers, and goes on with the
        identity of the last answer."""
        answered: list[int] = []
        for _ in looks("EndTxn"):
            reply = self.sends_end(committed=committed).result()
            answered.append(reply.error_code)
            if reply.error_code == ErrorCode.NONE and self.version == 2:
                self._become(reply.producer_id, reply.producer_epoch)
            if reply.error_code != ErrorCode.CONCURRENT_TRANSACTIONS:
                break
        return answered

    def until_complete(self) -> transaction_pb2.TransactionDescription:
        """Return once nothing of the last transaction is left to do."""
        for _ in looks("the state of the transaction"):
            described = self.described()
            if described.state.startswith("Complete"):
                break
        return described

    def described(self) -> transaction_pb2.TransactionDescription:
        request = transaction_pb2.DescribeTransactionsRequest(
            header=self._header, transactional_ids=[self.transactional_id]
        )
        (description,) = self._transactions.DescribeTransactions(request, timeout=DEADLINE_SECONDS).transactions
        return description

    def _become(self, producer_id: int, producer_epoch: int) -> None:
        if (producer_id, producer_epoch) != (self.producer_id, self.producer_epoch):
            self.producer_id, self.producer_epoch, self.sequences = producer_id, producer_epoch, {}
