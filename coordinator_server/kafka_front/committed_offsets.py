"""Offsets of groups: OffsetCommit, TxnOffsetCommit, OffsetDelete. `fetched_offsets` has OffsetFetch.

Source: KIP-98 (offsets in transactions); KIP-447 (membership in them); KIP-848 (topic ids).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Final

from coordinator_protocol.errors import CoordinatorError, ErrorCode, Refused
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import Committer, Membership, NamedOffset, PartitionName
from coordinator_server.kafka_front.apis import ApiKey
from coordinator_server.kafka_front.exchange import ApiHandler, KafkaExchange
from coordinator_server.kafka_front.fetched_offsets import fetch_handler
from coordinator_server.kafka_front.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
)
from coordinator_server.kafka_front.messages.offset_commit_response import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from coordinator_server.kafka_front.messages.offset_delete_request import OffsetDeleteRequest
from coordinator_server.kafka_front.messages.offset_delete_response import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from coordinator_server.kafka_front.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
)
from coordinator_server.kafka_front.messages.txn_offset_commit_response import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from coordinator_server.kafka_front.partition_names import (
    Refusals,
    by_topic,
    in_kafkas_order,
    topic_id_of,
    without_repetitions,
)
from coordinator_server.kafka_front.uuids import ZERO_UUID
from group_coordinator.committed.requests import OffsetCommit, OffsetDelete, TxnOffsetCommit
from group_coordinator.committed.service import OffsetService

_DEFAULT_RETENTION: Final = -1
"""Retention of an OffsetCommit that leaves it to the server."""


def offset_handlers(service: OffsetService) -> Iterator[tuple[ApiKey, ApiHandler]]:
    """Yield the handlers of this family."""
    offsets = CommittedOffsets(service)
    yield ApiKey.OFFSET_COMMIT, ApiHandler(offsets.commit, _commit_refused)
    yield ApiKey.TXN_OFFSET_COMMIT, ApiHandler(offsets.commit_in_transaction, _txn_commit_refused)
    yield ApiKey.OFFSET_DELETE, ApiHandler(offsets.delete, _delete_refused)
    yield ApiKey.OFFSET_FETCH, fetch_handler(service)


class CommittedOffsets:
    """One method per API."""

    def __init__(self, service: OffsetService) -> None:
        self._service = service

    def commit(self, request: OffsetCommitRequest, exchange: KafkaExchange) -> Pending[OffsetCommitResponse]:
        if not request.group_id and request.generation_id_or_member_epoch >= 0:
            raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, "the group has no name, so it has no members and generations")
        retention_ms = request.retention_time_ms
        offsets = _offsets(request, exchange)
        command = OffsetCommit(
            request.group_id,
            Committer(request.member_id, request.generation_id_or_member_epoch, request.group_instance_id),
            offsets,
            None if retention_ms == _DEFAULT_RETENTION else retention_ms,
        )
        committed = self._service.commit(command, exchange.context)
        return committed.map(lambda errors: _committed(exchange, _each(offsets, errors)))

    def commit_in_transaction(
        self, request: TxnOffsetCommitRequest, exchange: KafkaExchange
    ) -> Pending[TxnOffsetCommitResponse]:
        offsets = _txn_offsets(request)
        command = TxnOffsetCommit(
            request.group_id,
            Committer(request.member_id, request.generation_id, request.group_instance_id),
            offsets,
            Membership(request.transactional_id, request.producer_id, request.producer_epoch),
        )
        committed = self._service.commit_in_transaction(command, exchange.context)
        return committed.map(lambda errors: _txn_committed(exchange, _each(offsets, errors)))

    def delete(self, request: OffsetDeleteRequest, exchange: KafkaExchange) -> Pending[OffsetDeleteResponse]:
        names = without_repetitions(
            PartitionName(topic.name, b"", each.partition_index)
            for topic in request.topics
            for each in topic.partitions
        )
        deleted = self._service.delete(OffsetDelete(request.group_id, names), exchange.context)
        return deleted.map(partial(_deleted, exchange, names))


def _offsets(request: OffsetCommitRequest, exchange: KafkaExchange) -> tuple[NamedOffset, ...]:
    offsets = [
        _offset(PartitionName(topic.name, topic_id_of(topic.topic_id, exchange), each.partition_index), each)
        for topic in request.topics
        for each in topic.partitions
    ]
    return tuple(offsets)


def _txn_offsets(request: TxnOffsetCommitRequest) -> tuple[NamedOffset, ...]:
    offsets = [
        _offset(PartitionName(topic.name, b"", each.partition_index), each)
        for topic in request.topics
        for each in topic.partitions
    ]
    return tuple(offsets)


def _offset(name: PartitionName, given: OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition) -> NamedOffset:
    leader_epoch = given.committed_leader_epoch
    return NamedOffset(
        name, given.committed_offset, leader_epoch if leader_epoch >= 0 else None, given.committed_metadata or ""
    )


def _each(offsets: Iterable[NamedOffset], errors: Iterable[CoordinatorError | None]) -> Refusals:
    return zip([named.name for named in offsets], errors, strict=True)


def _committed(exchange: KafkaExchange, errors: Refusals) -> OffsetCommitResponse:
    topics = [
        OffsetCommitResponseTopic(
            name=topic,
            topic_id=topic_id or ZERO_UUID,
            partitions=[
                OffsetCommitResponsePartition(partition_index=partition, error_code=exchange.code(error))
                for partition, error in partitions
            ],
        )
        for (topic, topic_id), partitions in by_topic(in_kafkas_order(errors)).items()
    ]
    return OffsetCommitResponse(topics=topics)


def _commit_refused(
    request: OffsetCommitRequest, exchange: KafkaExchange, error: CoordinatorError
) -> OffsetCommitResponse:
    return _committed(exchange, [(named.name, error) for named in _offsets(request, exchange)])


def _txn_committed(exchange: KafkaExchange, errors: Refusals) -> TxnOffsetCommitResponse:
    topics = [
        TxnOffsetCommitResponseTopic(
            name=topic,
            partitions=[
                TxnOffsetCommitResponsePartition(partition_index=partition, error_code=exchange.code(error))
                for partition, error in partitions
            ],
        )
        for (topic, _id), partitions in by_topic(in_kafkas_order(errors)).items()
    ]
    return TxnOffsetCommitResponse(topics=topics)


def _txn_commit_refused(
    request: TxnOffsetCommitRequest, exchange: KafkaExchange, error: CoordinatorError
) -> TxnOffsetCommitResponse:
    return _txn_committed(exchange, [(named.name, error) for named in _txn_offsets(request)])


def _deleted(
    exchange: KafkaExchange, names: Sequence[PartitionName], errors: Sequence[CoordinatorError | None]
) -> OffsetDeleteResponse:
    topics = [
        OffsetDeleteResponseTopic(
            name=topic,
            partitions=[
                OffsetDeleteResponsePartition(partition_index=partition, error_code=exchange.code(error))
                for partition, error in partitions
            ],
        )
        for (topic, _id), partitions in by_topic(in_kafkas_order(zip(names, errors, strict=True))).items()
    ]
    return OffsetDeleteResponse(topics=topics)


def _delete_refused(
    _request: OffsetDeleteRequest, exchange: KafkaExchange, error: CoordinatorError
) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(error_code=exchange.code(error))
