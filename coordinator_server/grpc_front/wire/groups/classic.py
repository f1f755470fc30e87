"""The classic members' part of GroupService: messages to commands of `ClassicService`, its values to messages."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from coordinator_api.v1 import group_pb2
from coordinator_protocol.errors import CoordinatorError, Refused
from coordinator_protocol.methods import Method
from coordinator_runtime.pending import Pending, settled
from coordinator_runtime.ports import CallContext
from coordinator_server.grpc_front.wire.edge import error_response, set_error
from group_coordinator.classic.requests import (
    Heartbeat,
    Joined,
    JoinGroup,
    JoinRefused,
    LeaveGroup,
    LeavingMember,
    Left,
    Synced,
    SyncGroup,
)
from group_coordinator.classic.service import ClassicService
from group_coordinator.classic.state import ClassicProtocol


class ClassicServicer:
    """One method per RPC. Errors of a whole call are raised or carried by the Pending; the dispatcher answers them."""

    def __init__(self, service: ClassicService) -> None:
        self._service = service

    def JoinGroup(
        self, request: group_pb2.JoinGroupRequest, context: CallContext
    ) -> Pending[group_pb2.JoinGroupResponse]:
        try:
            joined = self._service.join(_join_group(request), context)
        except Refused as refusal:
            return settled(_join_refused_response(request, refusal))
        return joined.map(_joined_response, partial(_join_refused_response, request))

    def SyncGroup(
        self, request: group_pb2.SyncGroupRequest, context: CallContext
    ) -> Pending[group_pb2.SyncGroupResponse]:
        command = SyncGroup(
            group_id=request.group_id,
            generation_id=request.generation_id,
            member_id=request.member_id,
            instance_id=request.group_instance_id if request.HasField("group_instance_id") else None,
            protocol_type=request.protocol_type if request.HasField("protocol_type") else None,
            protocol_name=request.protocol_name if request.HasField("protocol_name") else None,
            assignments={part.member_id: part.assignment for part in request.assignments},
        )
        return self._service.sync(command, context).map(_synced_response)

    def Heartbeat(
        self, request: group_pb2.HeartbeatRequest, context: CallContext
    ) -> Pending[group_pb2.HeartbeatResponse]:
        instance_id = request.group_instance_id if request.HasField("group_instance_id") else None
        command = Heartbeat(
            request.group_id, request.generation_id, request.member_id, instance_id, request.max_wait_ms
        )
        return self._service.heartbeat(command, context).map(lambda _heard: group_pb2.HeartbeatResponse())

    def LeaveGroup(
        self, request: group_pb2.LeaveGroupRequest, context: CallContext
    ) -> Pending[group_pb2.LeaveGroupResponse]:
        members = [
            LeavingMember(
                member.member_id,
                member.group_instance_id if member.HasField("group_instance_id") else None,
                member.reason,
            )
            for member in request.members
        ]
        return self._service.leave(LeaveGroup(request.group_id, tuple(members)), context).map(_left_response)


def _join_group(message: group_pb2.JoinGroupRequest) -> JoinGroup:
    # As in Kafka's oldest version: without a rebalance timeout, the session timeout is used for both.
    has_rebalance_timeout = message.HasField("rebalance_timeout_ms")
    return JoinGroup(
        group_id=message.group_id,
        member_id=message.member_id,
        instance_id=message.group_instance_id if message.HasField("group_instance_id") else None,
        session_timeout_ms=message.session_timeout_ms,
        rebalance_timeout_ms=message.rebalance_timeout_ms if has_rebalance_timeout else message.session_timeout_ms,
        protocol_type=message.protocol_type,
        protocols=tuple([ClassicProtocol(protocol.name, protocol.metadata) for protocol in message.protocols]),
        is_member_id_required=not message.skip_member_id_required,
        supports_skip_assignment=message.supports_skip_assignment,
        reason=message.reason,
    )


def _joined_response(joined: Joined) -> group_pb2.JoinGroupResponse:
    response = group_pb2.JoinGroupResponse(
        generation_id=joined.generation_id,
        protocol_type=joined.protocol_type,
        protocol_name=joined.protocol_name,
        leader=joined.leader,
        skip_assignment=joined.skip_assignment,
        member_id=joined.member_id,
    )
    for member in joined.members:
        response.members.add(member_id=member.member_id, group_instance_id=member.instance_id, metadata=member.metadata)
    return response


def _join_refused_response(message: group_pb2.JoinGroupRequest, error: Exception) -> group_pb2.JoinGroupResponse:
    """Return a refusal with the member id to go on with, mostly that of the request. Raises errors that are no
    refusal."""
    if not isinstance(error, CoordinatorError):
        raise error
    response = error_response(Method.JOIN_GROUP, group_pb2.JoinGroupResponse, error)
    response.generation_id = -1
    response.member_id = error.member_id if isinstance(error, JoinRefused) else message.member_id
    return response


def _synced_response(synced: Synced) -> group_pb2.SyncGroupResponse:
    return group_pb2.SyncGroupResponse(
        protocol_type=synced.protocol_type, protocol_name=synced.protocol_name, assignment=synced.assignment
    )


def _left_response(results: Sequence[Left]) -> group_pb2.LeaveGroupResponse:
    response = group_pb2.LeaveGroupResponse()
    for result in results:
        member = response.members.add(member_id=result.leaving.member_id, group_instance_id=result.leaving.instance_id)
        set_error(member, Method.LEAVE_GROUP, result.refusal)
    return response
