"""Requests over bare unary stubs, which show the cost in the server when the client does next to nothing.

Payloads are made once. Only the epoch differs from transaction to transaction. So a request is serialised each time,
which takes a few microseconds.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from grpc import aio

from coordinator_api.v1 import common_pb2 as common
from coordinator_api.v1 import log_pb2 as log
from coordinator_api.v1 import transaction_pb2 as txn
from coordinator_api.v1.log_pb2_grpc import LogServiceStub
from coordinator_api.v1.transaction_pb2_grpc import TransactionServiceStub
from coordinator_protocol.limits import MEBI

if TYPE_CHECKING:
    from coordinator_api.v1.log_pb2_grpc import LogServiceAsyncStub
    from coordinator_api.v1.transaction_pb2_grpc import TransactionServiceAsyncStub

TRANSACTION_TIMEOUT_MS: Final = 600_000

_MESSAGE_BYTES_MAX: Final = 16 * MEBI


class Refusal(Exception):
    """The server refused a request."""


class Reply(Protocol):
    """Common fields of all replies."""

    @property
    def error_code(self) -> int: ...
    @property
    def error_message(self) -> str: ...


ReplyT = TypeVar("ReplyT", bound=Reply)


def checked(reply: ReplyT) -> ReplyT:
    """Return the reply. Raises: Refusal."""
    if reply.error_code:
        raise Refusal(f"{common.ErrorCode.Name(common.ErrorCode.ValueType(reply.error_code))}: {reply.error_message}")
    return reply


def open_channel(endpoint: str) -> aio.Channel:
    """Return a channel of the running loop. It is closed with the process."""
    sizes = [(f"grpc.max_{way}_message_length", _MESSAGE_BYTES_MAX) for way in ("send", "receive")]
    return aio.insecure_channel(endpoint, options=[*sizes, ("grpc.enable_http_proxy", 0)])


def new_prefix(name: str) -> str:
    """Return a prefix for names that no earlier load has used."""
    return f"{name}-{os.getpid()}-{time.time_ns() % 10**9}-"


def encoded_batch(value_bytes: int, record_count: int, *, is_transactional: bool) -> log.RecordBatch:
    """Return a batch of equal records, complete except for its producer."""
    now_ms = time.time_ns() // 1_000_000
    record = log.Record(value=os.urandom(value_bytes), timestamp_ms=now_ms)
    return log.RecordBatch(
        record_count=record_count,
        base_timestamp_ms=now_ms,
        max_timestamp_ms=now_ms,
        base_sequence=0,
        is_transactional=is_transactional,
        encoding=log.ENCODING_RECORDS_V1,
        payload=log.Records(records=[record] * record_count).SerializeToString(),
    )


class StubProducer:
    """A transactional producer that sends one Produce for all partitions and one EndTxn. With `adds_first`, it sends
    AddPartitionsToTxn before them."""

    def __init__(self, channel: aio.Channel, transactional_id: str, *, topic: str, partition_count: int) -> None:
        self._logs: LogServiceAsyncStub = LogServiceStub(channel)
        self._transactions: TransactionServiceAsyncStub = TransactionServiceStub(channel)
        self._id = transactional_id
        self._partitions = common.TopicPartitions(topic=topic, partitions=range(partition_count))
        self._produce = log.ProduceRequest(transactional_id=transactional_id)
        self._end = txn.EndTxnRequest(transactional_id=transactional_id, committed=True)
        self._has_identity = False
        self.adds_first = False

    def set_transaction(self, value_bytes: int, *, committed: bool) -> None:
        """Set the shape of every transaction: one record of this size for each partition, and this outcome."""
        self._end.committed = committed
        batch = encoded_batch(value_bytes, 1, is_transactional=True)
        self._produce.ClearField("batches")
        self._produce.batches.extend(
            log.PartitionBatch(topic=self._partitions.topic, partition=partition, batch=batch)
            for partition in self._partitions.partitions
        )

    async def perform(self) -> None:
        """Run one transaction. Raises: Refusal, AioRpcError; the next one then begins with a new identity."""
        try:
            if not self._has_identity:
                await self.init()
            if self.adds_first:
                await self.add()
            await self.produce()
            await self.end()
        except BaseException:
            self._has_identity = False
            raise

    async def init(self) -> tuple[int, int]:
        """Get an identity: producer id and epoch."""
        request = txn.InitProducerIdRequest(transactional_id=self._id, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS)
        reply = checked(await self._transactions.InitProducerId(request))
        self._adopt(reply.producer_id, reply.producer_epoch)
        return reply.producer_id, reply.producer_epoch

    async def add(self) -> None:
        """Add the partitions beforehand, as clients of the first version of the protocol do."""
        request = txn.AddPartitionsToTxnRequest(
            transactional_id=self._id,
            producer_id=self._end.producer_id,
            producer_epoch=self._end.producer_epoch,
            topics=[self._partitions],
        )
        checked(await self._transactions.AddPartitionsToTxn(request))

    async def produce(self) -> None:
        """Append the batches."""
        for result in checked(await self._logs.Produce(self._produce)).results:
            checked(result)

    async def end(self) -> None:
        """Commit or abort, and adopt the identity of the next transaction."""
        ended = checked(await self._transactions.EndTxn(self._end))
        self._adopt(ended.producer_id, ended.producer_epoch)

    def _adopt(self, producer_id: int, producer_epoch: int) -> None:
        self._end.producer_id, self._end.producer_epoch = producer_id, producer_epoch
        for item in self._produce.batches:
            item.batch.producer_id, item.batch.producer_epoch = producer_id, producer_epoch
        self._has_identity = True
