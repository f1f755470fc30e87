"""Between the messages about offsets and the values of this package."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from coordinator_api.v1 import group_pb2, transaction_pb2
from coordinator_protocol.errors import CoordinatorError, ErrorCode, Method, Refused
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import Membership, PartitionName
from coordinator_runtime.requests import Committer, GroupOffsets, NamedOffset
from coordinator_server.wire.edge import answer, partition_name, partition_names, set_error
from group_coordinator.committed.requests import (
    FetchedGroup,
    FetchedOffset,
    OffsetCommit,
    OffsetFetch,
    Results,
    TxnOffsetCommit,
)

NO_OFFSET = -1

_INT16_MAX = 2**15 - 1


ResponseT = TypeVar(
    "ResponseT", group_pb2.OffsetCommitResponse, group_pb2.TxnOffsetCommitResponse, group_pb2.OffsetDeleteResponse
)


def offset_commit(message: group_pb2.OffsetCommitRequest) -> OffsetCommit:
    """Raises Refused INVALID_REQUEST for names that are malformed or repeated, and for negative offsets and times."""
    retention_time_ms = message.retention_time_ms if message.HasField("retention_time_ms") else None
    if retention_time_ms is not None and retention_time_ms < 0:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"retention_time_ms is {retention_time_ms}: give a time, or leave it out for the server's retention",
        )
    return OffsetCommit(message.group_id, _committer(message), _named_offsets(message.topics), retention_time_ms)


def txn_offset_commit(message: group_pb2.TxnOffsetCommitRequest) -> TxnOffsetCommit:
    """Raises Refused INVALID_REQUEST as `offset_commit`, and for what can never be an identity."""
    if message.producer_id < 0 or not 0 <= message.producer_epoch <= _INT16_MAX:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"producer id {message.producer_id} with epoch {message.producer_epoch} is no identity; use what "
            "InitProducerId answered",
        )
    membership = Membership(message.transactional_id, message.producer_id, message.producer_epoch)
    return TxnOffsetCommit(message.group_id, _committer(message), _named_offsets(message.topics), membership)


def transacted_offsets(message: transaction_pb2.TransactOffsets) -> GroupOffsets:
    """The offsets that a Transact brings for one group. Raises Refused as `offset_commit`, and names the group."""
    try:
        return GroupOffsets(message.group_id, _committer(message), _named_offsets(message.topics))
    except Refused as refusal:
        raise Refused(refusal.code, f"group {message.group_id!a}: {refusal.message}") from refusal


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
    named = tuple(
        NamedOffset(
            partition_name(topic.topic, topic.topic_id, given.partition),
            given.committed_offset,
            given.committed_leader_epoch if given.HasField("committed_leader_epoch") else None,
            given.metadata,
        )
        for topic in topics
        for given in topic.partitions
    )
    if len(named) > 1 and len({each.name for each in named}) < len(named):
        raise Refused(ErrorCode.INVALID_REQUEST, "the request has several offsets for one partition; send the last one")
    for each in named:
        if each.committed_offset < 0:
            raise Refused(
                ErrorCode.INVALID_REQUEST,
                f"offset {each.committed_offset} of partition {each.name.partition} of topic {each.name.topic!a:.80}: "
                "offsets start at 0",
            )
    return named


def offset_fetches(message: group_pb2.OffsetFetchRequest) -> list[OffsetFetch]:
    """Raises Refused INVALID_REQUEST for names that are malformed or repeated."""
    return [
        OffsetFetch(
            group.group_id,
            Committer(group.member_id, group.member_epoch if group.HasField("member_epoch") else -1),
            tuple(partition_names(group.topics.topics)) if group.HasField("topics") else None,
        )
        for group in message.groups
    ]


def deleted_names(message: group_pb2.OffsetDeleteRequest) -> list[PartitionName]:
    """Raises Refused INVALID_REQUEST for names that are malformed or repeated."""
    return partition_names(message.topics)


def answer_each(
    method: Method,
    response_type: Callable[[], ResponseT],
    names: Iterable[PartitionName],
    use_case: Callable[[], Pending[Results]],
) -> Pending[ResponseT]:
    """One result per partition. The refusal of a whole request is the response's, and every partition repeats it."""

    def respond(results: Results) -> ResponseT:
        response = response_type()
        for name, refusal in zip(names, results, strict=True):
            _add_result(response, method, name, refusal)
        return response

    def repeat(response: ResponseT) -> ResponseT:
        if response.error_code:
            for name in names:
                result = response.results.add(topic=name.topic, topic_id=name.topic_id, partition=name.partition)
                result.error_code, result.error_class = response.error_code, response.error_class
                result.error_message = response.error_message
        return response

    return answer(method, response_type, lambda: use_case().map(respond)).map(repeat)


def _add_result(response: ResponseT, method: Method, name: PartitionName, refusal: CoordinatorError | None) -> None:
    result = response.results.add(topic=name.topic, topic_id=name.topic_id, partition=name.partition)
    if refusal is not None:
        set_error(result, method, refusal)


def fetch_response(groups: Iterable[FetchedGroup]) -> group_pb2.OffsetFetchResponse:
    response = group_pb2.OffsetFetchResponse()
    for group in groups:
        fetched = response.groups.add(group_id=group.group_id)
        if group.refusal is not None:
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
