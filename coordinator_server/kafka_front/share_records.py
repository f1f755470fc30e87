"""Records of share groups over Kafka's protocol: ShareFetch and ShareAcknowledge.

An answer to ShareFetch may end before a batch that was acquired, because the batch cannot be converted, or makes the
answer too large. Its records are released: the client would take them for gaps, and acknowledge them.

Source: KIP-932, KIP-1206 (modes of acquisition), KIP-1222 (renewal); Kafka's `KafkaApis.handleShareFetchRequest`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Final

from msgspec.structs import replace

from coordinator_protocol.batch import ENCODINGS_OF_OLD_READERS, Encoding
from coordinator_protocol.errors import CoordinatorError
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import PartitionName
from coordinator_runtime.worker import Worker
from coordinator_server.kafka_front.apis import ApiKey
from coordinator_server.kafka_front.exchange import ApiHandler, KafkaExchange
from coordinator_server.kafka_front.messages import share_acknowledge_response as acknowledge_response
from coordinator_server.kafka_front.messages import share_fetch_response as fetch_response
from coordinator_server.kafka_front.messages.share_acknowledge_request import AcknowledgementBatch as AcknowledgeBatch
from coordinator_server.kafka_front.messages.share_acknowledge_request import AcknowledgeTopic, ShareAcknowledgeRequest
from coordinator_server.kafka_front.messages.share_acknowledge_response import ShareAcknowledgeResponse
from coordinator_server.kafka_front.messages.share_fetch_request import AcknowledgementBatch as FetchBatch
from coordinator_server.kafka_front.messages.share_fetch_request import FetchTopic, ShareFetchRequest
from coordinator_server.kafka_front.messages.share_fetch_response import ShareFetchResponse
from coordinator_server.kafka_front.outgoing import ZSTD_SINCE, Outgoing, OutgoingRecords
from coordinator_server.kafka_front.partition_names import by_topic
from coordinator_server.kafka_front.uuids import ZERO_UUID
from group_coordinator.share_partitions.acquiring import AcquiredRange
from group_coordinator.share_partitions.requests import (
    AckBatches,
    PartitionAcks,
    ShareAcknowledge,
    ShareAcknowledgeReply,
    ShareFetch,
    ShareFetchReply,
    ShareFetchResult,
)
from group_coordinator.share_partitions.rules import AckBatch
from group_coordinator.share_partitions.service import SharePartitionService
from group_coordinator.share_partitions.sessions import INITIAL_EPOCH, MemberKey
from partition_log.fetch import Fetcher

_RECORD_LIMIT: Final = 1
"""Mode of acquisition in which a batch is taken apart at `max_records`."""
_EVERY_ENCODING: Final = ENCODINGS_OF_OLD_READERS | {Encoding.KAFKA_V2}
_NOTHING: Final = (b"",)


def share_record_handlers(
    service: SharePartitionService, fetcher: Fetcher, worker: Worker
) -> Iterator[tuple[ApiKey, ApiHandler]]:
    """Yield the handlers of this family. `worker` converts large batches."""
    records = ShareRecordsApi(service, OutgoingRecords(fetcher, worker))
    yield ApiKey.SHARE_FETCH, ApiHandler(records.fetch, _fetch_refused)
    yield ApiKey.SHARE_ACKNOWLEDGE, ApiHandler(records.acknowledge, _acknowledge_refused)


class ShareRecordsApi:
    """One method per API."""

    def __init__(self, service: SharePartitionService, outgoing: OutgoingRecords) -> None:
        self._service = service
        self._outgoing = outgoing

    def fetch(self, request: ShareFetchRequest, exchange: KafkaExchange) -> Pending[ShareFetchResponse]:
        command = _fetch(request)

        def respond(answered: ShareFetchReply) -> Pending[ShareFetchResponse]:
            reply = _with_all_of_a_new_session(command, answered)
            connection = exchange.context.connection
            sent = self._outgoing.of(
                [each.batches for each in reply.results], ZSTD_SINCE, command.bytes_max, connection
            )
            return sent.map(lambda records: self._response(command, request.batch_size, exchange, reply, records))

        return self._service.fetch(command, exchange.context).then(respond)

    def _response(
        self,
        command: ShareFetch,
        batch_size: int,
        exchange: KafkaExchange,
        reply: ShareFetchReply,
        records: Sequence[Outgoing],
    ) -> ShareFetchResponse:
        results = []
        for result, outgoing in zip(reply.results, records, strict=True):
            sent = result
            if outgoing.end_offset is not None:
                kept, dropped = _cut(result.ranges, outgoing.end_offset)
                self._service.release_unsent(MemberKey(command.group_id, command.member_id), result.name, dropped)
                sent = replace(result, ranges=kept, error=outgoing.error)
            sent = replace(sent, ranges=tuple(_split(sent, batch_size)))
            name = PartitionName("", result.name.topic_id, result.name.partition)
            results.append((name, _fetched_partition(sent, outgoing, exchange)))
        topics = [
            fetch_response.ShareFetchableTopicResponse(topic_id or ZERO_UUID, [data for _partition, data in partitions])
            for (_topic, topic_id), partitions in by_topic(results).items()
        ]
        return ShareFetchResponse(acquisition_lock_timeout_ms=reply.lock_duration_ms, responses=topics)

    def acknowledge(
        self, request: ShareAcknowledgeRequest, exchange: KafkaExchange
    ) -> Pending[ShareAcknowledgeResponse]:
        command = ShareAcknowledge(
            request.group_id or "", request.member_id or "", request.share_session_epoch, _acks(request.topics)
        )
        return self._service.acknowledge(command, exchange.context).map(lambda reply: _acknowledged(reply, exchange))


def _fetch(request: ShareFetchRequest) -> ShareFetch:
    forgotten = tuple(
        PartitionName("", topic.topic_id, partition)
        for topic in request.forgotten_topics_data
        for partition in topic.partitions
    )
    return ShareFetch(
        group_id=request.group_id or "",
        member_id=request.member_id or "",
        session_epoch=request.share_session_epoch,
        partitions=_acks(request.topics),
        forgotten=forgotten,
        wait_ms_max=max(0, request.max_wait_ms),
        bytes_min=max(0, request.min_bytes),
        bytes_max=max(1, request.max_bytes),
        records_max=0 if request.is_renew_ack else max(0, request.max_records),
        is_strict=request.share_acquire_mode == _RECORD_LIMIT,
        accepted_encodings=_EVERY_ENCODING,
        ends_with_connection=True,
    )


def _acks(topics: Iterable[FetchTopic | AcknowledgeTopic]) -> tuple[PartitionAcks, ...]:
    return tuple(
        PartitionAcks(
            PartitionName("", topic.topic_id, each.partition_index),
            partial(_batches, each.acknowledgement_batches) if each.acknowledgement_batches else (),
        )
        for topic in topics
        for each in topic.partitions
    )


def _batches(sent: Iterable[FetchBatch | AcknowledgeBatch]) -> AckBatches:
    return tuple([AckBatch(each.first_offset, each.last_offset, each.acknowledge_types) for each in sent])


def _cut(
    ranges: Iterable[AcquiredRange], end_offset: int
) -> tuple[tuple[AcquiredRange, ...], tuple[AcquiredRange, ...]]:
    """Return the ranges before an offset, and those from it on."""
    kept = [each._replace(last_offset=min(each.last_offset, end_offset - 1)) for each in ranges]
    dropped = [each._replace(first_offset=max(each.first_offset, end_offset)) for each in ranges]
    return tuple(filter(_has_offsets, kept)), tuple(filter(_has_offsets, dropped))


def _with_all_of_a_new_session(command: ShareFetch, reply: ShareFetchReply) -> ShareFetchReply:
    """Return the reply with every partition that begins the session, as in Kafka. Later replies have only those with
    records, acknowledgements or errors."""
    if command.session_epoch != INITIAL_EPOCH:
        return reply
    answered = {(each.name.topic_id, each.name.partition) for each in reply.results}
    empty = (each.name for each in command.partitions if (each.name.topic_id, each.name.partition) not in answered)
    return replace(reply, results=(*reply.results, *map(ShareFetchResult, empty)))


def _split(result: ShareFetchResult, batch_size: int) -> Iterator[AcquiredRange]:
    """Yield the acquired ranges, the longer ones in parts of that many records or a few more. A part ends with a batch,
    as in Kafka's SharePartition. The client acknowledges by these parts."""
    for each in result.ranges:
        rest = each
        for header, _encoded in result.batches if batch_size > 0 else ():
            at = header.base_offset
            if at - rest.first_offset >= batch_size and at <= rest.last_offset:
                yield rest._replace(last_offset=at - 1)
                rest = rest._replace(first_offset=at)
        yield rest


