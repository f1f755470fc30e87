"""Administration of groups: DescribeGroups, ListGroups, DeleteGroups.

Source: KIP-518 and KIP-848 (filters of a listing); KIP-1043 (from version 6 on an unknown group is an error).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from msgspec.structs import replace

from coordinator_protocol.acls import ResourceType
from coordinator_protocol.errors import CoordinatorError, ErrorCode
from coordinator_runtime.pending import Pending, settled
from coordinator_server.kafka_front.access_bits import NOT_ASKED, AccessBits
from coordinator_server.kafka_front.apis import ApiKey
from coordinator_server.kafka_front.client_hosts import shown_host
from coordinator_server.kafka_front.exchange import ApiHandler, KafkaExchange
from coordinator_server.kafka_front.messages.delete_groups_request import DeleteGroupsRequest
from coordinator_server.kafka_front.messages.delete_groups_response import DeletableGroupResult, DeleteGroupsResponse
from coordinator_server.kafka_front.messages.describe_groups_request import DescribeGroupsRequest
from coordinator_server.kafka_front.messages.describe_groups_response import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsResponse,
)
from coordinator_server.kafka_front.messages.list_groups_request import ListGroupsRequest
from coordinator_server.kafka_front.messages.list_groups_response import ListedGroup, ListGroupsResponse
from group_coordinator.administration import requests
from group_coordinator.administration.requests import DeletedGroup, GroupFilter
from group_coordinator.administration.service import AdministrationService

_UNKNOWN_IS_ERROR_SINCE: Final = 6
"""First DescribeGroups that refuses an unknown group, with a message. Before, such a group is only Dead."""


def group_admin_handlers(service: AdministrationService, access: AccessBits) -> Iterator[tuple[ApiKey, ApiHandler]]:
    """Yield the handlers of this family."""
    groups = GroupAdmin(service, access)
    yield ApiKey.DESCRIBE_GROUPS, ApiHandler(groups.describe, _describe_refused)
    yield ApiKey.LIST_GROUPS, ApiHandler(groups.list_groups, _list_refused)
    yield ApiKey.DELETE_GROUPS, ApiHandler(groups.delete, _delete_refused)


class GroupAdmin:
    """One method per API."""

    def __init__(self, service: AdministrationService, access: AccessBits) -> None:
        self._service = service
        self._access = access

    def describe(self, request: DescribeGroupsRequest, exchange: KafkaExchange) -> Pending[DescribeGroupsResponse]:
        groups = []
        for described in self._service.describe(request.groups, exchange.context):
            group = _described(described, exchange)
            if request.include_authorized_operations and described.refusal is None:
                operations = self._access.of(exchange.context, ResourceType.GROUP, described.group_id)
                group = replace(group, authorized_operations=operations)
            groups.append(group)
        return settled(DescribeGroupsResponse(groups=groups))

    def list_groups(self, request: ListGroupsRequest, exchange: KafkaExchange) -> Pending[ListGroupsResponse]:
        wanted = GroupFilter(frozenset(request.states_filter), frozenset(request.types_filter))
        groups = [
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type,
                group_state=group.state_name,
                group_type=group.kind,
            )
            for group in self._service.list(wanted, exchange.context)
        ]
        return settled(ListGroupsResponse(groups=groups))

    def delete(self, request: DeleteGroupsRequest, exchange: KafkaExchange) -> Pending[DeleteGroupsResponse]:
        deleted = self._service.delete(dict.fromkeys(request.groups_names), exchange.context)
        return deleted.map(partial(_deleted, exchange))


def _described(described: requests.DescribedGroup, exchange: KafkaExchange) -> DescribedGroup:
    refusal = described.refusal
    if refusal is not None:
        if refusal.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            return _refused_group(described.group_id, exchange, refusal)
        if exchange.version < _UNKNOWN_IS_ERROR_SINCE:
            return DescribedGroup(group_id=described.group_id, group_state=described.state_name)
        return replace(_refused_group(described.group_id, exchange, refusal), group_state=described.state_name)
    return DescribedGroup(
        group_id=described.group_id,
        group_state=described.state_name,
        protocol_type=described.protocol_type,
        protocol_data=described.protocol_name,
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=shown_host(member.client_host),
                member_metadata=member.metadata,
                member_assignment=member.assignment,
            )
            for member in described.members
        ],
    )


def _refused_group(group_id: str, exchange: KafkaExchange, error: CoordinatorError) -> DescribedGroup:
    return DescribedGroup(
        group_id=group_id,
        error_code=exchange.code(error),
        error_message=error.message if exchange.version >= _UNKNOWN_IS_ERROR_SINCE else None,
        authorized_operations=NOT_ASKED,
    )


def _describe_refused(
    request: DescribeGroupsRequest, exchange: KafkaExchange, error: CoordinatorError
) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(groups=[_refused_group(group_id, exchange, error) for group_id in request.groups])


def _list_refused(_request: ListGroupsRequest, exchange: KafkaExchange, error: CoordinatorError) -> ListGroupsResponse:
    return ListGroupsResponse(error_code=exchange.code(error))


def _deleted(exchange: KafkaExchange, deleted: Sequence[DeletedGroup]) -> DeleteGroupsResponse:
    results = [DeletableGroupResult(each.group_id, _delete_code(each, exchange)) for each in deleted]
    return DeleteGroupsResponse(results=results)


def _delete_code(deleted: DeletedGroup, exchange: KafkaExchange) -> int:
    """Return the code of one deletion. To Kafka a group without a name is one that does not exist."""
    if deleted.refusal is not None and not deleted.group_id and deleted.refusal.code is ErrorCode.INVALID_GROUP_ID:
        return ErrorCode.GROUP_ID_NOT_FOUND
    return exchange.code(deleted.refusal)


def _delete_refused(
    request: DeleteGroupsRequest, exchange: KafkaExchange, error: CoordinatorError
) -> DeleteGroupsResponse:
    return _deleted(exchange, [DeletedGroup(group_id, error) for group_id in dict.fromkeys(request.groups_names)])
