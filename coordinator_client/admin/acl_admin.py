"""Administration of access control lists: create, delete and list rules, and check what they permit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from coordinator_api.v1 import admin_pb2 as admin
from coordinator_client.asking import BlockingAsker
from coordinator_client.calls import CHECK_PERMISSION, CREATE_ACLS, DELETE_ACLS, DESCRIBE_ACLS
from coordinator_client.errors import check_here
from coordinator_protocol.acls import (
    WIRE_NAMES,
    Acl,
    AclFilter,
    PatternType,
    Permission,
    PermissionType,
    ResourceType,
    check_acl,
    check_principal,
    check_question,
)
from coordinator_protocol.methods import Method

MemberT = TypeVar("MemberT", ResourceType, PatternType, Permission, PermissionType)


@dataclass(frozen=True, slots=True, kw_only=True)
class PermissionCheck:
    """Result of a permission check, and the rule that decides it."""

    is_allowed: bool
    rule: Acl | None
    """Rule that decides; None if the principal is a superuser, or no rule allows the operation."""
    is_super_user: bool
    is_enforced: bool
    """False if the server does not enforce rules, so that every caller may do everything."""


class AclCalls:
    """Administrator calls about ACLs; users create an `Admin`."""

    _asker: BlockingAsker

    async def create_acls(self, acls: Iterable[Acl], *, dry_run: bool = False) -> list[Acl]:
        """Add rules, all of them or none, and return those that did not exist before. They are durable and in force
        when this returns.

        `dry_run`: return the rules that would be created, and change nothing.

        Raises: Rejected (INVALID_REQUEST for a rule that could have no effect; POLICY_VIOLATION if there would be more
        than 10,000); Misconfigured (CLUSTER_AUTHORIZATION_FAILED).
        """
        wanted = list(acls)
        for acl in wanted:
            check_here(lambda _name, acl=acl: check_acl(acl), acl.resource_name, Method.CREATE_ACLS)  # type: ignore[misc]
        request = admin.CreateAclsRequest(header=self._asker.mutation(), acls=map(_message, wanted), dry_run=dry_run)
        reply = await self._asker.ask(CREATE_ACLS, request)
        return [*map(_acl, reply.created)]

    async def delete_acls(self, filters: Iterable[AclFilter], *, dry_run: bool = False) -> list[Acl]:
        """Delete every rule that matches one of the filters, and return the deleted rules. The deletion is durable and
        in force when this returns.

        `AclFilter()` matches all rules. `dry_run`: return the rules that would be deleted, and change nothing.

        Raises: Misconfigured (CLUSTER_AUTHORIZATION_FAILED).
        """
        request = admin.DeleteAclsRequest(header=self._asker.mutation(), filters=map(_filter, filters), dry_run=dry_run)
        reply = await self._asker.ask(DELETE_ACLS, request)
        return [*map(_acl, reply.deleted)]

    async def describe_acls(self, wanted: AclFilter | None = None) -> list[Acl]:
        """Return the rules in force that match the filter, by resource and principal; without a filter, all rules.

        Raises: Misconfigured (CLUSTER_AUTHORIZATION_FAILED).
        """
        request = admin.DescribeAclsRequest(header=self._asker.header(), filter=_filter(wanted or AclFilter()))
        return [*map(_acl, (await self._asker.ask(DESCRIBE_ACLS, request)).acls)]

    async def check_permission(
        self, principal: str, permission: Permission, resource_type: ResourceType, name: str, *, host: str = ""
    ) -> PermissionCheck:
        """Check if a principal may perform an operation on the resource of this name, and return the answer with its
        rule.

        `host` is the principal's address; empty = a host that no rule names. Every principal may check its own
        permissions.

        Raises: Rejected (INVALID_REQUEST for an operation that the resource does not have); Misconfigured
        (CLUSTER_AUTHORIZATION_FAILED).
        """
        check_here(check_principal, principal, Method.CHECK_PERMISSION)
        check_here(lambda name: check_question(resource_type, name, permission), name, Method.CHECK_PERMISSION)
        request = admin.CheckPermissionRequest(
            header=self._asker.header(),
            principal=principal,
            host=host,
            operation=_number(permission),
            resource_type=_number(resource_type),
            resource_name=name,
        )
        reply = await self._asker.ask(CHECK_PERMISSION, request)
        return PermissionCheck(
            is_allowed=reply.allowed,
            rule=_acl(reply.rule) if reply.HasField("rule") else None,
            is_super_user=reply.super_user,
            is_enforced=reply.enforced,
        )


def _number(member: ResourceType | PatternType | Permission | PermissionType) -> Any:  # noqa: ANN401  one of four enums
    return getattr(admin, WIRE_NAMES[type(member)] + member.name)


def _message(acl: Acl) -> admin.Acl:
    return admin.Acl(
        resource_type=_number(acl.resource_type),
        resource_name=acl.resource_name,
        pattern_type=_number(acl.pattern_type),
        principal=acl.principal,
        host=acl.host,
        operation=_number(acl.operation),
        permission_type=_number(acl.permission_type),
    )


def _filter(wanted: AclFilter) -> admin.AclFilter:
    made = admin.AclFilter(
        resource_name=wanted.resource_name or "", principal=wanted.principal or "", host=wanted.host or ""
    )
    if wanted.resource_type is not None:
        made.resource_type = _number(wanted.resource_type)
    if wanted.operation is not None:
        made.operation = _number(wanted.operation)
    if wanted.permission_type is not None:
        made.permission_type = _number(wanted.permission_type)
    if wanted.pattern_type is not None:
        made.pattern_type = _number(wanted.pattern_type)
    if wanted.matches_name:
        made.pattern_type = admin.ACL_PATTERN_TYPE_MATCH
    return made


def _acl(message: admin.Acl) -> Acl:
    """Return a rule. Raises: ValueError for an enum name of a newer server that this client does not know."""

    def member(of: type[MemberT], name: str) -> MemberT:
        return of(name.removeprefix(WIRE_NAMES[of]).lower())

    return Acl(
        principal=message.principal,
        resource_type=member(ResourceType, admin.AclResourceType.Name(message.resource_type)),
        resource_name=message.resource_name,
        operation=member(Permission, admin.AclOperation.Name(message.operation)),
        permission_type=member(PermissionType, admin.AclPermissionType.Name(message.permission_type)),
        pattern_type=member(PatternType, admin.AclPatternType.Name(message.pattern_type)),
        host=message.host,
    )