def _has_offsets(each: AcquiredRange) -> bool:
    return each.first_offset <= each.last_offset


def _fetched_partition(
    result: ShareFetchResult, outgoing: Outgoing, exchange: KafkaExchange
) -> fetch_response.PartitionData:
    error, acknowledge_error = result.error, result.acknowledge_error
    return fetch_response.PartitionData(
        partition_index=result.name.partition,
        error_code=exchange.code(error),
        error_message=None if error is None else error.message,
        acknowledge_error_code=exchange.code(acknowledge_error),
        acknowledge_error_message=None if acknowledge_error is None else acknowledge_error.message,
        records=outgoing.records or _NOTHING,
        acquired_records=[
            fetch_response.AcquiredRecords(each.first_offset, each.last_offset, each.delivery_count)
            for each in result.ranges
        ],
    )


def _fetch_refused(_request: ShareFetchRequest, exchange: KafkaExchange, error: CoordinatorError) -> ShareFetchResponse:
    return ShareFetchResponse(error_code=exchange.code(error), error_message=error.message)


def _acknowledged(reply: ShareAcknowledgeReply, exchange: KafkaExchange) -> ShareAcknowledgeResponse:
    results = [
        (
            name,
            acknowledge_response.PartitionData(
                partition_index=name.partition,
                error_code=exchange.code(error),
                error_message=None if error is None else error.message,
            ),
        )
        for name, error in reply.results
    ]
    topics = [
        acknowledge_response.ShareAcknowledgeTopicResponse(topic_id, [data for _partition, data in partitions])
        for (_topic, topic_id), partitions in by_topic(results).items()
    ]
    return ShareAcknowledgeResponse(acquisition_lock_timeout_ms=reply.lock_duration_ms, responses=topics)


def _acknowledge_refused(
    _request: ShareAcknowledgeRequest, exchange: KafkaExchange, error: CoordinatorError
) -> ShareAcknowledgeResponse:
    return ShareAcknowledgeResponse(error_code=exchange.code(error), error_message=error.message)
