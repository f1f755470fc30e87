"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords of Kafka's protocol: positions in logs, and the move of a log's
start.

Source: KIP-79, KIP-98, KIP-107, KIP-320, KIP-405, KIP-734; Kafka's `ReplicaManager.fetchOffset`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import repeat
from types import MappingProxyType
from typing import Final

from coordinator_protocol.batch import NO_LEADER_EPOCH
from coordinator_protocol.errors import CoordinatorError, ErrorCode, Refused
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import PartitionName
from coordinator_server.kafka_front.apis import ApiKey
from coordinator_server.kafka_front.exchange import ApiHandler, KafkaExchange
from coordinator_server.kafka_front.isolation import isolation_of
from coordinator_server.kafka_front.messages.delete_records_request import DeleteRecordsRequest
from coordinator_server.kafka_front.messages.delete_records_response import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from coordinator_server.kafka_front.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest
from coordinator_server.kafka_front.messages.list_offsets_response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from coordinator_server.kafka_front.messages.offset_for_leader_epoch_request import OffsetForLeaderEpochRequest
from coordinator_server.kafka_front.messages.offset_for_leader_epoch_response import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from coordinator_server.kafka_front.partitions import ANY_PARTITION, answered, epoch_of, impossible
from partition_log.positions import PositionService
from partition_log.requests import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    DeleteRecords,
    DeleteRecordsResult,
    EpochEndResult,
    EpochQuery,
    ListOffsets,
    OffsetForLeaderEpoch,
    OffsetQuery,
    OffsetResult,
    RecordsToDelete,
)
from partition_log.service import LogService
from partition_log.state import NO_OFFSET, Isolation

CONSUMER: Final = -1
"""Replica id of a consumer. All others read past the last stable offset."""
NEWEST_TIMESTAMP: Final = -3
EARLIEST_LOCAL_TIMESTAMP: Final = -4
LATEST_TIERED_TIMESTAMP: Final = -5
EARLIEST_PENDING_UPLOAD_TIMESTAMP: Final = -6
LEADER_EPOCH_SINCE: Final = 4

_SINCE: Final[Mapping[int, int]] = MappingProxyType(
    {
        LATEST_TIMESTAMP: 1,
        EARLIEST_TIMESTAMP: 1,
        NEWEST_TIMESTAMP: 7,
        EARLIEST_LOCAL_TIMESTAMP: 8,
        LATEST_TIERED_TIMESTAMP: 9,
        EARLIEST_PENDING_UPLOAD_TIMESTAMP: 11,
    }
)
"""First version of ListOffsets that has each of the special timestamps."""
_WITHOUT_OFFSET: Final = (LATEST_TIERED_TIMESTAMP, EARLIEST_PENDING_UPLOAD_TIMESTAMP)
"""Positions in a tiered storage, which a log here does not have: no offset, as in Kafka without one."""
_AS: Final[Mapping[int, int]] = MappingProxyType(
    {EARLIEST_LOCAL_TIMESTAMP: EARLIEST_TIMESTAMP, **dict.fromkeys(_WITHOUT_OFFSET, LATEST_TIMESTAMP)}
)
"""Special timestamps that the core is asked for under another number."""


class ListOffsetsApi:
    """Finds positions by time, and the ends of logs."""

    def __init__(self, positions: PositionService) -> None:
        self._positions = positions

    def serve(self, request: ListOffsetsRequest, exchange: KafkaExchange) -> Pending[ListOffsetsResponse]:
        """Find the positions. Raises Refused INVALID_REQUEST for an unknown isolation level."""
        isolation = isolation_of(request.isolation_level)
        if request.replica_id != CONSUMER:
            isolation = Isolation.READ_UNCOMMITTED

        def find(queries: list[OffsetQuery]) -> Pending[list[OffsetResult]]:
            return self._positions.list_offsets(ListOffsets(queries, isolation), exchange.context)

        plan = list(_planned_queries(request, exchange.version))
        return answered(plan, OffsetQuery, find).map(partial(_offsets, request, exchange))

    def refused(
        self, request: ListOffsetsRequest, exchange: KafkaExchange, error: CoordinatorError
    ) -> ListOffsetsResponse:
        """Return the error for each partition."""
        return _offsets(request, exchange, repeat(OffsetResult(ANY_PARTITION, error=error)))


class LeaderEpochApi:
    """Finds the ends of leader epochs."""

    def __init__(self, positions: PositionService) -> None:
        self._positions = positions

    def serve(
        self, request: OffsetForLeaderEpochRequest, exchange: KafkaExchange
    ) -> Pending[OffsetForLeaderEpochResponse]:
        """Find the ends."""
        plan: list[EpochQuery | EpochEndResult] = []
        for topic in request.topics:
            for each in topic.partitions:
                name = PartitionName(topic.topic, b"", each.partition)
                refusal = impossible(name)
                plan.append(
                    EpochQuery(name, each.leader_epoch, epoch_of(each.current_leader_epoch))
                    if refusal is None
                    else EpochEndResult(name, error=refusal)
                )

        def find(queries: list[EpochQuery]) -> Pending[list[EpochEndResult]]:
            return self._positions.offset_for_leader_epoch(OffsetForLeaderEpoch(queries), exchange.context)

        return answered(plan, EpochQuery, find).map(partial(_epoch_ends, request, exchange))

    def refused(
        self, request: OffsetForLeaderEpochRequest, exchange: KafkaExchange, error: CoordinatorError
    ) -> OffsetForLeaderEpochResponse:
        """Return the error for each partition."""
        return _epoch_ends(request, exchange, repeat(EpochEndResult(ANY_PARTITION, error=error)))


