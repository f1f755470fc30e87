"""The RPCs of AdminService about ACLs: messages to values, the use case, its answer to a message."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from coordinator_api.v1 import admin_pb2
from coordinator_core.acl_index import AclQuestion
from coordinator_core.acls import AclService
from coordinator_protocol.acls import (
    WILDCARD,
    WIRE_NAMES,
    Acl,
    AclFilter,
    PatternType,
    Permission,
    PermissionType,
    ResourceType,
)
from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.pending import Pending, settled
from coordinator_runtime.ports import CallContext

MemberT = TypeVar("MemberT", ResourceType, PatternType, Permission, PermissionType)

_ENUMS: dict[type, Any] = {
    ResourceType: admin_pb2.AclResourceType,
    PatternType: admin_pb2.AclPatternType,
    Permission: admin_pb2.AclOperation,
    PermissionType: admin_pb2.AclPermissionType,
}


class AclServicer:
    """One method per RPC."""

    def __init__(self, acls: AclService) -> None:
        self._acls = acls

    def CreateAcls(
        self, request: admin_pb2.CreateAclsRequest, context: CallContext
    ) -> Pending[admin_pb2.CreateAclsResponse]:
        count = len(request.acls)
        wanted = [_acl(each, f"ACL {number} of {count}") for number, each in enumerate(request.acls, start=1)]
        created = self._acls.create(wanted, context, validate_only=request.dry_run)
        return created.map(
            lambda done: admin_pb2.CreateAclsResponse(created=map(_message, done.acls), version=done.version)
        )

    def DeleteAcls(
        self, request: admin_pb2.DeleteAclsRequest, context: CallContext
    ) -> Pending[admin_pb2.DeleteAclsResponse]:
        deleted = self._acls.delete(_filters(request.filters), context, validate_only=request.dry_run)
        return deleted.map(
            lambda done: admin_pb2.DeleteAclsResponse(deleted=map(_message, done.acls), version=done.version)
        )

    def DescribeAcls(
        self, request: admin_pb2.DescribeAclsRequest, context: CallContext
    ) -> Pending[admin_pb2.DescribeAclsResponse]:
        (wanted,) = _filters([request.filter])
        found = self._acls.describe(wanted, context)
        return settled(admin_pb2.DescribeAclsResponse(acls=map(_message, found.acls), version=found.version))

    def CheckPermission(
        self, request: admin_pb2.CheckPermissionRequest, context: CallContext
    ) -> Pending[admin_pb2.CheckPermissionResponse]:
        question = AclQuestion(
            principal=request.principal,
            host=request.host,
            permission=_member(Permission, request.operation, "the question"),
            resource_type=_member(ResourceType, request.resource_type, "the question"),
            name=request.resource_name,
        )
        verdict = self._acls.check(question, context)
        return settled(
            admin_pb2.CheckPermissionResponse(
                allowed=verdict.is_allowed,
                rule=None if verdict.rule is None else _message(verdict.rule),
                super_user=verdict.is_super_user,
                enforced=verdict.is_enforced,
            )
        )


def _acl(message: admin_pb2.Acl, whose: str) -> Acl:
    """Decode an ACL. Raises Refused INVALID_REQUEST for an incomplete one."""
    return Acl(
        principal=message.principal,
        resource_type=_member(ResourceType, message.resource_type, whose),
        resource_name=message.resource_name,
        operation=_member(Permission, message.operation, whose),
        permission_type=_member(PermissionType, message.permission_type, whose),
        pattern_type=_member(PatternType, message.pattern_type, whose),
        host=message.host or WILDCARD,
    )


def _filters(messages: Iterable[admin_pb2.AclFilter]) -> list[AclFilter]:
    return [
        AclFilter(
            principal=each.principal or None,
            resource_type=_optional(ResourceType, each.resource_type),
            resource_name=each.resource_name or None,
            operation=_optional(Permission, each.operation),
            permission_type=_optional(PermissionType, each.permission_type),
            pattern_type=None if matches_name else _optional(PatternType, each.pattern_type),
            host=each.host or None,
            matches_name=matches_name,
        )
        for each in messages
        for matches_name in (each.pattern_type == admin_pb2.ACL_PATTERN_TYPE_MATCH,)
    ]


def _optional(of: type[MemberT], number: int) -> MemberT | None:
    return _member(of, number, "the filter") if number else None


def _member(of: type[MemberT], number: int, whose: str) -> MemberT:
    prefix, wire = WIRE_NAMES[of], _ENUMS[of]
    word = prefix.removeprefix("ACL_").rstrip("_").lower().replace("_", " ")
    if not number:
        raise Refused(ErrorCode.INVALID_REQUEST, f"{whose} has no {word}; give one")
    try:
        return of(wire.Name(number).removeprefix(prefix).lower())
    except ValueError:
        raise Refused(
            ErrorCode.INVALID_REQUEST, f"{whose} has the {word} {number}, which means nothing here; choose another"
        ) from None


def _message(acl: Acl) -> admin_pb2.Acl:
    return admin_pb2.Acl(
        resource_type=_number(acl.resource_type),
        resource_name=acl.resource_name,
        pattern_type=_number(acl.pattern_type),
        principal=acl.principal,
        host=acl.host,
        operation=_number(acl.operation),
        permission_type=_number(acl.permission_type),
    )


def _number(member: ResourceType | PatternType | Permission | PermissionType) -> Any:  # noqa: ANN401  one of four enums
    return _ENUMS[type(member)].Value(WIRE_NAMES[type(member)] + member.name)
