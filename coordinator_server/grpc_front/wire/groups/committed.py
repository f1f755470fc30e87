"""The part of GroupService about offsets: messages to commands of `OffsetService`, its values to messages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeVar

from coordinator_api.v1 import group_pb2, transaction_pb2
from coordinator_protocol.errors import CoordinatorError, Refused
from coordinator_protocol.methods import Method
from coordinator_runtime.pending import Pending, settled
from coordinator_runtime.ports import CallContext, Committer, GroupOffsets, Membership, NamedOffset, PartitionName
from coordinator_server.grpc_front.wire.edge import error_response, set_error, set_item_error, unchecked_names
from group_coordinator.committed.requests import (
    FetchedGroup,
    FetchedOffset,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    Results,
    TxnOffsetCommit,
)
from group_coordinator.committed.service import OffsetService

NO_OFFSET: Final = -1

ResponseT = TypeVar(
    "ResponseT", group_pb2.OffsetCommitResponse, group_pb2.TxnOffsetCommitResponse, group_pb2.OffsetDeleteResponse
)


class OffsetServicer:
    """One method per RPC. Errors of a whole call are raised or carried by the Pending; the dispatcher answers them."""

    def __init__(self, offsets: OffsetService) -> None:
        self._offsets = offsets

    def OffsetCommit(
        self, request: group_pb2.OffsetCommitRequest, context: CallContext
    ) -> Pending[group_pb2.OffsetCommitResponse]:
        retention_time_ms = request.retention_time_ms if request.HasField("retention_time_ms") else None
        offsets = _named_offsets(request.topics)
        command = OffsetCommit(request.group_id, _committer(request), offsets, retention_time_ms)
        return _answer_each(
            Method.OFFSET_COMMIT,
            group_pb2.OffsetCommitResponse,
            [named.name for named in offsets],
            lambda: self._offsets.commit(command, context),
        )

    def TxnOffsetCommit(
        self, request: group_pb2.TxnOffsetCommitRequest, context: CallContext
    ) -> Pending[group_pb2.TxnOffsetCommitResponse]:
        membership = Membership(request.transactional_id, request.producer_id, request.producer_epoch)
        offsets = _named_offsets(request.topics)
        command = TxnOffsetCommit(request.group_id, _committer(request), offsets, membership)
        return _answer_each(
            Method.TXN_OFFSET_COMMIT,
            group_pb2.TxnOffsetCommitResponse,
            [named.name for named in offsets],
            lambda: self._offsets.commit_in_transaction(command, context),
        )

    def OffsetFetch(
        self, request: group_pb2.OffsetFetchRequest, context: CallContext
    ) -> Pending[group_pb2.OffsetFetchResponse]:
        commands = [
            OffsetFetch(
                group.group_id,
                Committer(group.member_id, group.member_epoch if group.HasField("member_epoch") else -1),
                tuple(unchecked_names(group.topics.topics)) if group.HasField("topics") else None,
            )
            for group in request.groups
        ]
        return self._offsets.fetch(commands, context, require_stable=request.require_stable).map(_fetch_response)

    def OffsetDelete(
        self, request: group_pb2.OffsetDeleteRequest, context: CallContext
    ) -> Pending[group_pb2.OffsetDeleteResponse]:
        names = tuple(unchecked_names(request.topics))
        return _answer_each(
            Method.OFFSET_DELETE,
            group_pb2.OffsetDeleteResponse,
            names,
            lambda: self._offsets.delete(OffsetDelete(request.group_id, names), context),
        )


def transacted_offsets(message: transaction_pb2.TransactOffsets) -> GroupOffsets:
    """Return the offsets that a Transact brings for one group."""
    return GroupOffsets(message.group_id, _committer(message), _named_offsets(message.topics))


def _committer(
    message: group_pb2.OffsetCommitRequest | group_pb2.TxnOffsetCommitRequest | transaction_pb2.TransactOffsets,
) -> Committer:
    is_member = message.HasField("generation_id_or_member_epoch")
    return Committer(
        message.member_id,
        message.generation_id_or_member_epoch if is_member else -1,
        message.group_instance_id if message.HasField("group_instance_id") else None,
    )


def _named_offsets(topics: Iterable[group_pb2.TopicOffsets]) -> tuple[NamedOffset, ...]:
    named = [
        NamedOffset(
            PartitionName(topic.topic, topic.topic_id, given.partition),
            given.committed_offset,
            given.committed_leader_epoch
            if given.HasField("committed_leader_epoch") and given.committed_leader_epoch >= 0
            else None,
            given.metadata,
        )
        for topic in topics
        for given in topic.partitions
    ]
    return tuple(named)


def _answer_each(
    method: Method,
    response_type: Callable[[], ResponseT],
    names: Sequence[PartitionName],
    use_case: Callable[[], Pending[Results]],
) -> Pending[ResponseT]:
    """Return one result per named partition. The refusal of a whole request is in the response and in every result, so
    that clients that only read results learn of it."""

    def filled(
        response: ResponseT, errors: Sequence[CoordinatorError | None], whole: CoordinatorError | None = None
    ) -> ResponseT:
        for name, error in zip(names, errors, strict=True):
            result = response.results.add(topic=name.topic, topic_id=name.topic_id, partition=name.partition)
            set_item_error(result, method, error, whole)
        return response

    def refuse(error: Exception) -> ResponseT:
        if not isinstance(error, CoordinatorError):
            raise error
        return filled(error_response(method, response_type, error), [error] * len(names), error)

    try:
        return use_case().map(lambda results: filled(response_type(), results), refuse)
    except Refused as refusal:
        return settled(refuse(refusal))


def _fetch_response(groups: Iterable[FetchedGroup]) -> group_pb2.OffsetFetchResponse:
    response = group_pb2.OffsetFetchResponse()
    for group in groups:
        fetched = response.groups.add(group_id=group.group_id)
        set_error(fetched, Method.OFFSET_FETCH, group.refusal)
        for each in group.offsets:
            _fill_fetched(fetched.offsets.add(), each)
    return response


def _fill_fetched(message: group_pb2.FetchedOffset, fetched: FetchedOffset) -> None:
    message.topic, message.topic_id, message.partition = fetched.name
    message.committed_offset = NO_OFFSET
    if fetched.refusal is not None:
        set_error(message, Method.OFFSET_FETCH, fetched.refusal)
        for producer, pending in fetched.blocking:
            message.pending.add(
                transactional_id=pending.transactional_id,
                producer_id=producer.producer_id,
                offset=pending.offset.committed_offset,
            )
        return
    offset = fetched.offset
    if offset is not None:
        message.committed_offset = offset.committed_offset
        message.metadata = offset.metadata
        message.commit_timestamp_ms = offset.commit_timestamp_ms
        if offset.leader_epoch is not None:
            message.committed_leader_epoch = offset.leader_epoch
