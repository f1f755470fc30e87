"""DescribeAcls, CreateAcls and DeleteAcls.

Rules about operations that Kafka does not have (backup, decide, snapshot) are neither shown nor deleted.

Source: Kafka's `AclApis`; KIP-290 (patterns).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import Final

from coordinator_core.acls import ACLS_PER_REQUEST_MAX
from coordinator_core.assembly import Core
from coordinator_protocol.acls import Acl, AclFilter
from coordinator_protocol.errors import CoordinatorError, ErrorCode, Refused
from coordinator_runtime.pending import Pending, settled
from coordinator_server.kafka_front import acl_numbers as numbers
from coordinator_server.kafka_front.apis import ApiKey
from coordinator_server.kafka_front.exchange import ApiHandler, KafkaExchange
from coordinator_server.kafka_front.items import each_by_itself
from coordinator_server.kafka_front.messages.create_acls_request import AclCreation, CreateAclsRequest
from coordinator_server.kafka_front.messages.create_acls_response import AclCreationResult, CreateAclsResponse
from coordinator_server.kafka_front.messages.delete_acls_request import DeleteAclsFilter, DeleteAclsRequest
from coordinator_server.kafka_front.messages.delete_acls_response import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsResponse,
)
from coordinator_server.kafka_front.messages.describe_acls_request import DescribeAclsRequest
from coordinator_server.kafka_front.messages.describe_acls_response import (
    AclDescription,
    DescribeAclsResource,
    DescribeAclsResponse,
)

_NO_RULE: Final = AclFilter(principal="")
"""Selects nothing, since every rule has a principal."""


class AclApis:
    """Serves the three APIs of access rules."""

    def __init__(self, core: Core) -> None:
        self._acls = core.admin.acls

    def describe(self, request: DescribeAclsRequest, exchange: KafkaExchange) -> Pending[DescribeAclsResponse]:
        """Return the rules that match the filter, by resource. Raises Refused."""
        wanted = _filters(request)
        found = self._acls.describe(AclFilter(principal=request.principal_filter), exchange.context).acls
        shown = [acl for acl in found if any(each.matches(acl) for each in wanted)]
        by_resource = groupby(shown, lambda acl: (acl.resource_type, acl.resource_name, acl.pattern_type))
        resources = [_resource(list(acls)) for _resource_key, acls in by_resource]
        return settled(DescribeAclsResponse(error_message=None, resources=resources))

    def describe_refused(
        self, _request: DescribeAclsRequest, exchange: KafkaExchange, error: CoordinatorError
    ) -> DescribeAclsResponse:
        return DescribeAclsResponse(error_code=exchange.code(error), error_message=error.message)

    def create(self, request: CreateAclsRequest, exchange: KafkaExchange) -> Pending[CreateAclsResponse]:
        """Add rules, each by itself; durable and in force when answered. Raises Refused for too many."""
        _check_count(len(request.creations))

        def create_one(creation: AclCreation) -> Pending[AclCreationResult]:
            created = self._acls.create([_acl(creation)], exchange.context, validate_only=False)
            return created.map(lambda _created: AclCreationResult(error_message=None))

        created = each_by_itself(request.creations, create_one, partial(_not_created, exchange))
        return created.map(lambda results: CreateAclsResponse(results=results))

    def create_refused(
        self, request: CreateAclsRequest, exchange: KafkaExchange, error: CoordinatorError
    ) -> CreateAclsResponse:
        return CreateAclsResponse(results=[_not_created(exchange, each, error) for each in request.creations])

    def delete(self, request: DeleteAclsRequest, exchange: KafkaExchange) -> Pending[DeleteAclsResponse]:
        """Delete the rules that match each filter; durably out of force when answered. Raises Refused for too many."""
        _check_count(len(request.filters))

        def delete_one(wanted: DeleteAclsFilter) -> Pending[DeleteAclsFilterResult]:
            # Also a filter that selects nothing is refused to a caller that may not delete.
            filters = _filters(wanted) or [_NO_RULE]
            deleted = self._acls.delete(filters, exchange.context, validate_only=False)
            return deleted.map(
                lambda changed: DeleteAclsFilterResult(
                    error_message=None, matching_acls=list(map(_deleted, changed.acls))
                )
            )

        deleted = each_by_itself(request.filters, delete_one, partial(_not_deleted, exchange))
        return deleted.map(lambda results: DeleteAclsResponse(filter_results=results))

    def delete_refused(
        self, request: DeleteAclsRequest, exchange: KafkaExchange, error: CoordinatorError
    ) -> DeleteAclsResponse:
        return DeleteAclsResponse(filter_results=[_not_deleted(exchange, each, error) for each in request.filters])


def _check_count(count: int) -> None:
    if count > ACLS_PER_REQUEST_MAX:
        text = f"the request has {count} items; send up to {ACLS_PER_REQUEST_MAX} at a time"
        raise Refused(ErrorCode.INVALID_REQUEST, text)


def _acl(creation: AclCreation) -> Acl:
    """Decode a rule. Raises Refused INVALID_REQUEST."""
    resource_type = numbers.term_of(numbers.RESOURCE_TYPES, creation.resource_type, "resource type")
    return Acl(
        principal=creation.principal,
        resource_type=resource_type,
        resource_name=numbers.resource_name(resource_type, creation.resource_name),
        operation=numbers.term_of(numbers.OPERATIONS, creation.operation, "operation"),
        permission_type=numbers.term_of(numbers.PERMISSION_TYPES, creation.permission_type, "permission type"),
        pattern_type=numbers.term_of(numbers.PATTERN_TYPES, creation.resource_pattern_type, "pattern type"),
        host=creation.host,
    )


def _filters(wanted: DescribeAclsRequest | DeleteAclsFilter) -> list[AclFilter]:
    """Decode a filter. Raises Refused INVALID_REQUEST."""
    types = numbers.selected(numbers.RESOURCE_TYPES, wanted.resource_type_filter, "resource type")
    operations = numbers.selected(numbers.OPERATIONS, wanted.operation, "operation")
    return numbers.filters_of(_of_any_resource(wanted), types, operations)


def _of_any_resource(wanted: DescribeAclsRequest | DeleteAclsFilter) -> AclFilter:
    """Decode all of a filter but the type of resource and the operation. Raises Refused INVALID_REQUEST."""
    pattern, permission = wanted.pattern_type_filter, wanted.permission_type
    is_open = pattern in (numbers.ANY, numbers.MATCH)
    is_any = permission == numbers.ANY
    return AclFilter(
        principal=wanted.principal_filter,
        resource_name=wanted.resource_name_filter,
        permission_type=None if is_any else numbers.term_of(numbers.PERMISSION_TYPES, permission, "permission type"),
        pattern_type=None if is_open else numbers.term_of(numbers.PATTERN_TYPES, pattern, "pattern type"),
        host=wanted.host_filter,
        matches_name=pattern == numbers.MATCH,
    )


def _resource(acls: Sequence[Acl]) -> DescribeAclsResource:
    first = acls[0]
    return DescribeAclsResource(
        resource_type=numbers.number_of(numbers.RESOURCE_TYPES, first.resource_type),
        resource_name=numbers.kafka_name(first.resource_type, first.resource_name),
        pattern_type=numbers.number_of(numbers.PATTERN_TYPES, first.pattern_type),
        acls=[
            AclDescription(
                principal=acl.principal,
                host=acl.host,
                operation=numbers.number_of(numbers.OPERATIONS, acl.operation),
                permission_type=numbers.number_of(numbers.PERMISSION_TYPES, acl.permission_type),
            )
            for acl in acls
        ],
    )


def _deleted(acl: Acl) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_message=None,
        resource_type=numbers.number_of(numbers.RESOURCE_TYPES, acl.resource_type),
        resource_name=numbers.kafka_name(acl.resource_type, acl.resource_name),
        pattern_type=numbers.number_of(numbers.PATTERN_TYPES, acl.pattern_type),
        principal=acl.principal,
        host=acl.host,
        operation=numbers.number_of(numbers.OPERATIONS, acl.operation),
        permission_type=numbers.number_of(numbers.PERMISSION_TYPES, acl.permission_type),
    )


def _not_created(exchange: KafkaExchange, _creation: AclCreation, error: CoordinatorError) -> AclCreationResult:
    return AclCreationResult(error_code=exchange.code(error), error_message=error.message)


def _not_deleted(exchange: KafkaExchange, _filter: DeleteAclsFilter, error: CoordinatorError) -> DeleteAclsFilterResult:
    return DeleteAclsFilterResult(error_code=exchange.code(error), error_message=error.message)


def acl_handlers(core: Core) -> Iterator[tuple[ApiKey, ApiHandler]]:
    """Yield the handlers of the APIs of access rules."""
    acls = AclApis(core)
    yield ApiKey.DESCRIBE_ACLS, ApiHandler(acls.describe, acls.describe_refused)
    yield ApiKey.CREATE_ACLS, ApiHandler(acls.create, acls.create_refused)
    yield ApiKey.DELETE_ACLS, ApiHandler(acls.delete, acls.delete_refused)
