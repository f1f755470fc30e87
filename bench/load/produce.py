"""Idempotent records outside transactions, as many as the server accepts. A *driver* is a way in which the client
sends."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from grpc import aio

from bench.load.stubs import checked, encoded_batch, open_channel
from bench.load.workers import Span, run_as_tasks
from bench.results import Run
from bench.window import Window
from coordinator_api.v1 import log_pb2 as log
from coordinator_api.v1 import transaction_pb2 as txn
from coordinator_api.v1.log_pb2_grpc import LogServiceStub
from coordinator_api.v1.transaction_pb2_grpc import TransactionServiceStub
from coordinator_client.producer.producer import Producer
from coordinator_protocol.limits import KIBI, MEBI

if TYPE_CHECKING:
    from coordinator_api.v1.log_pb2_grpc import LogServiceAsyncStub
    from coordinator_api.v1.transaction_pb2_grpc import TransactionServiceAsyncStub

BATCH_BYTES: Final = 256 * KIBI
PARTITIONS: Final = 3
_STUB_PRODUCERS: Final = 4
"""Number of producers on stubs. Each has one batch under way, to a partition of its own. More of them would only
lengthen the queue."""
_SEQUENCE_MAX: Final = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Settings of the load."""

    endpoint: str
    server_process_id: int
    driver: str
    value_bytes: int
    topic: str
    warm_up_s: float
    measured_s: float


Driver = Callable[[Load], Run]


def measure(load: Load) -> Run:
    """Send. Operations are records. Raises: LoadFailed."""
    return DRIVERS[load.driver](load)


def by_sdk(load: Load) -> Run:
    """Use one producer of the SDK, with batches as large as the server accepts. The time ends when the last record is
    in the log."""
    value = os.urandom(load.value_bytes)
    with Producer(load.endpoint, client_id="bench", batch_bytes=MEBI) as producer:
        _send(producer, load, value, load.warm_up_s)
        window = Window(load.server_process_id)
        return window.close(_send(producer, load, value, load.measured_s))


def _send(producer: Producer, load: Load, value: bytes, seconds: float) -> int:
    until, sent = time.perf_counter() + seconds, 0
    while time.perf_counter() < until:
        for _ in range(PARTITIONS):
            producer.send(load.topic, value, partition=sent % PARTITIONS)
            sent += 1
    producer.flush()
    return sent


class _StubProducer:
    """An idempotent producer with one batch under way, to its own partition."""

    def __init__(self, channel: aio.Channel, load: Load, *, partition: int) -> None:
        self._logs: LogServiceAsyncStub = LogServiceStub(channel)
        self._transactions: TransactionServiceAsyncStub = TransactionServiceStub(channel)
        batch = encoded_batch(load.value_bytes, records_per_batch(load.value_bytes), is_transactional=False)
        item = log.PartitionBatch(topic=load.topic, partition=partition, batch=batch)
        self._request = log.ProduceRequest(batches=[item])
        self._has_identity = False

    async def perform(self) -> None:
        batch = self._request.batches[0].batch
        if not self._has_identity:
            identity = checked(await self._transactions.InitProducerId(txn.InitProducerIdRequest()))
            batch.producer_id, batch.producer_epoch = identity.producer_id, identity.producer_epoch
            self._has_identity = True
        checked(checked(await self._logs.Produce(self._request)).results[0])
        batch.base_sequence = (batch.base_sequence + batch.record_count) & _SEQUENCE_MAX


def records_per_batch(value_bytes: int) -> int:
    """Return the number of records in a batch of the usual size."""
    return max(1, BATCH_BYTES // value_bytes)


def by_stubs(load: Load) -> Run:
    """Use unary stubs with whole batches that are encoded once."""

    def producers() -> list[_StubProducer]:
        channel = open_channel(load.endpoint)
        numbers = range(_STUB_PRODUCERS)
        return [_StubProducer(channel, load, partition=number % PARTITIONS) for number in numbers]

    run = run_as_tasks(producers, Span(load.warm_up_s, load.measured_s), load.server_process_id)
    return run.per_item(records_per_batch(load.value_bytes))


DRIVERS: Final[Mapping[str, Driver]] = MappingProxyType({"SDK": by_sdk, "stubs": by_stubs})
