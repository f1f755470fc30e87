"""The administrators' part of GroupService on the wire: authorise, map in, call the use case, map out."""

from __future__ import annotations

from functools import partial

from coordinator_api.v1 import group_pb2
from coordinator_protocol.errors import Method, Refused
from coordinator_protocol.names import check_group_id
from coordinator_runtime.authorization import require
from coordinator_runtime.pending import Pending, all_of, settled
from coordinator_runtime.ports import Authorizer, CallContext, Permission, ResourceType
from coordinator_server.wire.edge import answer, set_error
from coordinator_server.wire.groups.administration import edge
from group_coordinator.administration.service import AdministrationService


class AdministrationServicer:
    """One method per RPC; errors of a whole call are raised or carried by the Pending, and answered by the
    dispatcher."""

    def __init__(self, service: AdministrationService, authorizer: Authorizer) -> None:
        self._service = service
        self._authorizer = authorizer

    def ListGroups(
        self, request: group_pb2.ListGroupsRequest, context: CallContext
    ) -> Pending[group_pb2.ListGroupsResponse]:
        listed = self._service.list(edge.group_filter(request))
        return settled(edge.list_response(group for group in listed if self._may_describe(group.group_id, context)))

    def DescribeGroups(
        self, request: group_pb2.DescribeGroupsRequest, context: CallContext
    ) -> Pending[group_pb2.DescribeGroupsResponse]:
        response = group_pb2.DescribeGroupsResponse()
        for group_id in request.group_ids:
            description = response.groups.add(group_id=group_id, group_state=edge.DEAD)
            try:
                require(self._authorizer, context, Permission.DESCRIBE, ResourceType.GROUP, group_id)
                edge.fill_description(description, self._service.describe_classic(group_id))
            except Refused as refusal:
                set_error(description, Method.DESCRIBE_GROUPS, refusal)
        return settled(response)

    def DeleteGroups(
        self, request: group_pb2.DeleteGroupsRequest, context: CallContext
    ) -> Pending[group_pb2.DeleteGroupsResponse]:
        def delete(group_id: str) -> Pending[group_pb2.DeletedGroup]:
            def use_case() -> Pending[group_pb2.DeletedGroup]:
                require(self._authorizer, context, Permission.DELETE, ResourceType.GROUP, group_id)
                check_group_id(group_id)
                return self._service.delete(group_id, context).map(lambda _deleted: group_pb2.DeletedGroup())

            deleted = answer(Method.DELETE_GROUPS, group_pb2.DeletedGroup, use_case)
            return deleted.map(partial(edge.named, group_id))

        results = all_of([delete(group_id) for group_id in request.group_ids])
        return results.map(lambda groups: group_pb2.DeleteGroupsResponse(groups=groups))

    def DescribeGroupConfigs(
        self, request: group_pb2.DescribeGroupConfigsRequest, context: CallContext
    ) -> Pending[group_pb2.DescribeGroupConfigsResponse]:
        require(self._authorizer, context, Permission.DESCRIBE, ResourceType.GROUP, request.group_id)
        return settled(edge.configs_response(self._service.describe_config(request.group_id)))

    def AlterGroupConfigs(
        self, request: group_pb2.AlterGroupConfigsRequest, context: CallContext
    ) -> Pending[group_pb2.AlterGroupConfigsResponse]:
        require(self._authorizer, context, Permission.ALTER_CONFIGS, ResourceType.GROUP, request.group_id)
        altered = self._service.alter_config(
            request.group_id,
            edge.wanted_configs(request),
            frozenset(request.unset),
            validate_only=request.validate_only,
            context=context,
        )
        return altered.map(lambda _altered: group_pb2.AlterGroupConfigsResponse())

    def _may_describe(self, group_id: str, context: CallContext) -> bool:
        return self._authorizer.is_allowed(context, Permission.DESCRIBE, ResourceType.GROUP, group_id)
