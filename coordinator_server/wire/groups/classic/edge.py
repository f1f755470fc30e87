"""Between the messages of classic members and the values of this package."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from coordinator_api.v1 import group_pb2
from coordinator_protocol.errors import CoordinatorError, ErrorCode, Method, Refused
from coordinator_protocol.names import check_group_id
from coordinator_server.wire.edge import error_response, set_error
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
from group_coordinator.classic.state import ClassicProtocol

REASON_LENGTH_MAX: Final = 255
"""Characters of a client's reason that are kept, as in Kafka."""

INSTANCE_ID_LENGTH_MAX: Final = 249


def join_group(message: group_pb2.JoinGroupRequest) -> JoinGroup:
    """Raises Refused: INVALID_GROUP_ID; INVALID_REQUEST for what no group could make sense of."""
    check_group_id(message.group_id)
    rebalance_timeout_ms = message.session_timeout_ms
    if message.HasField("rebalance_timeout_ms"):
        rebalance_timeout_ms = message.rebalance_timeout_ms
    if rebalance_timeout_ms < 0:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"rebalance_timeout_ms is {rebalance_timeout_ms}; leave it out, or say how long the others should wait",
        )
    protocols = tuple(ClassicProtocol(protocol.name, protocol.metadata) for protocol in message.protocols)
    if len({protocol.name for protocol in protocols}) != len(protocols):
        raise Refused(ErrorCode.INVALID_REQUEST, "a protocol is named twice; name each of them once")
    return JoinGroup(
        group_id=message.group_id,
        member_id=message.member_id,
        instance_id=_instance_id(message),
        session_timeout_ms=message.session_timeout_ms,
        rebalance_timeout_ms=rebalance_timeout_ms,
        protocol_type=message.protocol_type,
        protocols=protocols,
        is_member_id_required=not message.skip_member_id_required,
        supports_skip_assignment=message.supports_skip_assignment,
        reason=message.reason[:REASON_LENGTH_MAX],
    )


def joined_response(joined: Joined) -> group_pb2.JoinGroupResponse:
    return group_pb2.JoinGroupResponse(
        generation_id=joined.generation_id,
        protocol_type=joined.protocol_type,
        protocol_name=joined.protocol_name,
        leader=joined.leader,
        skip_assignment=joined.skip_assignment,
        member_id=joined.member_id,
        members=[
            group_pb2.JoinGroupMember(
                member_id=member.member_id, group_instance_id=member.instance_id, metadata=member.metadata
            )
            for member in joined.members
        ],
    )


def join_refused_response(message: group_pb2.JoinGroupRequest, error: Exception) -> group_pb2.JoinGroupResponse:
    """Every refusal names the member id to go on with: mostly the one asked with. Raises what is no refusal."""
    if not isinstance(error, CoordinatorError):
        raise error
    response = error_response(Method.JOIN_GROUP, group_pb2.JoinGroupResponse, error)
    response.generation_id = -1
    response.member_id = error.member_id if isinstance(error, JoinRefused) else message.member_id
    return response


def sync_group(message: group_pb2.SyncGroupRequest) -> SyncGroup:
    """Raises Refused INVALID_GROUP_ID, INVALID_REQUEST."""
    check_group_id(message.group_id)
    return SyncGroup(
        group_id=message.group_id,
        generation_id=message.generation_id,
        member_id=message.member_id,
        instance_id=_instance_id(message),
        protocol_type=message.protocol_type if message.HasField("protocol_type") else None,
        protocol_name=message.protocol_name if message.HasField("protocol_name") else None,
        assignments={part.member_id: part.assignment for part in message.assignments},
    )


def synced_response(synced: Synced) -> group_pb2.SyncGroupResponse:
    return group_pb2.SyncGroupResponse(
        protocol_type=synced.protocol_type, protocol_name=synced.protocol_name, assignment=synced.assignment
    )


def heartbeat(message: group_pb2.HeartbeatRequest) -> Heartbeat:
    """Raises Refused INVALID_GROUP_ID, INVALID_REQUEST."""
    check_group_id(message.group_id)
    return Heartbeat(message.group_id, message.generation_id, message.member_id, _instance_id(message))


def leave_group(message: group_pb2.LeaveGroupRequest) -> LeaveGroup:
    """Raises Refused INVALID_GROUP_ID, INVALID_REQUEST."""
    check_group_id(message.group_id)
    return LeaveGroup(
        message.group_id,
        tuple(
            LeavingMember(member.member_id, _instance_id(member), member.reason[:REASON_LENGTH_MAX])
            for member in message.members
        ),
    )


def left_response(results: Sequence[Left]) -> group_pb2.LeaveGroupResponse:
    response = group_pb2.LeaveGroupResponse()
    for result in results:
        member = response.members.add(member_id=result.leaving.member_id, group_instance_id=result.leaving.instance_id)
        if result.refusal is not None:
            set_error(member, Method.LEAVE_GROUP, result.refusal)
    return response


def _instance_id(
    message: group_pb2.JoinGroupRequest
    | group_pb2.SyncGroupRequest
    | group_pb2.HeartbeatRequest
    | group_pb2.LeavingMember,
) -> str | None:
    if not message.HasField("group_instance_id"):
        return None
    instance_id = message.group_instance_id
    if not instance_id or "\0" in instance_id or len(instance_id) > INSTANCE_ID_LENGTH_MAX:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"group_instance_id {instance_id!a:.60} is no name: leave it out, or send 1 to {INSTANCE_ID_LENGTH_MAX} "
            "characters without NUL",
        )
    return instance_id
