"""ShareService on the wire: messages to commands of `SharePartitionService`, its values to messages."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final

from coordinator_api.v1 import share_pb2, transaction_pb2
from coordinator_protocol.methods import Method
from coordinator_protocol.wire import bytes_field, field_prefix
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import CallContext, Committer, GroupAcknowledgements, Membership, PartitionName
from coordinator_server.grpc_front.wire.edge import set_error, unchecked_names
from coordinator_server.grpc_front.wire.log.fetch_edge import RecordsAnswer, accepted_encodings_of
from group_coordinator.share_partitions.requests import (
    AckBatches,
    PartitionAcks,
    ShareAcknowledge,
    ShareAcknowledgeReply,
    ShareFetch,
    ShareFetchReply,
    ShareFetchResult,
    TxnShareAcknowledge,
)
from group_coordinator.share_partitions.rules import AckBatch
from group_coordinator.share_partitions.service import SharePartitionService
from group_coordinator.share_partitions.transacted import TxnShareService

BYTES_DEFAULT: Final = 1 << 20
RECORDS_DEFAULT: Final = 500
_RESULT_PREFIX: Final = partial(field_prefix, bytes_field(share_pb2.ShareFetchResponse.RESULTS_FIELD_NUMBER))


class ShareFetchAnswer(RecordsAnswer[share_pb2.ShareFetchResult]):
    """A successful `ShareFetchResponse`."""

    def __init__(self, reply: ShareFetchReply) -> None:
        before = share_pb2.ShareFetchResponse(lock_duration_ms=reply.lock_duration_ms).SerializeToString()
        super().__init__(before, ((_result_fields(each), each.batches) for each in reply.results), _RESULT_PREFIX)


class ShareRecordServicer:
    """One method per RPC. Errors of a whole call are raised or carried by the Pending; the dispatcher answers them."""

    def __init__(self, service: SharePartitionService) -> None:
        self._service = service

    def ShareFetch(self, request: share_pb2.ShareFetchRequest, context: CallContext) -> Pending[ShareFetchAnswer]:
        return self._service.fetch(_fetch(request), context).map(ShareFetchAnswer)

    def ShareAcknowledge(
        self, request: share_pb2.ShareAcknowledgeRequest, context: CallContext
    ) -> Pending[share_pb2.ShareAcknowledgeResponse]:
        command = ShareAcknowledge(
            request.group_id, request.member_id, request.session_epoch, _acknowledgements(request.partitions)
        )
        return self._service.acknowledge(command, context).map(_acknowledge_response)


class TxnShareServicer:
    """TxnShareAcknowledge, as `ShareRecordServicer`."""

    def __init__(self, service: TxnShareService) -> None:
        self._service = service

    def TxnShareAcknowledge(
        self, request: share_pb2.TxnShareAcknowledgeRequest, context: CallContext
    ) -> Pending[share_pb2.TxnShareAcknowledgeResponse]:
        command = TxnShareAcknowledge(
            request.group_id,
            Committer(request.member_id, request.member_epoch),
            Membership(request.transactional_id, request.producer_id, request.producer_epoch),
            _acknowledgements(request.partitions),
        )
        return self._service.acknowledge(command, context).map(lambda _done: share_pb2.TxnShareAcknowledgeResponse())


def transacted_shares(message: transaction_pb2.TransactShares) -> GroupAcknowledgements:
    """Return the acknowledgements that a Transact brings for one share group."""
    acks = _acknowledgements(message.partitions)
    committer = Committer(message.member_id, message.member_epoch)
    return GroupAcknowledgements(message.group_id, committer, tuple((each.name, each.batches) for each in acks))


def _fetch(message: share_pb2.ShareFetchRequest) -> ShareFetch:
    return ShareFetch(
        group_id=message.group_id,
        member_id=message.member_id,
        session_epoch=message.session_epoch,
        partitions=_acknowledgements(message.partitions),
        forgotten=tuple(unchecked_names(message.forgotten)),
        wait_ms_max=message.max_wait_ms,
        bytes_min=message.min_bytes or 1,
        bytes_max=message.max_bytes or BYTES_DEFAULT,
        records_max=message.max_records or RECORDS_DEFAULT,
        is_strict=message.strict_max_records,
        accepted_encodings=accepted_encodings_of(message.accepted_encodings),
    )


def _acknowledgements(partitions: Iterable[share_pb2.SharePartition]) -> tuple[PartitionAcks, ...]:
    return tuple([_partition(each) for each in partitions])


def _partition(message: share_pb2.SharePartition) -> PartitionAcks:
    batches = message.acknowledgements
    return PartitionAcks(
        PartitionName(message.topic, message.topic_id, message.partition), partial(_batches, batches) if batches else ()
    )


def _batches(messages: Iterable[share_pb2.AcknowledgementBatch]) -> AckBatches:
    return tuple([AckBatch(each.first_offset, each.last_offset, tuple(each.types)) for each in messages])


def _result_fields(result: ShareFetchResult) -> share_pb2.ShareFetchResult:
    name = result.name
    message = share_pb2.ShareFetchResult(topic=name.topic, topic_id=name.topic_id, partition=name.partition)
    set_error(message, Method.SHARE_FETCH, result.error)
    if result.acknowledge_error is not None:
        error = set_error(share_pb2.ShareAcknowledgeResult(), Method.SHARE_FETCH, result.acknowledge_error)
        message.acknowledge_error_code = error.error_code
        message.acknowledge_error_class = error.error_class
        message.acknowledge_error_message = error.error_message
    for each in result.ranges:
        message.acquired.add(
            first_offset=each.first_offset, last_offset=each.last_offset, delivery_count=each.delivery_count
        )
    return message


def _acknowledge_response(reply: ShareAcknowledgeReply) -> share_pb2.ShareAcknowledgeResponse:
    response = share_pb2.ShareAcknowledgeResponse(lock_duration_ms=reply.lock_duration_ms)
    for name, error in reply.results:
        result = response.results.add(topic=name.topic, topic_id=name.topic_id, partition=name.partition)
        set_error(result, Method.SHARE_ACKNOWLEDGE, error)
    return response
