"""The consumer members' part of GroupService: messages to commands of `ConsumerService`, its values to messages."""

from __future__ import annotations

from typing import Final

from coordinator_api.v1 import group_pb2
from coordinator_protocol.methods import Method
from coordinator_runtime.pending import Pending, settled
from coordinator_runtime.ports import CallContext
from coordinator_server.grpc_front.wire.edge import set_error, unchecked_names
from coordinator_server.grpc_front.wire.groups.topics import topic_partitions
from group_coordinator.consumer.requests import ConsumerGroupDescription, HeartbeatRequest
from group_coordinator.consumer.service import ConsumerService
from group_coordinator.members import HeartbeatAnswer

_UNCHANGED: Final = -1
"""Value by which Kafka's clients say that a number is unchanged."""


class ConsumerServicer:
    """One method per RPC. Errors of a whole call are raised or carried by the Pending; the dispatcher answers them."""

    def __init__(self, service: ConsumerService) -> None:
        self._service = service

    def ConsumerGroupHeartbeat(
        self, request: group_pb2.ConsumerGroupHeartbeatRequest, context: CallContext
    ) -> Pending[group_pb2.ConsumerGroupHeartbeatResponse]:
        return self._service.heartbeat(_heartbeat(request), context).map(_heartbeat_response)

    def ConsumerGroupDescribe(
        self, request: group_pb2.ConsumerGroupDescribeRequest, context: CallContext
    ) -> Pending[group_pb2.ConsumerGroupDescribeResponse]:
        response = group_pb2.ConsumerGroupDescribeResponse()
        for described in self._service.describe(request.group_ids, context):
            description = response.groups.add(group_id=described.group_id)
            if described.refusal is not None:
                set_error(description, Method.CONSUMER_GROUP_DESCRIBE, described.refusal)
            else:
                _fill_description(description, described)
        return settled(response)


def _heartbeat(message: group_pb2.ConsumerGroupHeartbeatRequest) -> HeartbeatRequest:
    has_timeout = message.HasField("rebalance_timeout_ms") and message.rebalance_timeout_ms != _UNCHANGED
    has_names, has_owned = message.HasField("subscribed_topic_names"), message.HasField("topic_partitions")
    return HeartbeatRequest(
        group_id=message.group_id,
        member_id=message.member_id,
        member_epoch=message.member_epoch,
        instance_id=message.instance_id if message.HasField("instance_id") else None,
        rack_id=message.rack_id if message.HasField("rack_id") else None,
        rebalance_timeout_ms=message.rebalance_timeout_ms if has_timeout else None,
        subscribed_topic_names=frozenset(message.subscribed_topic_names.names) if has_names else None,
        subscribed_topic_regex=message.subscribed_topic_regex if message.HasField("subscribed_topic_regex") else None,
        server_assignor=message.server_assignor if message.HasField("server_assignor") else None,
        owned_names=tuple(unchecked_names(message.topic_partitions.topics)) if has_owned else None,
        max_wait_ms=message.max_wait_ms,
    )


def _heartbeat_response(answer: HeartbeatAnswer) -> group_pb2.ConsumerGroupHeartbeatResponse:
    response = group_pb2.ConsumerGroupHeartbeatResponse(
        member_id=answer.member_id,
        member_epoch=answer.member_epoch,
        heartbeat_interval_ms=answer.heartbeat_interval_ms,
    )
    if answer.assigned is not None:
        response.assignment.SetInParent()
        response.assignment.topics.extend(topic_partitions(answer.assigned))
    return response


def _fill_description(description: group_pb2.ConsumerGroupDescription, described: ConsumerGroupDescription) -> None:
    description.group_state = described.state_name
    description.group_epoch = described.group_epoch
    description.assignment_epoch = described.assignment_epoch
    description.assignor_name = described.assignor_name
    for each in described.members:
        member = each.member
        described_member = description.members.add(
            member_id=member.member_id,
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            member_epoch=each.member_epoch,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=sorted(member.subscription.names),
            subscribed_topic_regex=member.subscription.regex,
            is_classic=member.classic is not None,
        )
        described_member.assignment.extend(topic_partitions(each.assigned))
        described_member.target_assignment.extend(topic_partitions(each.target))