class DeleteRecordsApi:
    """Moves the starts of logs."""

    def __init__(self, log: LogService) -> None:
        self._log = log

    def serve(self, request: DeleteRecordsRequest, exchange: KafkaExchange) -> Pending[DeleteRecordsResponse]:
        """Delete the records. Raises Refused INVALID_REQUEST for a partition that is named twice."""
        plan: list[RecordsToDelete | DeleteRecordsResult] = []
        for topic in request.topics:
            for each in topic.partitions:
                name = PartitionName(topic.name, b"", each.partition_index)
                refusal = impossible(name)
                plan.append(
                    RecordsToDelete(name, each.offset) if refusal is None else DeleteRecordsResult(name, error=refusal)
                )

        def delete(wanted: list[RecordsToDelete]) -> Pending[list[DeleteRecordsResult]]:
            return self._log.delete_records(DeleteRecords(wanted), exchange.context)

        return answered(plan, RecordsToDelete, delete).map(partial(_log_starts, request, exchange))

    def refused(
        self, request: DeleteRecordsRequest, exchange: KafkaExchange, error: CoordinatorError
    ) -> DeleteRecordsResponse:
        """Return the error for each partition."""
        return _log_starts(request, exchange, repeat(DeleteRecordsResult(ANY_PARTITION, error=error)))


def position_handlers(log: LogService, positions: PositionService) -> Iterator[tuple[ApiKey, ApiHandler]]:
    """Yield the handlers of this module's APIs."""
    offsets, epochs, records = ListOffsetsApi(positions), LeaderEpochApi(positions), DeleteRecordsApi(log)
    yield ApiKey.LIST_OFFSETS, ApiHandler(offsets.serve, offsets.refused)
    yield ApiKey.OFFSET_FOR_LEADER_EPOCH, ApiHandler(epochs.serve, epochs.refused)
    yield ApiKey.DELETE_RECORDS, ApiHandler(records.serve, records.refused)


def _planned_queries(request: ListOffsetsRequest, version: int) -> Iterator[OffsetQuery | OffsetResult]:
    counts = Counter((topic.name, each.partition_index) for topic in request.topics for each in topic.partitions)
    for topic in request.topics:
        for each in topic.partitions:
            name = PartitionName(topic.name, b"", each.partition_index)
            refusal = impossible(name) or _not_a_query(each, version, counts[topic.name, each.partition_index])
            if refusal is not None:
                yield OffsetResult(name, error=refusal)
            else:
                timestamp_ms = _AS.get(each.timestamp, each.timestamp)
                yield OffsetQuery(name, timestamp_ms, epoch_of(each.current_leader_epoch))


def _not_a_query(query: ListOffsetsPartition, version: int, count: int) -> Refused | None:
    """Return the refusal of a query as it stands; None if the partition may be asked."""
    if count > 1:
        text = f"the partition is named {count} times; name it once"
        return Refused(ErrorCode.INVALID_REQUEST, text)
    if query.timestamp < 0 and version < _SINCE.get(query.timestamp, version + 1):
        text = f"timestamp {query.timestamp} has no meaning in ListOffsets {version}"
        return Refused(ErrorCode.UNSUPPORTED_VERSION, text)
    return None


def _offsets(
    request: ListOffsetsRequest, exchange: KafkaExchange, results: Iterable[OffsetResult]
) -> ListOffsetsResponse:
    found = iter(results)
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(topic.name, [_offset(each, exchange, next(found)) for each in topic.partitions])
            for topic in request.topics
        ]
    )


def _offset(query: ListOffsetsPartition, exchange: KafkaExchange, result: OffsetResult) -> ListOffsetsPartitionResponse:
    if result.error is not None or query.timestamp in _WITHOUT_OFFSET:
        return ListOffsetsPartitionResponse(query.partition_index, exchange.code(result.error))
    epoch = NO_LEADER_EPOCH
    if result.leader_epoch is not None and exchange.version >= LEADER_EPOCH_SINCE:
        epoch = result.leader_epoch
    return ListOffsetsPartitionResponse(
        query.partition_index, 0, timestamp=result.timestamp_ms, offset=result.offset, leader_epoch=epoch
    )


def _epoch_ends(
    request: OffsetForLeaderEpochRequest, exchange: KafkaExchange, results: Iterable[EpochEndResult]
) -> OffsetForLeaderEpochResponse:
    found = iter(results)
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic.topic, [_epoch_end(each.partition, exchange, next(found)) for each in topic.partitions]
            )
            for topic in request.topics
        ]
    )


def _epoch_end(partition: int, exchange: KafkaExchange, result: EpochEndResult) -> EpochEndOffset:
    if result.error is not None:
        return EpochEndOffset(exchange.code(result.error), partition)
    return EpochEndOffset(0, partition, result.epoch, result.end_offset)


def _log_starts(
    request: DeleteRecordsRequest, exchange: KafkaExchange, results: Iterable[DeleteRecordsResult]
) -> DeleteRecordsResponse:
    found = iter(results)
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                topic.name, [_log_start(each.partition_index, exchange, next(found)) for each in topic.partitions]
            )
            for topic in request.topics
        ]
    )


def _log_start(partition: int, exchange: KafkaExchange, result: DeleteRecordsResult) -> DeleteRecordsPartitionResult:
    offset = result.low_watermark if result.error is None else NO_OFFSET
    return DeleteRecordsPartitionResult(partition, offset, exchange.code(result.error))
