"""The administrators' part of GroupService: messages to commands of `AdministrationService`, its values to messages."""

from __future__ import annotations

from collections.abc import Sequence

from coordinator_api.v1 import group_pb2
from coordinator_protocol.methods import Method
from coordinator_runtime.pending import Pending, settled
from coordinator_runtime.ports import CallContext
from coordinator_server.grpc_front.wire.edge import set_error
from group_coordinator.administration.requests import AlterGroupConfig, DeletedGroup, DescribedGroup, GroupFilter
from group_coordinator.administration.service import AdministrationService


class AdministrationServicer:
    """One method per RPC. Errors of a whole call are raised or carried by the Pending; the dispatcher answers them."""

    def __init__(self, service: AdministrationService) -> None:
        self._service = service

    def ListGroups(
        self, request: group_pb2.ListGroupsRequest, context: CallContext
    ) -> Pending[group_pb2.ListGroupsResponse]:
        response = group_pb2.ListGroupsResponse()
        wanted = GroupFilter(frozenset(request.state_filters), frozenset(request.type_filters))
        for group in self._service.list(wanted, context):
            response.groups.add(
                group_id=group.group_id,
                protocol_type=group.protocol_type,
                group_state=group.state_name,
                group_type=group.kind,
            )
        return settled(response)

    def DescribeGroups(
        self, request: group_pb2.DescribeGroupsRequest, context: CallContext
    ) -> Pending[group_pb2.DescribeGroupsResponse]:
        response = group_pb2.DescribeGroupsResponse()
        for described in self._service.describe(request.group_ids, context):
            _fill_description(response.groups.add(), described)
        return settled(response)

    def DeleteGroups(
        self, request: group_pb2.DeleteGroupsRequest, context: CallContext
    ) -> Pending[group_pb2.DeleteGroupsResponse]:
        return self._service.delete(request.group_ids, context).map(_deleted_response)

    def DescribeGroupConfigs(
        self, request: group_pb2.DescribeGroupConfigsRequest, context: CallContext
    ) -> Pending[group_pb2.DescribeGroupConfigsResponse]:
        response = group_pb2.DescribeGroupConfigsResponse()
        for name, value in sorted(self._service.describe_config(request.group_id, context).items()):
            if isinstance(value, str):
                response.configs.add(name=name, text=value)
            else:
                response.configs.add(name=name, value=value)
        return settled(response)

    def AlterGroupConfigs(
        self, request: group_pb2.AlterGroupConfigsRequest, context: CallContext
    ) -> Pending[group_pb2.AlterGroupConfigsResponse]:
        command = AlterGroupConfig(
            group_id=request.group_id,
            wanted=tuple([(each.name, each.text if each.HasField("text") else each.value) for each in request.set]),
            unset=frozenset(request.unset),
            validate_only=request.validate_only,
        )
        altered = self._service.alter_config(command, context)
        return altered.map(lambda _altered: group_pb2.AlterGroupConfigsResponse())


def _fill_description(description: group_pb2.GroupDescription, described: DescribedGroup) -> None:
    description.group_id = described.group_id
    description.group_state = described.state_name
    set_error(description, Method.DESCRIBE_GROUPS, described.refusal)
    description.protocol_type = described.protocol_type
    description.protocol_name = described.protocol_name
    description.generation_id = described.generation_id
    description.leader = described.leader
    for member in described.members:
        description.members.add(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            metadata=member.metadata,
            assignment=member.assignment,
        )


def _deleted_response(deleted: Sequence[DeletedGroup]) -> group_pb2.DeleteGroupsResponse:
    response = group_pb2.DeleteGroupsResponse()
    for each in deleted:
        set_error(response.groups.add(group_id=each.group_id), Method.DELETE_GROUPS, each.refusal)
    return response
