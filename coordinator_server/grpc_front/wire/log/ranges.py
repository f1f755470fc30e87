"""Requests about ranges of a log, on the wire: number of records, their sizes and positions, committed transactions."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import asdict

from coordinator_api.v1 import log_pb2
from coordinator_protocol.methods import Method
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import CallContext, PartitionName
from coordinator_server.grpc_front.wire.edge import set_error
from coordinator_server.grpc_front.wire.log.fetch_edge import isolation_of
from coordinator_server.grpc_front.wire.log.snapshots import filter_of
from partition_log.ranges import RangeService
from partition_log.requests import (
    AskedRange,
    CommittedResult,
    CountQuery,
    CountRecords,
    CountResult,
    ListCommitted,
    MeasureQuery,
    MeasureRecords,
    MeasureResult,
)


class RangeServicer:
    """The methods of LogService that are about ranges."""

    def __init__(self, ranges: RangeService) -> None:
        self._ranges = ranges

    def CountRecords(
        self, request: log_pb2.CountRecordsRequest, context: CallContext
    ) -> Pending[log_pb2.CountRecordsResponse]:
        return self._ranges.count_records(count_records(request), context).map(
            lambda results: log_pb2.CountRecordsResponse(results=map(_count_result, results))
        )

    def MeasureRecords(
        self, request: log_pb2.MeasureRecordsRequest, context: CallContext
    ) -> Pending[log_pb2.MeasureRecordsResponse]:
        return self._ranges.measure_records(measure_records(request), context).map(measure_records_response)

    def ListCommittedTransactions(
        self, request: log_pb2.ListCommittedTransactionsRequest, context: CallContext
    ) -> Pending[log_pb2.ListCommittedTransactionsResponse]:
        return self._ranges.list_committed(list_committed(request), context).map(committed_transactions_response)


def count_records(message: log_pb2.CountRecordsRequest) -> CountRecords:
    return CountRecords(
        [
            CountQuery(PartitionName(item.topic, item.topic_id, item.partition), item.start_offset)
            for item in message.partitions
        ]
    )


def _count_result(result: CountResult) -> log_pb2.CountResult:
    name, counted, head = result.name, result.counted, result.head
    message = log_pb2.CountResult(
        topic=name.topic,
        topic_id=name.topic_id,
        partition=name.partition,
        records=counted.records,
        committed_records=counted.committed_records,
        next_offset=counted.next_offset,
    )
    if head is not None:
        message.high_watermark = head.log_end_offset
        message.last_stable_offset = head.last_stable_offset
        message.log_start_offset = head.log_start_offset
    return set_error(message, Method.COUNT_RECORDS, result.error)


def measure_records(message: log_pb2.MeasureRecordsRequest) -> MeasureRecords:
    """Decode the request. Raises Refused INVALID_REQUEST for an unknown isolation level."""
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
    """Encode the positions of visible records for each query."""
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


def list_committed(message: log_pb2.ListCommittedTransactionsRequest) -> ListCommitted:
    return ListCommitted(
        [
            AskedRange(PartitionName(item.topic, item.topic_id, item.partition), item.start_offset, item.end_offset)
            for item in message.partitions
        ]
    )


def committed_transactions_response(
    results: Sequence[CommittedResult],
) -> log_pb2.ListCommittedTransactionsResponse:
    """Encode the committed transactions of each range."""
    response = log_pb2.ListCommittedTransactionsResponse()
    for result in results:
        name, commits = result.name, result.commits
        message = response.results.add(
            topic=name.topic, topic_id=name.topic_id, partition=name.partition, next_offset=commits.next_offset
        )
        for each in commits.transactions:
            message.transactions.add(**asdict(each))
        set_error(message, Method.LIST_COMMITTED_TRANSACTIONS, result.error)
    return response
