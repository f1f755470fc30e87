"""The edge of LogService for markers and producers."""

from __future__ import annotations

from collections.abc import Sequence

from coordinator_api.v1 import log_pb2
from coordinator_protocol.errors import Method
from coordinator_protocol.marker import Marker, Outcome
from coordinator_server.wire.edge import set_error, unchecked_names
from partition_log.foreign_markers import DecidedMarker, MarkerResult, WriteTxnMarkers
from partition_log.requests import DescribeProducers, ProducersDescription
from partition_log.state import ProducerEntry


def write_txn_markers(message: log_pb2.WriteTxnMarkersRequest) -> WriteTxnMarkers:
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
        coordinator_epoch=message.coordinator_epoch,
        outcome=Outcome.COMMIT if message.committed else Outcome.ABORT,
        csn=message.csn,
    )


def markers_response(results: Sequence[tuple[int, Sequence[MarkerResult]]]) -> log_pb2.WriteTxnMarkersResponse:
    """What became of each marker in each partition, by producer."""
    response = log_pb2.WriteTxnMarkersResponse()
    for producer_id, of_producer in results:
        message = response.results.add(producer_id=producer_id)
        for result in of_producer:
            topic, topic_id, partition = result.name
            item = message.partitions.add(topic=topic, topic_id=topic_id, partition=partition)
            if result.error is not None:
                set_error(item, Method.WRITE_TXN_MARKERS, result.error)
    return response


def describe_producers(message: log_pb2.DescribeProducersRequest) -> DescribeProducers:
    return DescribeProducers(unchecked_names(message.topics))


def producers_response(described: Sequence[ProducersDescription]) -> log_pb2.DescribeProducersResponse:
    """The producers of each partition."""
    response = log_pb2.DescribeProducersResponse()
    for found in described:
        topic, topic_id, partition = found.name
        message = response.partitions.add(topic=topic, topic_id=topic_id, partition=partition)
        message.producers.extend(_producer(producer_id, entry) for producer_id, entry in found.producers)
        if found.error is not None:
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
    )
