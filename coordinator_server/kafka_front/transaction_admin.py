"""Administration of transactions: DescribeTransactions, ListTransactions, DescribeProducers, WriteTxnMarkers.

Kafka's brokers write markers by WriteTxnMarkers, and so does its tool that aborts a hanging transaction. Here only the
tool has a use for it: the server's own coordinator ends every other transaction.

Source: KIP-664 (hanging transactions); KIP-994, KIP-1152 (filters of a listing).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from coordinator_protocol.errors import CoordinatorError, ErrorCode, Refused
from coordinator_runtime.pending import Pending, all_of, failed, settled
from coordinator_runtime.ports import PartitionName
from coordinator_server.kafka_front.apis import ApiKey
from coordinator_server.kafka_front.exchange import ApiHandler, KafkaExchange
from coordinator_server.kafka_front.messages.describe_producers_request import DescribeProducersRequest
from coordinator_server.kafka_front.messages.describe_producers_response import (
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from coordinator_server.kafka_front.messages.describe_transactions_request import DescribeTransactionsRequest
from coordinator_server.kafka_front.messages.describe_transactions_response import (
    DescribeTransactionsResponse,
    TopicData,
)
from coordinator_server.kafka_front.messages.describe_transactions_response import TransactionState as DescribedState
from coordinator_server.kafka_front.messages.list_transactions_request import ListTransactionsRequest
from coordinator_server.kafka_front.messages.list_transactions_response import (
    ListTransactionsResponse,
)
from coordinator_server.kafka_front.messages.list_transactions_response import TransactionState as ListedState
from coordinator_server.kafka_front.messages.write_txn_markers_request import WritableTxnMarker, WriteTxnMarkersRequest
from coordinator_server.kafka_front.messages.write_txn_markers_response import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)
from coordinator_server.kafka_front.partition_names import by_topic, named, without_repetitions
from partition_log.requests import DescribeProducers, ProducersDescription
from partition_log.service import LogService
from partition_log.state import ProducerEntry
from txn_coordinator.administration import AbortHanging, TransactionAdministration
from txn_coordinator.reading import TransactionReader
from txn_coordinator.requests import Description, TransactionFilter

_NO_OFFSET: Final = -1

MarkerError = tuple[PartitionName, CoordinatorError | None]


def transaction_admin_handlers(
    reader: TransactionReader, log: LogService, administration: TransactionAdministration
) -> Iterator[tuple[ApiKey, ApiHandler]]:
    """Yield the handlers of this family."""
    transactions = TransactionAdmin(reader, log, administration)
    yield ApiKey.DESCRIBE_TRANSACTIONS, ApiHandler(transactions.describe, _describe_refused)
    yield ApiKey.LIST_TRANSACTIONS, ApiHandler(transactions.list_transactions, _list_refused)
    yield ApiKey.DESCRIBE_PRODUCERS, ApiHandler(transactions.describe_producers, _describe_producers_refused)
    yield ApiKey.WRITE_TXN_MARKERS, ApiHandler(transactions.write_markers, _write_markers_refused)


class TransactionAdmin:
    """One method per API."""

    def __init__(self, reader: TransactionReader, log: LogService, administration: TransactionAdministration) -> None:
        self._reader = reader
        self._log = log
        self._administration = administration

    def describe(
        self, request: DescribeTransactionsRequest, exchange: KafkaExchange
    ) -> Pending[DescribeTransactionsResponse]:
        described = self._reader.describe(request.transactional_ids, exchange.context)
        return described.map(
            lambda found: DescribeTransactionsResponse(
                transaction_states=[_described(each, exchange) for each in found]
            )
        )

    def list_transactions(
        self, request: ListTransactionsRequest, exchange: KafkaExchange
    ) -> Pending[ListTransactionsResponse]:
        wanted = TransactionFilter(
            states=request.state_filters,
            producer_ids=request.producer_id_filters,
            open_longer_than_ms=request.duration_filter,
            id_pattern=request.transactional_id_pattern or "",
        )
        listing = self._reader.list(wanted, exchange.context)
        response = ListTransactionsResponse(
            unknown_state_filters=listing.unknown_states,
            transaction_states=[
                ListedState(
                    transactional_id=transaction.transactional_id,
                    producer_id=transaction.producer_id,
                    transaction_state=transaction.state.api_name,
                )
                for transaction in listing.transactions
            ],
        )
        return settled(response)

    def describe_producers(
        self, request: DescribeProducersRequest, exchange: KafkaExchange
    ) -> Pending[DescribeProducersResponse]:
        described = self._log.describe_producers(DescribeProducers(_asked(request)), exchange.context)
        return described.map(partial(_producers, exchange))

    def write_markers(
        self, request: WriteTxnMarkersRequest, exchange: KafkaExchange
    ) -> Pending[WriteTxnMarkersResponse]:
        ended = [self._end_hanging(marker, exchange) for marker in request.markers]
        return all_of(ended).map(
            lambda results: WriteTxnMarkersResponse(
                markers=[
                    _marker_result(marker, errors, exchange)
                    for marker, errors in zip(request.markers, results, strict=True)
                ]
            )
        )

    def _end_hanging(self, marker: WritableTxnMarker, exchange: KafkaExchange) -> Pending[list[MarkerError]]:
        """End the hanging transaction that a marker names, in each of its partitions."""
        return all_of([self._end_in(name, marker, exchange) for name in _partitions(marker)])

    def _end_in(self, name: PartitionName, marker: WritableTxnMarker, exchange: KafkaExchange) -> Pending[MarkerError]:
        try:
            if marker.transaction_result:
                raise Refused(
                    ErrorCode.INVALID_TXN_STATE, "only the coordinator of a transaction commits it; abort it instead"
                )
            command = AbortHanging(partition=name, producer_id=marker.producer_id, producer_epoch=marker.producer_epoch)
            ended = self._administration.abort_hanging(command, exchange.context)
        except Refused as refusal:
            ended = failed(refusal)
        done: Pending[MarkerError] = ended.map(lambda _found: (name, None))
        return done.answer_error(lambda error: (name, error))


def _described(described: Description, exchange: KafkaExchange) -> DescribedState:
    transaction = described.transaction
    if transaction is None:
        return DescribedState(transactional_id=described.transactional_id, error_code=exchange.code(described.error))
    partitions = [(PartitionName(ref.topic, ref.topic_id, ref.partition), None) for ref in described.partitions]
    return DescribedState(
        transactional_id=described.transactional_id,
        transaction_state=transaction.state.api_name,
        transaction_timeout_ms=transaction.txn_timeout_ms,
        transaction_start_time_ms=transaction.start_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        topics=[
            TopicData(topic=topic, partitions=sorted(number for number, _none in numbers))
            for (topic, _id), numbers in sorted(by_topic(partitions).items())
        ],
    )


def _describe_refused(
    request: DescribeTransactionsRequest, exchange: KafkaExchange, error: CoordinatorError
) -> DescribeTransactionsResponse:
    code = exchange.code(error)
    return DescribeTransactionsResponse(
        transaction_states=[
            DescribedState(transactional_id=each, error_code=code) for each in request.transactional_ids
        ]
    )


def _list_refused(
    _request: ListTransactionsRequest, exchange: KafkaExchange, error: CoordinatorError
) -> ListTransactionsResponse:
    return ListTransactionsResponse(error_code=exchange.code(error))


def _asked(request: DescribeProducersRequest) -> tuple[PartitionName, ...]:
    return without_repetitions(name for topic in request.topics for name in named(topic.name, topic.partition_indexes))


def _producers(exchange: KafkaExchange, described: Sequence[ProducersDescription]) -> DescribeProducersResponse:
    topics = [
        TopicResponse(name=topic, partitions=[_of_partition(number, found, exchange) for number, found in partitions])
        for (topic, _id), partitions in by_topic((each.name, each) for each in described).items()
    ]
    return DescribeProducersResponse(topics=topics)


def _of_partition(partition: int, found: ProducersDescription, exchange: KafkaExchange) -> PartitionResponse:
    return PartitionResponse(
        partition_index=partition,
        error_code=exchange.code(found.error),
        error_message=None if found.error is None else found.error.message,
        active_producers=[_producer(producer_id, entry) for producer_id, entry in found.producers],
    )


def _producer(producer_id: int, entry: ProducerEntry) -> ProducerState:
    opened = entry.open_transaction
    return ProducerState(
        producer_id=producer_id,
        producer_epoch=entry.epoch,
        last_sequence=entry.last_sequence,
        last_timestamp=entry.last_append_ms,
        coordinator_epoch=entry.coordinator_epoch,
        current_txn_start_offset=_NO_OFFSET if opened is None else opened.first_offset,
    )


def _describe_producers_refused(
    request: DescribeProducersRequest, exchange: KafkaExchange, error: CoordinatorError
) -> DescribeProducersResponse:
    return _producers(exchange, [ProducersDescription(name, error=error) for name in _asked(request)])


def _partitions(marker: WritableTxnMarker) -> tuple[PartitionName, ...]:
    return without_repetitions(name for topic in marker.topics for name in named(topic.name, topic.partition_indexes))


def _marker_result(
    marker: WritableTxnMarker, errors: Sequence[MarkerError], exchange: KafkaExchange
) -> WritableTxnMarkerResult:
    topics = [
        WritableTxnMarkerTopicResult(
            name=topic,
            partitions=[
                WritableTxnMarkerPartitionResult(partition_index=partition, error_code=exchange.code(error))
                for partition, error in partitions
            ],
        )
        for (topic, _id), partitions in by_topic(errors).items()
    ]
    return WritableTxnMarkerResult(producer_id=marker.producer_id, topics=topics)


def _write_markers_refused(
    request: WriteTxnMarkersRequest, exchange: KafkaExchange, error: CoordinatorError
) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        markers=[
            _marker_result(marker, [(name, error) for name in _partitions(marker)], exchange)
            for marker in request.markers
        ]
    )
