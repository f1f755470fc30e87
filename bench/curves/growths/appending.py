"""Batches that are appended to partitions, as fast as stubs go."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from bench.load.stubs import checked, encoded_batch
from coordinator_api.v1 import log_pb2 as log
from coordinator_api.v1 import transaction_pb2 as txn
from coordinator_api.v1.log_pb2_grpc import LogServiceStub
from coordinator_api.v1.transaction_pb2_grpc import TransactionServiceStub

if TYPE_CHECKING:
    from grpc import aio

    from coordinator_api.v1.log_pb2_grpc import LogServiceAsyncStub
    from coordinator_api.v1.transaction_pb2_grpc import TransactionServiceAsyncStub

_SEQUENCE_MAX: Final = 2**31 - 1


async def create(channel: aio.Channel, topic: str, partitions: int) -> None:
    """Create a topic. Raises: Refusal."""
    logs: LogServiceAsyncStub = LogServiceStub(channel)
    new = log.NewTopic(name=topic, partition_count=partitions)
    checked(checked(await logs.CreateTopics(log.CreateTopicsRequest(topics=[new]))).results[0])


async def append(
    channel: aio.Channel, topic: str, partitions: Iterable[int], batches: int, *, value_bytes: int, records: int
) -> None:
    """Append equal batches, spread over the partitions. Each of these has a producer, with one batch under way. Raises:
    Refusal."""
    transactions: TransactionServiceAsyncStub = TransactionServiceStub(channel)
    turns = iter(range(batches))
    async with asyncio.TaskGroup() as group:
        for partition in partitions:
            identity = checked(await transactions.InitProducerId(txn.InitProducerIdRequest()))
            batch = encoded_batch(value_bytes, records, is_transactional=False)
            batch.producer_id, batch.producer_epoch = identity.producer_id, identity.producer_epoch
            item = log.PartitionBatch(topic=topic, partition=partition, batch=batch)
            group.create_task(_append(channel, log.ProduceRequest(batches=[item]), turns))


async def _append(channel: aio.Channel, request: log.ProduceRequest, turns: Iterator[int]) -> None:
    logs: LogServiceAsyncStub = LogServiceStub(channel)
    batch = request.batches[0].batch
    for _turn in turns:
        checked(checked(await logs.Produce(request)).results[0])
        batch.base_sequence = (batch.base_sequence + batch.record_count) & _SEQUENCE_MAX
