"""The classic members' part of GroupService on the wire: authorise, map in, call the use case, map out."""

from __future__ import annotations

from functools import partial

from coordinator_api.v1 import group_pb2
from coordinator_runtime.authorization import require
from coordinator_runtime.pending import Pending, settled
from coordinator_runtime.ports import Authorizer, CallContext, Permission, ResourceType
from coordinator_server.wire.groups.classic import edge
from group_coordinator.classic.service import ClassicService


class ClassicServicer:
    """One method per RPC; errors of a whole call are raised or carried by the Pending, and answered by the
    dispatcher."""

    def __init__(self, service: ClassicService, authorizer: Authorizer) -> None:
        self._service = service
        self._authorizer = authorizer

    def JoinGroup(
        self, request: group_pb2.JoinGroupRequest, context: CallContext
    ) -> Pending[group_pb2.JoinGroupResponse]:
        # Refusals of the edge name the member id to go on with, too: so they must become refusals of the Pending.
        joined = settled(request).then(partial(self._join, context=context))
        return joined.recover(partial(edge.join_refused_response, request))

    def SyncGroup(
        self, request: group_pb2.SyncGroupRequest, context: CallContext
    ) -> Pending[group_pb2.SyncGroupResponse]:
        self._may_read(request.group_id, context)
        return self._service.sync(edge.sync_group(request), context).map(edge.synced_response)

    def Heartbeat(
        self, request: group_pb2.HeartbeatRequest, context: CallContext
    ) -> Pending[group_pb2.HeartbeatResponse]:
        self._may_read(request.group_id, context)
        heard = self._service.heartbeat(edge.heartbeat(request), context, max_wait_ms=request.max_wait_ms)
        return heard.map(lambda _heard: group_pb2.HeartbeatResponse())

    def LeaveGroup(
        self, request: group_pb2.LeaveGroupRequest, context: CallContext
    ) -> Pending[group_pb2.LeaveGroupResponse]:
        self._may_read(request.group_id, context)
        return self._service.leave(edge.leave_group(request), context).map(edge.left_response)

    def _join(self, request: group_pb2.JoinGroupRequest, context: CallContext) -> Pending[group_pb2.JoinGroupResponse]:
        self._may_read(request.group_id, context)
        return self._service.join(edge.join_group(request), context).map(edge.joined_response)

    def _may_read(self, group_id: str, context: CallContext) -> None:
        require(self._authorizer, context, Permission.READ, ResourceType.GROUP, group_id)
