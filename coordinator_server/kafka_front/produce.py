"""Produce of Kafka's protocol.

Every acknowledged batch is durable, whether the client asks for `acks` of 1 or of all. A client that asks for none gets
no answer, and learns of a failure by the end of its connection.

Source: KIP-98, KIP-467 (error messages, and places of refused records), KIP-516 (topic ids), KIP-890; Kafka's
`KafkaApis.handleProduceRequest`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import repeat
from typing import Final

from coordinator_core.fast_batches import FastBatch
from coordinator_core.fast_path import FastPath
from coordinator_protocol.batch import Compression
from coordinator_protocol.errors import CoordinatorError, ErrorCode, Refused
from coordinator_protocol.kafka_batches import KafkaBatch, from_kafka
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import ClientBatch, PartitionName
from coordinator_server.kafka_front.apis import ApiKey
from coordinator_server.kafka_front.errors import INVALID_REQUIRED_ACKS, FrontRefused
from coordinator_server.kafka_front.exchange import ApiHandler, KafkaExchange
from coordinator_server.kafka_front.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
)
from coordinator_server.kafka_front.messages.produce_response import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from coordinator_server.kafka_front.partitions import ANY_PARTITION, answered, impossible
from partition_log.batch_checks import KeylessRecords
from partition_log.requests import Produce, ProduceResult
from partition_log.service import LogService

TOPIC_IDS_SINCE: Final = 13
"""First version that names topics by id."""
ZSTD_SINCE: Final = 7
NO_ACKS: Final = 0
_ACKS: Final = (NO_ACKS, 1, -1)
_NO_OFFSET: Final = -1

Planned = ClientBatch | ProduceResult
"""A batch for the log, or the refusal of one that the log cannot be asked for."""


class ProduceApi:
    """Appends batches."""

    def __init__(self, log: LogService, fast_path: FastPath | None) -> None:
        self._log = log
        self._fast_path = fast_path

    def serve(self, request: ProduceRequest, exchange: KafkaExchange) -> Pending[ProduceResponse | None]:
        """Append the batches. Raises CoordinatorError for the whole request: for unknown `acks`, and as
        `LogService.produce`."""
        if request.acks not in _ACKS:
            text = f"acks are {request.acks} and must be 0, 1 or -1"
            raise FrontRefused(INVALID_REQUIRED_ACKS, text)
        plan = list(_planned(request, exchange.version))

        def append(batches: list[ClientBatch]) -> Pending[list[ProduceResult]]:
            return self._log.produce(Produce(_transactional_id(request, batches), batches), exchange.context)

        return answered(plan, ClientBatch, append).map(partial(_response, request, exchange))

    def take(self, request: ProduceRequest, exchange: KafkaExchange) -> ProduceResponse | None:
        """Offer a request of the common shape to the fast path."""
        if self._fast_path is None or not request.transactional_id or request.acks not in _ACKS[1:]:
            return None
        batches: list[FastBatch] = []
        for each in _planned(request, exchange.version):
            if not isinstance(each, ClientBatch) or isinstance(each.header, Refused):
                return None
            batches.append((each.name, each.header, each.payload, each.crc))
        results = self._fast_path.produce(request.transactional_id, batches, exchange.context)
        return None if results is None else _response(request, exchange, results)

    def refused(
        self, request: ProduceRequest, exchange: KafkaExchange, error: CoordinatorError
    ) -> ProduceResponse | None:
        """Return the error for each batch."""
        return _response(request, exchange, repeat(ProduceResult(ANY_PARTITION, error=error)))


def produce_handlers(log: LogService, fast_path: FastPath | None) -> Iterator[tuple[ApiKey, ApiHandler]]:
    """Yield the handler of Produce."""
    api = ProduceApi(log, fast_path)
    yield ApiKey.PRODUCE, ApiHandler(api.serve, api.refused, None if fast_path is None else api.take)


def _planned(request: ProduceRequest, version: int) -> Iterator[Planned]:
    for topic in request.topic_data:
        topic_id = topic.topic_id if version >= TOPIC_IDS_SINCE else b""
        for partition in topic.partition_data:
            name = PartitionName(topic.name, topic_id, partition.index)
            refusal = impossible(name)
            yield _client_batch(name, partition, version) if refusal is None else ProduceResult(name, error=refusal)


def _client_batch(name: PartitionName, partition: PartitionProduceData, version: int) -> ClientBatch:
    """Return the batch for a partition. A batch that cannot be understood has its refusal in place of the header."""
    try:
        header, payload, crc = _batch(partition.records, version)
    except Refused as refusal:
        return ClientBatch(name, refusal, b"", None)
    return ClientBatch(name, header, payload, crc)


def _batch(records: memoryview | None, version: int) -> KafkaBatch:
    """Return the batch in a request. Raises Refused."""
    if not records:
        raise Refused(ErrorCode.INVALID_RECORD, "the partition has no batch; send one, or leave the partition out")
    batch = from_kafka(records)
    if batch[0].compression is Compression.ZSTD and version < ZSTD_SINCE:
        raise Refused(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"clients of Produce {version} cannot know ZSTD; use another compression, or a client of version "
            f"{ZSTD_SINCE}",
        )
    return batch


def _transactional_id(request: ProduceRequest, batches: Sequence[ClientBatch]) -> str | None:
    """Return the transactional id of the request. Without a transactional batch, it has no meaning in Kafka."""
    for batch in batches:
        if not isinstance(batch.header, Refused) and batch.header.is_transactional:
            return request.transactional_id
    return None


def _response(
    request: ProduceRequest, exchange: KafkaExchange, results: Iterable[ProduceResult]
) -> ProduceResponse | None:
    """Return the response to a client that wants one. Otherwise its exchange has the error codes."""
    found = iter(results)
    topics = [
        TopicProduceResponse(
            topic.name,
            topic.topic_id,
            [_partition_response(partition.index, exchange, next(found)) for partition in topic.partition_data],
        )
        for topic in request.topic_data
    ]
    return None if request.acks == NO_ACKS else ProduceResponse(topics)


def _partition_response(index: int, exchange: KafkaExchange, result: ProduceResult) -> PartitionProduceResponse:
    error = result.error
    if error is None:
        return PartitionProduceResponse(index, 0, result.base_offset, log_start_offset=result.log_start_offset)
    # The only error whose reader needs to know where the log starts.
    is_forgotten = error.code is ErrorCode.UNKNOWN_PRODUCER_ID
    return PartitionProduceResponse(
        index,
        exchange.code(error),
        _NO_OFFSET,
        log_start_offset=result.log_start_offset if is_forgotten else _NO_OFFSET,
        record_errors=_record_errors(error),
        error_message=error.message,
    )


def _record_errors(error: CoordinatorError) -> Sequence[BatchIndexAndErrorMessage]:
    """Return the records because of which a batch was refused, if it is known which these are."""
    if not isinstance(error, KeylessRecords):
        return ()
    return [BatchIndexAndErrorMessage(place, "the record has no key") for place in error.places]
