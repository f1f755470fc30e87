"""What is asked about ranges of a log, on the wire: where the visible records lie, and what was committed."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import asdict

from coordinator_api.v1 import log_pb2
from coordinator_protocol.errors import Method
from coordinator_runtime.ports import PartitionName
from coordinator_server.wire.edge import set_error
from coordinator_server.wire.log.fetch_edge import isolation_of
from coordinator_server.wire.log.snapshots import filter_of
from partition_log.requests import MeasureQuery, MeasureRecords, MeasureResult


def measure_records(message: log_pb2.MeasureRecordsRequest) -> MeasureRecords:
    """Raises Refused INVALID_REQUEST for an unknown isolation level."""
    queries = [
        MeasureQuery(
            PartitionName(item.topic, item.topic_id, item.partition),
            item.start_offset,
            item.end_offset,
            filter_of(item.snapshot) if item.HasField("snapshot") else None,
        )
        for item in message.partitions
    ]
    return MeasureRecords(queries, message.step_bytes, isolation_of(message.isolation_level))


def measure_records_response(results: Sequence[MeasureResult]) -> log_pb2.MeasureRecordsResponse:
    """Where the visible records lie for each query."""
    response = log_pb2.MeasureRecordsResponse()
    for result in results:
        name, measured = result.name, result.measured
        message = response.results.add(
            topic=name.topic, topic_id=name.topic_id, partition=name.partition, next_offset=measured.next_offset
        )
        for step in measured.steps:
            message.steps.add(**step._asdict())
        set_error(message, Method.MEASURE_RECORDS, result.error)
    return response


def committed_transactions(message: log_pb2.ListCommittedTransactionsRequest) -> MeasureRecords:
    queries = [
        MeasureQuery(PartitionName(item.topic, item.topic_id, item.partition), item.start_offset, item.end_offset)
        for item in message.partitions
    ]
    return MeasureRecords(queries, is_of_commits=True)


def committed_transactions_response(
    results: Sequence[MeasureResult],
) -> log_pb2.ListCommittedTransactionsResponse:
    """What was committed in each range."""
    response = log_pb2.ListCommittedTransactionsResponse()
    for result in results:
        name, measured = result.name, result.measured
        message = response.results.add(
            topic=name.topic, topic_id=name.topic_id, partition=name.partition, next_offset=measured.next_offset
        )
        for each in measured.committed:
            message.transactions.add(**asdict(each))
        set_error(message, Method.LIST_COMMITTED_TRANSACTIONS, result.error)
    return response
