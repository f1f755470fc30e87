"""LogService on the wire: messages to commands of the partition log, the use case, and its results back. The services
check numbers and names. Only values that the commands cannot express are refused here.

A value that a batch cannot have is refused for that batch alone. An unknown encoding is refused with
UNSUPPORTED_FOR_MESSAGE_FORMAT, because a newer server may know it. An unknown compression is refused with
UNSUPPORTED_COMPRESSION_TYPE. A missing encoding or a control batch is refused with INVALID_RECORD, because no server
takes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

from coordinator_api.v1 import log_pb2
from coordinator_core.fast_batches import FastBatch
from coordinator_protocol.batch import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    BatchHeader,
    Compression,
    Encoding,
    TimestampType,
    compression_of,
    encoding_of,
)
from coordinator_protocol.errors import CoordinatorError, ErrorCode, Refused
from coordinator_protocol.marker import Marker
from coordinator_protocol.methods import Method
from coordinator_protocol.producers import NO_SEQUENCE
from coordinator_runtime.incarnation import IncarnationCause
from coordinator_runtime.pending import Pending, settled
from coordinator_runtime.ports import CallContext, ClientBatch, PartitionName
from coordinator_server.grpc_front.wire.edge import (
    OnFastPath,
    ResponseT,
    outcome_of,
    set_error,
    throttle_ms_of,
    unchecked_names,
)
from coordinator_server.grpc_front.wire.log.fetch_edge import FetchAnswer, accepted_encodings_of, isolation_of
from coordinator_server.grpc_front.wire.log.snapshots import filter_of
from partition_log.catalog.settings import Origin, SettingsChange
from partition_log.catalog.state import MorePartitions, NewTopic, TopicToAlter
from partition_log.foreign_markers import DecidedMarker, ForeignMarkers, MarkerResult, WriteTxnMarkers
from partition_log.positions import PositionService
from partition_log.requests import (
    AlterTopicConfigs,
    CreatePartitions,
    CreateTopics,
    DeleteRecords,
    DeleteRecordsResult,
    DeleteTopics,
    DescribedTopic,
    DescribeProducers,
    DescribeTopicConfigs,
    DescribeTopics,
    Fetch,
    FetchItem,
    ListOffsets,
    OffsetQuery,
    OffsetResult,
    Produce,
    ProduceResult,
    ProducersDescription,
    RecordsToDelete,
    TopicConfigs,
    TopicName,
    TopicResult,
)
from partition_log.service import LogService
from partition_log.state import NO_COORDINATOR_SHARD, LeaderEpoch, ProducerEntry
from partition_log.topics import TopicService

FETCH_BYTES_DEFAULT: Final = 1 << 20

_TIMESTAMP_TYPES: Final = tuple(TimestampType)

_ORIGINS: Final = {
    Origin.TOPIC: log_pb2.CONFIG_ORIGIN_TOPIC,
    Origin.SERVER: log_pb2.CONFIG_ORIGIN_SERVER,
    Origin.DEFAULT: log_pb2.CONFIG_ORIGIN_DEFAULT,
}

_EPOCH_CAUSES: Final = {
    IncarnationCause.CREATED: log_pb2.LEADER_EPOCH_CAUSE_CREATED,
    IncarnationCause.DATA_LOSS: log_pb2.LEADER_EPOCH_CAUSE_DATA_LOSS,
    IncarnationCause.RESTORE: log_pb2.LEADER_EPOCH_CAUSE_RESTORE,
}

# All valid combinations of the enum numbers of a batch, with their meaning, so that one lookup checks a batch. Missing
# here = an unknown number, or a batch without an encoding.
_KINDS: Final = {
    (int(encoding), int(compression), int(timestamp_type), is_control): (encoding, compression, timestamp_type)
    for encoding in Encoding
    for compression in Compression
    for timestamp_type in TimestampType
    for is_control in (False, True)
    if encoding is not Encoding.CONTROL or is_control
}


class LogServicer:
    """One method per RPC. Errors of a whole call are raised or carried by the Pending; the dispatcher answers them."""

    def __init__(
        self, topics: TopicService, log: LogService, positions: PositionService, markers: ForeignMarkers
    ) -> None:
        self._topics = topics
        self._log = log
        self._positions = positions
        self._markers = markers

    def CreateTopics(
        self, request: log_pb2.CreateTopicsRequest, context: CallContext
    ) -> Pending[log_pb2.CreateTopicsResponse]:
        created = self._topics.create_topics(create_topics(request), context)
        return created.map(partial(_topic_results, log_pb2.CreateTopicsResponse, Method.CREATE_TOPICS))

    def DeleteTopics(
        self, request: log_pb2.DeleteTopicsRequest, context: CallContext
    ) -> Pending[log_pb2.DeleteTopicsResponse]:
        deleted = self._topics.delete_topics(DeleteTopics(topic_names(request.topics)), context)
        return deleted.map(partial(_topic_results, log_pb2.DeleteTopicsResponse, Method.DELETE_TOPICS))

    def DescribeTopics(
        self, request: log_pb2.DescribeTopicsRequest, context: CallContext
    ) -> Pending[log_pb2.DescribeTopicsResponse]:
        described = self._topics.describe_topics(DescribeTopics(topic_names(request.topics)), context)
        return settled(log_pb2.DescribeTopicsResponse(topics=map(_topic_description, described)))

    def CreatePartitions(
        self, request: log_pb2.CreatePartitionsRequest, context: CallContext
    ) -> Pending[log_pb2.CreatePartitionsResponse]:
        created = self._topics.create_partitions(create_partitions(request), context)
        return created.map(partial(_topic_results, log_pb2.CreatePartitionsResponse, Method.CREATE_PARTITIONS))

    def AlterTopicConfigs(
        self, request: log_pb2.AlterTopicConfigsRequest, context: CallContext
    ) -> Pending[log_pb2.AlterTopicConfigsResponse]:
        altered = self._topics.alter_topic_configs(alter_topic_configs(request), context)
        return altered.map(_altered_configs)

    def DescribeTopicConfigs(
        self, request: log_pb2.DescribeTopicConfigsRequest, context: CallContext
    ) -> Pending[log_pb2.DescribeTopicConfigsResponse]:
        described = self._topics.describe_topic_configs(DescribeTopicConfigs(topic_names(request.topics)), context)
        topics = [_topic_configs(Method.DESCRIBE_TOPIC_CONFIGS, topic) for topic in described]
        return settled(log_pb2.DescribeTopicConfigsResponse(topics=topics))

    def Produce(self, request: log_pb2.ProduceRequest, context: CallContext) -> Pending[log_pb2.ProduceResponse]:
        transactional_id = request.transactional_id if request.HasField("transactional_id") else None
        command = Produce(transactional_id, tuple(map(client_batch, request.batches)))
        return self._log.produce(command, context).map(produce_response)

    def Fetch(self, request: log_pb2.FetchRequest, context: CallContext) -> Pending[FetchAnswer]:
        return self._log.fetch(fetch(request), context).map(FetchAnswer)

    def ListOffsets(
        self, request: log_pb2.ListOffsetsRequest, context: CallContext
    ) -> Pending[log_pb2.ListOffsetsResponse]:
        return self._positions.list_offsets(list_offsets(request), context).map(list_offsets_response)

    def DeleteRecords(
        self, request: log_pb2.DeleteRecordsRequest, context: CallContext
    ) -> Pending[log_pb2.DeleteRecordsResponse]:
        return self._log.delete_records(delete_records(request), context).map(delete_records_response)

    def WriteTxnMarkers(
        self, request: log_pb2.WriteTxnMarkersRequest, context: CallContext
    ) -> Pending[log_pb2.WriteTxnMarkersResponse]:
        written = self._markers.write(write_txn_markers(request), context)
        return written.map(markers_response)

    def DescribeProducers(
        self, request: log_pb2.DescribeProducersRequest, context: CallContext
    ) -> Pending[log_pb2.DescribeProducersResponse]:
        described = self._log.describe_producers(describe_producers(request), context)
        return described.map(producers_response)


class FastProduce(OnFastPath):
    """Produce of batches in transactions that end later, on the fast path."""

    method: Final = Method.PRODUCE

    def take(self, request: log_pb2.ProduceRequest, context: CallContext) -> bytes | None:
        """Return the answer to a call of the common shape, else None."""
        batches = fast_batches(request.batches) if request.transactional_id else None
        if batches is None:
            return None
        results = self._fast_path.produce(request.transactional_id, batches, context)
        return None if results is None else produce_response(results).SerializeToString()

    def refused(self, request: log_pb2.ProduceRequest, answer: bytes, error: Exception) -> log_pb2.ProduceResponse:
        """Return the error for each batch, under the partition name in the answer. A defect is raised again."""
        if not isinstance(error, CoordinatorError):
            raise error
        results = log_pb2.ProduceResponse.FromString(answer).results
        names = [PartitionName(each.topic, each.topic_id, each.partition) for each in results]
        return produce_response([ProduceResult(name, error=error) for name in names])


def create_topics(message: log_pb2.CreateTopicsRequest) -> CreateTopics:
    topics = [NewTopic(topic.name, topic.partition_count, dict(topic.config)) for topic in message.topics]
    return CreateTopics(topics, message.validate_only)


def create_partitions(message: log_pb2.CreatePartitionsRequest) -> CreatePartitions:
    only = message.validate_only
    topics = [MorePartitions(topic.name, topic.topic_id, topic.partition_count, only) for topic in message.topics]
    return CreatePartitions(topics)


def alter_topic_configs(message: log_pb2.AlterTopicConfigsRequest) -> AlterTopicConfigs:
    only = message.validate_only
    return AlterTopicConfigs(
        [
            TopicToAlter(topic.name, topic.topic_id, SettingsChange(dict(topic.set), tuple(topic.unset)), only)
            for topic in message.topics
        ]
    )


def topic_names(topics: Iterable[log_pb2.TopicName]) -> list[TopicName]:
    return [TopicName(topic.name, topic.topic_id) for topic in topics]


def client_batch(item: log_pb2.PartitionBatch) -> ClientBatch:
    """Decode a batch and its partition. Only values that have no meaning here are refused; nothing else is checked."""
    batch = item.batch
    name = PartitionName(item.topic, item.topic_id, item.partition)
    header = batch_header(batch)
    if header is None:
        return ClientBatch(name, _refusal_of_kind(batch), b"", None)
    return ClientBatch(name, header, batch.payload, batch.crc32c or (0 if batch.HasField("crc32c") else None))


def fast_batches(items: Iterable[log_pb2.PartitionBatch]) -> list[FastBatch] | None:
    """Return batches as columns; None if one of them has an unknown number."""
    batches: list[FastBatch] = []
    for item in items:
        batch = item.batch
        header = batch_header(batch)
        if header is None:
            return None
        crc = batch.crc32c or (0 if batch.HasField("crc32c") else None)
        batches.append(((item.topic, item.topic_id, item.partition), header, batch.payload, crc))
    return batches


def batch_header(batch: log_pb2.RecordBatch) -> BatchHeader | None:
    """Return the unchecked header of a batch; None if one of its numbers is unknown."""
    is_control, has = batch.is_control, batch.HasField
    kind = _KINDS.get((batch.encoding, batch.compression, batch.timestamp_type, is_control))
    if kind is None:
        return None
    encoding, compression, timestamp_type = kind
    # Positional, because keyword arguments take more than twice as long, and this runs for every batch. A number other
    # than 0 is known to be present, so only for 0 the message is asked.
    return BatchHeader(
        batch.base_offset,
        batch.record_count,
        batch.base_timestamp_ms,
        batch.max_timestamp_ms,
        encoding,
        batch.producer_id or (0 if has("producer_id") else NO_PRODUCER_ID),
        batch.producer_epoch or (0 if has("producer_epoch") else NO_PRODUCER_EPOCH),
        batch.base_sequence or (0 if has("base_sequence") else NO_SEQUENCE),
        compression,
        timestamp_type,
        batch.is_transactional,
        is_control,
        batch.hole_count,
    )


def _refusal_of_kind(batch: log_pb2.RecordBatch) -> Refused:
    """Return the refusal that names the first unknown number."""
    if not batch.encoding and not batch.is_control:
        text = "the batch does not say how its payload is encoded; name the encoding"
        return Refused(ErrorCode.INVALID_RECORD, text)
    if not 0 <= batch.timestamp_type < len(_TIMESTAMP_TYPES):
        text = f"timestamp type {batch.timestamp_type} is not known here; use CREATE_TIME"
        return Refused(ErrorCode.INVALID_TIMESTAMP, text)
    try:
        encoding_of(batch.encoding)
        compression_of(batch.compression)
    except Refused as refusal:
        return refusal
    raise AssertionError("a batch whose numbers are all known was of no kind")


def fetch(message: log_pb2.FetchRequest) -> Fetch:
    """Decode the request; ignore unknown encodings. Raises Refused INVALID_REQUEST for an unknown isolation level."""
    items: list[FetchItem] = []
    for item in message.partitions:
        name = PartitionName(item.topic, item.topic_id, item.partition)
        end_offset = item.end_offset if item.HasField("end_offset") else None
        current = item.current_leader_epoch if item.HasField("current_leader_epoch") else None
        last_read = item.last_read_epoch if item.HasField("last_read_epoch") else None
        end_epoch = item.end_epoch if item.HasField("end_epoch") else None
        shown = filter_of(item.snapshot) if item.HasField("snapshot") else None
        partition_bytes_max = item.partition_max_bytes
        items.append(
            FetchItem(name, item.fetch_offset, end_offset, partition_bytes_max, current, last_read, end_epoch, shown)
        )
    return Fetch(
        tuple(items),
        isolation_of(message.isolation_level),
        message.max_wait_ms,
        message.min_bytes or 1,
        message.max_bytes or FETCH_BYTES_DEFAULT,
        message.raw,
        accepted_encodings_of(message.accepted_encodings),
    )


def list_offsets(message: log_pb2.ListOffsetsRequest) -> ListOffsets:
    """Decode the request. Raises Refused INVALID_REQUEST for an unknown isolation level."""
    queries = [
        OffsetQuery(
            PartitionName(item.topic, item.topic_id, item.partition),
            item.timestamp_ms,
            item.current_leader_epoch if item.HasField("current_leader_epoch") else None,
        )
        for item in message.partitions
    ]
    return ListOffsets(queries, isolation_of(message.isolation_level))


def _topic_results(
    response_type: Callable[..., ResponseT], method: Method, results: Sequence[TopicResult]
) -> ResponseT:
    return response_type(results=[_topic_result(method, result) for result in results])


def _altered_configs(results: Sequence[TopicConfigs]) -> log_pb2.AlterTopicConfigsResponse:
    answered = [_topic_configs(Method.ALTER_TOPIC_CONFIGS, result) for result in results]
    return log_pb2.AlterTopicConfigsResponse(results=answered)


def _topic_configs(method: Method, topic: TopicConfigs) -> log_pb2.TopicConfigs:
    message = log_pb2.TopicConfigs(
        name=topic.name,
        topic_id=topic.topic_id,
        settings=[
            log_pb2.TopicSetting(
                name=each.name, value=each.value, origin=_ORIGINS[each.origin], inherited_value=each.inherited
            )
            for each in topic.settings
        ],
    )
    return set_error(message, method, topic.error)


def _topic_result(method: Method, result: TopicResult) -> log_pb2.TopicResult:
    message = log_pb2.TopicResult(name=result.name, topic_id=result.topic_id, partition_count=result.partition_count)
    return set_error(message, method, result.error)


def _topic_description(topic: DescribedTopic) -> log_pb2.TopicDescription:
    message = log_pb2.TopicDescription(
        name=topic.name,
        topic_id=topic.topic_id,
        config=topic.config,
        partitions=[
            log_pb2.PartitionDescription(
                partition=partition,
                log_start_offset=head.log_start_offset,
                high_watermark=head.log_end_offset,
                last_stable_offset=head.last_stable_offset,
                open_transactions=head.open_transactions,
                leader_epochs=[_leader_epoch(epoch) for epoch in head.leadership.history],
            )
            for partition, head in enumerate(topic.heads)
        ],
    )
    return set_error(message, Method.DESCRIBE_TOPICS, topic.error)


def _leader_epoch(epoch: LeaderEpoch) -> log_pb2.LeaderEpoch:
    return log_pb2.LeaderEpoch(
        epoch=epoch.epoch,
        start_offset=epoch.start_offset,
        began_ms=epoch.began_ms,
        cause=_EPOCH_CAUSES[epoch.cause],
    )


def produce_response(results: Sequence[ProduceResult]) -> log_pb2.ProduceResponse:
    """Encode the result of each batch."""
    response = log_pb2.ProduceResponse()
    add = response.results.add
    for result in results:
        # Set one by one, because keyword arguments take twice as long.
        message = add()
        message.topic, message.topic_id, message.partition = result.name
        message.base_offset = result.base_offset
        message.log_start_offset = result.log_start_offset
        if result.is_duplicate:
            message.is_duplicate = True
        if result.error is not None:
            set_error(message, Method.PRODUCE, result.error)
            if result.error.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED:
                response.throttle_ms = max(response.throttle_ms, throttle_ms_of(result.error))
    return response


def list_offsets_response(results: Sequence[OffsetResult]) -> log_pb2.ListOffsetsResponse:
    """Encode the position for each query."""
    response = log_pb2.ListOffsetsResponse()
    for result in results:
        message = response.results.add(
            topic=result.name.topic,
            topic_id=result.name.topic_id,
            partition=result.name.partition,
            offset=result.offset,
            timestamp_ms=result.timestamp_ms,
            leader_epoch=result.leader_epoch,
        )
        set_error(message, Method.LIST_OFFSETS, result.error)
    return response


def delete_records(message: log_pb2.DeleteRecordsRequest) -> DeleteRecords:
    return DeleteRecords(
        [
            RecordsToDelete(PartitionName(item.topic, item.topic_id, item.partition), item.offset)
            for item in message.partitions
        ]
    )


def delete_records_response(results: Sequence[DeleteRecordsResult]) -> log_pb2.DeleteRecordsResponse:
    """Encode the new log start of each partition."""
    response = log_pb2.DeleteRecordsResponse()
    for result in results:
        topic, topic_id, partition = result.name
        message = response.results.add(
            topic=topic,
            topic_id=topic_id,
            partition=partition,
            low_watermark=result.low_watermark,
            held_back=result.held_back,
        )
        set_error(message, Method.DELETE_RECORDS, result.error)
    return response


def write_txn_markers(message: log_pb2.WriteTxnMarkersRequest) -> WriteTxnMarkers:
    """Decode the request. Raises Refused INVALID_REQUEST for a marker without an outcome."""
    return WriteTxnMarkers(
        [
            DecidedMarker(_marker(wanted.producer_id, wanted.marker), unchecked_names(wanted.topics))
            for wanted in message.markers
        ]
    )


def _marker(producer_id: int, message: log_pb2.ControlMarker) -> Marker:
    return Marker(
        producer_id=producer_id,
        txn_epoch=message.txn_epoch,
        next_epoch=message.next_epoch,
        coordinator_shard=message.coordinator_shard,
        coordinator_epoch=message.coordinator_epoch,
        outcome=outcome_of(message),
        csn=message.csn,
    )


def markers_response(results: Sequence[tuple[int, Sequence[MarkerResult]]]) -> log_pb2.WriteTxnMarkersResponse:
    """Encode the result of each marker in each partition, by producer."""
    response = log_pb2.WriteTxnMarkersResponse()
    for producer_id, of_producer in results:
        message = response.results.add(producer_id=producer_id)
        for result in of_producer:
            topic, topic_id, partition = result.name
            item = message.partitions.add(topic=topic, topic_id=topic_id, partition=partition)
            set_error(item, Method.WRITE_TXN_MARKERS, result.error)
    return response


def describe_producers(message: log_pb2.DescribeProducersRequest) -> DescribeProducers:
    return DescribeProducers(unchecked_names(message.topics))


def producers_response(described: Sequence[ProducersDescription]) -> log_pb2.DescribeProducersResponse:
    """Encode the producers of each partition."""
    response = log_pb2.DescribeProducersResponse()
    for found in described:
        topic, topic_id, partition = found.name
        message = response.partitions.add(topic=topic, topic_id=topic_id, partition=partition)
        message.producers.extend(_producer(producer_id, entry) for producer_id, entry in found.producers)
        set_error(message, Method.DESCRIBE_PRODUCERS, found.error)
    return response


def _producer(producer_id: int, entry: ProducerEntry) -> log_pb2.ProducerState:
    opened, marker = entry.open_transaction, entry.last_marker
    return log_pb2.ProducerState(
        producer_id=producer_id,
        producer_epoch=entry.epoch,
        last_sequence=entry.last_sequence,
        last_timestamp_ms=entry.last_append_ms,
        coordinator_epoch=entry.coordinator_epoch,
        current_txn_start_offset=None if opened is None else opened.first_offset,
        current_txn_start_ms=None if opened is None else opened.started_ms,
        last_marker_csn=0 if marker is None else marker.csn,
        coordinator_shard=None if entry.coordinator_shard == NO_COORDINATOR_SHARD else entry.coordinator_shard,
    )
