"""The part of GroupService about the offsets of share groups: messages to arguments of `OffsetAdmin`, its values to
messages."""

from __future__ import annotations

from collections.abc import Sequence

from coordinator_api.v1 import group_pb2
from coordinator_protocol.errors import CoordinatorError
from coordinator_protocol.methods import Method
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import CallContext, PartitionName
from coordinator_server.grpc_front.wire.edge import set_error, unchecked_names
from group_coordinator.share_partitions.offset_admin import DescribedOffset, OffsetAdmin, WantedOffset


class ShareOffsetServicer:
    """One method per RPC. Errors of a whole call are raised or carried by the Pending; the dispatcher answers them."""

    def __init__(self, offsets: OffsetAdmin) -> None:
        self._offsets = offsets

    def DescribeShareGroupOffsets(
        self, request: group_pb2.DescribeShareGroupOffsetsRequest, context: CallContext
    ) -> Pending[group_pb2.DescribeShareGroupOffsetsResponse]:
        names = unchecked_names(request.topics.topics) if request.HasField("topics") else None
        return self._offsets.describe(request.group_id, names, context).map(_described)

    def AlterShareGroupOffsets(
        self, request: group_pb2.AlterShareGroupOffsetsRequest, context: CallContext
    ) -> Pending[group_pb2.AlterShareGroupOffsetsResponse]:
        wanted = [
            WantedOffset(PartitionName(each.topic, each.topic_id, each.partition), each.start_offset)
            for each in request.offsets
        ]

        def response(errors: Sequence[CoordinatorError | None]) -> group_pb2.AlterShareGroupOffsetsResponse:
            message = group_pb2.AlterShareGroupOffsetsResponse()
            for each, error in zip(wanted, errors, strict=True):
                topic, topic_id, partition = each.name
                result = message.results.add(topic=topic, topic_id=topic_id, partition=partition)
                set_error(result, Method.ALTER_SHARE_GROUP_OFFSETS, error)
            return message

        return self._offsets.alter(request.group_id, wanted, context).map(response)

    def DeleteShareGroupOffsets(
        self, request: group_pb2.DeleteShareGroupOffsetsRequest, context: CallContext
    ) -> Pending[group_pb2.DeleteShareGroupOffsetsResponse]:
        topics = [*request.topics]

        def response(errors: Sequence[CoordinatorError | None]) -> group_pb2.DeleteShareGroupOffsetsResponse:
            message = group_pb2.DeleteShareGroupOffsetsResponse()
            for topic, error in zip(topics, errors, strict=True):
                set_error(message.topics.add(topic=topic), Method.DELETE_SHARE_GROUP_OFFSETS, error)
            return message

        return self._offsets.delete(request.group_id, topics, context).map(response)


def _described(offsets: Sequence[DescribedOffset]) -> group_pb2.DescribeShareGroupOffsetsResponse:
    response = group_pb2.DescribeShareGroupOffsetsResponse()
    for each in offsets:
        message = response.offsets.add(
            topic=each.name.topic,
            topic_id=each.name.topic_id,
            partition=each.name.partition,
            start_offset=each.start_offset,
            leader_epoch=each.leader_epoch,
            lag=each.lag,
            due_letters=each.letters_due,
        )
        set_error(message, Method.DESCRIBE_SHARE_GROUP_OFFSETS, each.error)
    return response
