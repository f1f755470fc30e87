"""The consumer members' part of GroupService on the wire: authorise, map in, call the use case, map out."""

from __future__ import annotations

from coordinator_api.v1 import group_pb2
from coordinator_protocol.errors import Method, Refused
from coordinator_runtime.authorization import require
from coordinator_runtime.pending import Pending, settled
from coordinator_runtime.ports import Authorizer, CallContext, Permission, ResourceType, TopicMetadata
from coordinator_server.wire.edge import set_error
from coordinator_server.wire.groups.consumer import edge
from group_coordinator.consumer.service import ConsumerService


class ConsumerServicer:
    """One method per RPC; errors of a whole call are raised or carried by the Pending, and answered by the
    dispatcher."""

    def __init__(
        self, service: ConsumerService, topics: TopicMetadata, authorizer: Authorizer, default_assignor: str
    ) -> None:
        self._service = service
        self._topics = topics
        self._authorizer = authorizer
        self._default_assignor = default_assignor

    def ConsumerGroupHeartbeat(
        self, request: group_pb2.ConsumerGroupHeartbeatRequest, context: CallContext
    ) -> Pending[group_pb2.ConsumerGroupHeartbeatResponse]:
        require(self._authorizer, context, Permission.READ, ResourceType.GROUP, request.group_id)
        heartbeat = edge.heartbeat(request, self._topics)
        reply = self._service.heartbeat(heartbeat, context, max_wait_ms=request.max_wait_ms)
        return reply.map(lambda told: edge.heartbeat_response(told, self._topics))

    def ConsumerGroupDescribe(
        self, request: group_pb2.ConsumerGroupDescribeRequest, context: CallContext
    ) -> Pending[group_pb2.ConsumerGroupDescribeResponse]:
        response = group_pb2.ConsumerGroupDescribeResponse()
        for group_id in request.group_ids:
            description = response.groups.add(group_id=group_id)
            try:
                require(self._authorizer, context, Permission.DESCRIBE, ResourceType.GROUP, group_id)
                group = self._service.describe(group_id)
                edge.fill_description(description, group, self._topics, self._default_assignor)
            except Refused as refusal:
                set_error(description, Method.CONSUMER_GROUP_DESCRIBE, refusal)
        return settled(response)
