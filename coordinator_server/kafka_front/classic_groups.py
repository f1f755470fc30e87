"""Members of classic groups: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

JoinGroup and SyncGroup wait for other members, so they have no deadline.

Source: KIP-345 (static members), KIP-394 (the member id comes first), KIP-559 (names of protocols), KIP-814 (skipped
assignments).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from coordinator_protocol.errors import CoordinatorError, ErrorCode, Refused
from coordinator_runtime.pending import Pending
from coordinator_server.kafka_front.apis import ApiKey
from coordinator_server.kafka_front.exchange import ApiHandler, KafkaExchange
from coordinator_server.kafka_front.messages.heartbeat_request import HeartbeatRequest
from coordinator_server.kafka_front.messages.heartbeat_response import HeartbeatResponse
from coordinator_server.kafka_front.messages.join_group_request import JoinGroupRequest
from coordinator_server.kafka_front.messages.join_group_response import JoinGroupResponse, JoinGroupResponseMember
from coordinator_server.kafka_front.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from coordinator_server.kafka_front.messages.leave_group_response import LeaveGroupResponse, MemberResponse
from coordinator_server.kafka_front.messages.sync_group_request import SyncGroupRequest
from coordinator_server.kafka_front.messages.sync_group_response import SyncGroupResponse
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

_REBALANCE_TIMEOUT_SINCE: Final = 1
"""First JoinGroup with a rebalance timeout. Before, the session timeout is used for both."""
_MEMBER_ID_FIRST_SINCE: Final = 4
"""First JoinGroup by whose refusal a new member only gets its id."""
_NO_PROTOCOL_SINCE: Final = 7
"""First JoinGroup whose answer may leave out the name of the protocol."""
_SKIP_ASSIGNMENT_SINCE: Final = 9
_MEMBER_ID_REPEATED: Final = frozenset(
    {
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.INVALID_SESSION_TIMEOUT,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
    }
)
"""Refusals of a JoinGroup in which Kafka repeats the member id. In others it leaves it out."""
_PROTOCOL_NAMED_SINCE: Final = 5
"""First SyncGroup that must name the protocol, and its type."""
_SEVERAL_LEAVE_SINCE: Final = 3
"""First LeaveGroup for several members."""


def classic_group_handlers(service: ClassicService) -> Iterator[tuple[ApiKey, ApiHandler]]:
    """Yield the handlers of this family."""
    members = ClassicMembers(service)
    yield ApiKey.JOIN_GROUP, ApiHandler(members.join, _join_refused)
    yield ApiKey.SYNC_GROUP, ApiHandler(members.sync, _sync_refused)
    yield ApiKey.HEARTBEAT, ApiHandler(members.heartbeat, _heartbeat_refused)
    yield ApiKey.LEAVE_GROUP, ApiHandler(members.leave, _leave_refused)


class ClassicMembers:
    """One method per API."""

    def __init__(self, service: ClassicService) -> None:
        self._service = service

    def join(self, request: JoinGroupRequest, exchange: KafkaExchange) -> Pending[JoinGroupResponse]:
        version, session_timeout_ms = exchange.version, request.session_timeout_ms
        has_rebalance_timeout = version >= _REBALANCE_TIMEOUT_SINCE
        command = JoinGroup(
            group_id=request.group_id,
            member_id=request.member_id,
            instance_id=request.group_instance_id,
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=request.rebalance_timeout_ms if has_rebalance_timeout else session_timeout_ms,
            protocol_type=request.protocol_type,
            protocols=tuple([ClassicProtocol(each.name, each.metadata) for each in request.protocols]),
            is_member_id_required=version >= _MEMBER_ID_FIRST_SINCE,
            supports_skip_assignment=version >= _SKIP_ASSIGNMENT_SINCE,
            reason=request.reason or "",
        )
        return self._service.join(command, exchange.context).map(_joined)

    def sync(self, request: SyncGroupRequest, exchange: KafkaExchange) -> Pending[SyncGroupResponse]:
        if exchange.version >= _PROTOCOL_NAMED_SINCE and None in (request.protocol_type, request.protocol_name):
            raise Refused(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"a SyncGroup must name the protocol and its type from version {_PROTOCOL_NAMED_SINCE} on",
            )
        command = SyncGroup(
            group_id=request.group_id,
            generation_id=request.generation_id,
            member_id=request.member_id,
            instance_id=request.group_instance_id,
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignments={part.member_id: part.assignment for part in request.assignments},
        )
        return self._service.sync(command, exchange.context).map(_synced)

    def heartbeat(self, request: HeartbeatRequest, exchange: KafkaExchange) -> Pending[HeartbeatResponse]:
        command = Heartbeat(request.group_id, request.generation_id, request.member_id, request.group_instance_id)
        return self._service.heartbeat(command, exchange.context).map(lambda _heard: HeartbeatResponse())

    def leave(self, request: LeaveGroupRequest, exchange: KafkaExchange) -> Pending[LeaveGroupResponse]:
        alone = (MemberIdentity(member_id=request.member_id),)
        leaving = request.members if exchange.version >= _SEVERAL_LEAVE_SINCE else alone
        members = [LeavingMember(each.member_id, each.group_instance_id, each.reason or "") for each in leaving]
        command = LeaveGroup(request.group_id, tuple(members))
        return self._service.leave(command, exchange.context).map(partial(_left, exchange))


def _joined(joined: Joined) -> JoinGroupResponse:
    return JoinGroupResponse(
        generation_id=joined.generation_id,
        protocol_type=joined.protocol_type,
        protocol_name=joined.protocol_name,
        leader=joined.leader,
        skip_assignment=joined.skip_assignment,
        member_id=joined.member_id,
        members=[
            JoinGroupResponseMember(
                member_id=member.member_id, group_instance_id=member.instance_id, metadata=member.metadata
            )
            for member in joined.members
        ],
    )


def _join_refused(request: JoinGroupRequest, exchange: KafkaExchange, error: CoordinatorError) -> JoinGroupResponse:
    """Return a refusal with the member id to go on with, or that of the request where Kafka repeats it."""
    if isinstance(error, JoinRefused):
        member_id = error.member_id
    else:
        member_id = request.member_id if error.code in _MEMBER_ID_REPEATED else ""
    return JoinGroupResponse(
        error_code=exchange.code(error),
        protocol_name=None if exchange.version >= _NO_PROTOCOL_SINCE else "",
        member_id=member_id,
    )


def _synced(synced: Synced) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=synced.protocol_type, protocol_name=synced.protocol_name, assignment=synced.assignment
    )


def _sync_refused(_request: SyncGroupRequest, exchange: KafkaExchange, error: CoordinatorError) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=exchange.code(error))


def _heartbeat_refused(
    _request: HeartbeatRequest, exchange: KafkaExchange, error: CoordinatorError
) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=exchange.code(error))


def _left(exchange: KafkaExchange, results: Sequence[Left]) -> LeaveGroupResponse:
    members = [
        MemberResponse(
            member_id=result.leaving.member_id,
            group_instance_id=result.leaving.instance_id,
            error_code=exchange.code(result.refusal),
        )
        for result in results
    ]
    if exchange.version >= _SEVERAL_LEAVE_SINCE:
        return LeaveGroupResponse(members=members)
    return LeaveGroupResponse(error_code=members[0].error_code)


def _leave_refused(_request: LeaveGroupRequest, exchange: KafkaExchange, error: CoordinatorError) -> LeaveGroupResponse:
    return LeaveGroupResponse(error_code=exchange.code(error))
