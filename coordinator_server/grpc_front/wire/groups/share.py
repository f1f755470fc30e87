"""The share members' part of GroupService: messages to commands of `ShareService`, its values to messages."""

from __future__ import annotations

from coordinator_api.v1 import group_pb2
from coordinator_protocol.methods import Method
from coordinator_runtime.pending import Pending, settled
from coordinator_runtime.ports import CallContext
from coordinator_server.grpc_front.wire.edge import set_error
from coordinator_server.grpc_front.wire.groups.topics import topic_partitions
from group_coordinator.members import HeartbeatAnswer
from group_coordinator.share.requests import ShareGroupDescription, ShareHeartbeat
from group_coordinator.share.service import ShareService


class ShareServicer:
    """One method per RPC. Errors of a whole call are raised or carried by the Pending; the dispatcher answers them."""

    def __init__(self, service: ShareService) -> None:
        self._service = service

    def ShareGroupHeartbeat(
        self, request: group_pb2.ShareGroupHeartbeatRequest, context: CallContext
    ) -> Pending[group_pb2.ShareGroupHeartbeatResponse]:
        return self._service.heartbeat(_heartbeat(request), context).map(_heartbeat_response)

    def ShareGroupDescribe(
        self, request: group_pb2.ShareGroupDescribeRequest, context: CallContext
    ) -> Pending[group_pb2.ShareGroupDescribeResponse]:
        response = group_pb2.ShareGroupDescribeResponse()
        for described in self._service.describe(request.group_ids, context):
            description = response.groups.add(group_id=described.group_id)
            if described.refusal is not None:
                set_error(description, Method.SHARE_GROUP_DESCRIBE, described.refusal)
            else:
                _fill_description(description, described)
        return settled(response)


def _heartbeat(message: group_pb2.ShareGroupHeartbeatRequest) -> ShareHeartbeat:
    has_names = message.HasField("subscribed_topic_names")
    return ShareHeartbeat(
        group_id=message.group_id,
        member_id=message.member_id,
        member_epoch=message.member_epoch,
        rack_id=message.rack_id if message.HasField("rack_id") else None,
        subscribed_topic_names=frozenset(message.subscribed_topic_names.names) if has_names else None,
        max_wait_ms=message.max_wait_ms,
    )


def _heartbeat_response(answer: HeartbeatAnswer) -> group_pb2.ShareGroupHeartbeatResponse:
    response = group_pb2.ShareGroupHeartbeatResponse(
        member_id=answer.member_id,
        member_epoch=answer.member_epoch,
        heartbeat_interval_ms=answer.heartbeat_interval_ms,
    )
    if answer.assigned is not None:
        response.assignment.SetInParent()
        response.assignment.topics.extend(topic_partitions(answer.assigned))
    return response


def _fill_description(description: group_pb2.ShareGroupDescription, described: ShareGroupDescription) -> None:
    description.group_state = described.state_name
    description.group_epoch = described.group_epoch
    description.assignment_epoch = described.assignment_epoch
    description.assignor_name = described.assignor_name
    for each in described.members:
        member = each.member
        described_member = description.members.add(
            member_id=member.member_id,
            rack_id=member.rack_id,
            member_epoch=each.member_epoch,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=sorted(member.topics),
        )
        described_member.assignment.extend(topic_partitions(each.assigned))
