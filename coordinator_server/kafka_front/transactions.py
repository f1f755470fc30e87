"""Producers: InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn.

Source: KIP-98; KIP-360 (a producer that goes on after an error); KIP-890 (a new epoch for each transaction).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

from coordinator_core.fast_path import FastPath
from coordinator_protocol.errors import CoordinatorError
from coordinator_protocol.marker import Outcome
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import PartitionName
from coordinator_server.kafka_front.apis import ApiKey
from coordinator_server.kafka_front.exchange import ApiHandler, KafkaExchange
from coordinator_server.kafka_front.messages.add_offsets_to_txn_request import AddOffsetsToTxnRequest
from coordinator_server.kafka_front.messages.add_offsets_to_txn_response import AddOffsetsToTxnResponse
from coordinator_server.kafka_front.messages.add_partitions_to_txn_request import AddPartitionsToTxnRequest
from coordinator_server.kafka_front.messages.add_partitions_to_txn_response import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from coordinator_server.kafka_front.messages.end_txn_request import EndTxnRequest
from coordinator_server.kafka_front.messages.end_txn_response import EndTxnResponse
from coordinator_server.kafka_front.messages.init_producer_id_request import InitProducerIdRequest
from coordinator_server.kafka_front.messages.init_producer_id_response import InitProducerIdResponse
from coordinator_server.kafka_front.partition_names import by_topic, named, without_repetitions
from txn_coordinator import requests
from txn_coordinator.outcomes import Ended
from txn_coordinator.service import TransactionService
from txn_coordinator.shard import Initialised
from txn_coordinator.state import NO_EPOCH, NO_PRODUCER_ID, Identity


def transaction_handlers(
    service: TransactionService, fast_path: FastPath | None
) -> Iterator[tuple[ApiKey, ApiHandler]]:
    """Yield the handlers of this family."""
    producers = Producers(service)
    fast = None if fast_path is None else FastProducers(fast_path)
    yield (
        ApiKey.INIT_PRODUCER_ID,
        ApiHandler(producers.initialise, _initialise_refused, None if fast is None else fast.initialise),
    )
    yield ApiKey.ADD_PARTITIONS_TO_TXN, ApiHandler(producers.add_partitions, _add_partitions_refused)
    yield ApiKey.ADD_OFFSETS_TO_TXN, ApiHandler(producers.add_offsets, _add_offsets_refused)
    yield ApiKey.END_TXN, ApiHandler(producers.end, _end_refused, None if fast is None else fast.end)


class Producers:
    """One method per API."""

    def __init__(self, service: TransactionService) -> None:
        self._service = service

    def initialise(self, request: InitProducerIdRequest, exchange: KafkaExchange) -> Pending[InitProducerIdResponse]:
        command = requests.InitProducerId(
            transactional_id=request.transactional_id,
            transaction_timeout_ms=request.transaction_timeout_ms,
            expected=_expected(request),
        )
        return self._service.init_producer_id(command, exchange.context).map(_initialised)

    def add_partitions(
        self, request: AddPartitionsToTxnRequest, exchange: KafkaExchange
    ) -> Pending[AddPartitionsToTxnResponse]:
        command = requests.AddPartitions(
            transactional_id=request.v3_and_below_transactional_id,
            identity=Identity(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch),
            partitions=_partitions(request),
        )
        added = self._service.add_partitions(command, exchange.context)
        return added.map(lambda each: _added(each.results, exchange))

    def add_offsets(self, request: AddOffsetsToTxnRequest, exchange: KafkaExchange) -> Pending[AddOffsetsToTxnResponse]:
        command = requests.AddOffsets(
            transactional_id=request.transactional_id,
            identity=Identity(request.producer_id, request.producer_epoch),
            group_id=request.group_id,
        )
        added = self._service.add_offsets(command, exchange.context)
        return added.map(lambda _added: AddOffsetsToTxnResponse())

    def end(self, request: EndTxnRequest, exchange: KafkaExchange) -> Pending[EndTxnResponse]:
        command = requests.EndTxn(
            transactional_id=request.transactional_id,
            identity=Identity(request.producer_id, request.producer_epoch),
            outcome=Outcome.COMMIT if request.committed else Outcome.ABORT,
        )
        return self._service.end_txn(command, exchange.context).map(partial(_ended, exchange))


class FastProducers:
    """Calls of the common shape, on the fast path. None for a call that is not for it."""

    def __init__(self, fast_path: FastPath) -> None:
        self._fast_path = fast_path

    def initialise(self, request: InitProducerIdRequest, exchange: KafkaExchange) -> InitProducerIdResponse | None:
        # A plain producer has no id, and one that goes on shows its identity.
        if request.transactional_id is None or _expected(request) is not None:
            return None
        identity = self._fast_path.initialise(
            request.transactional_id, request.transaction_timeout_ms, exchange.context
        )
        return None if identity is None else _initialised(Initialised(identity))

    def end(self, request: EndTxnRequest, exchange: KafkaExchange) -> EndTxnResponse | None:
        if not request.committed:
            return None
        identity = (request.producer_id, request.producer_epoch)
        ended = self._fast_path.commit(request.transactional_id, identity, (), exchange.context)
        return None if ended is None else _ended(exchange, ended)


def _expected(request: InitProducerIdRequest) -> Identity | None:
    if request.producer_id == NO_PRODUCER_ID and request.producer_epoch == NO_EPOCH:
        return None
    return Identity(request.producer_id, request.producer_epoch)


def _initialised(initialised: Initialised) -> InitProducerIdResponse:
    producer_id, producer_epoch = initialised.identity
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=producer_epoch)


def _initialise_refused(
    _request: InitProducerIdRequest, exchange: KafkaExchange, error: CoordinatorError
) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=exchange.code(error), producer_id=NO_PRODUCER_ID, producer_epoch=NO_EPOCH)


def _partitions(request: AddPartitionsToTxnRequest) -> tuple[PartitionName, ...]:
    topics = request.v3_and_below_topics
    return without_repetitions(name for topic in topics for name in named(topic.name, topic.partitions))


def _added(
    results: Iterable[tuple[PartitionName, CoordinatorError | None]], exchange: KafkaExchange
) -> AddPartitionsToTxnResponse:
    topics = [
        AddPartitionsToTxnTopicResult(
            name=topic,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(partition_index=partition, partition_error_code=exchange.code(error))
                for partition, error in partitions
            ],
        )
        for (topic, _id), partitions in by_topic(results).items()
    ]
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topics)


def _add_partitions_refused(
    request: AddPartitionsToTxnRequest, exchange: KafkaExchange, error: CoordinatorError
) -> AddPartitionsToTxnResponse:
    return _added([(name, error) for name in _partitions(request)], exchange)


def _add_offsets_refused(
    _request: AddOffsetsToTxnRequest, exchange: KafkaExchange, error: CoordinatorError
) -> AddOffsetsToTxnResponse:
    return AddOffsetsToTxnResponse(error_code=exchange.code(error))


def _ended(exchange: KafkaExchange, ended: Ended) -> EndTxnResponse:
    """Return the answer to an end. A client of version 1 keeps its identity, and gets none."""
    if exchange.context.client_txn_version < 2:
        return EndTxnResponse()
    producer_id, producer_epoch = ended.next_identity
    return EndTxnResponse(producer_id=producer_id, producer_epoch=producer_epoch)


def _end_refused(_request: EndTxnRequest, exchange: KafkaExchange, error: CoordinatorError) -> EndTxnResponse:
    return EndTxnResponse(error_code=exchange.code(error))
