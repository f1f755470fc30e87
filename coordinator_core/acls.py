"""Administration of ACLs: create, delete, list, and check permissions by them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from coordinator_core.access import AclAuthorizer
from coordinator_core.acl_index import AclQuestion
from coordinator_protocol.acls import (
    CLUSTER_NAME,
    WILDCARD,
    Acl,
    AclFilter,
    Permission,
    ResourceType,
    canonical_host,
    check_acl,
    check_principal,
    check_question,
)
from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.decision import CATALOG_KEY, Operation
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import Authorizer, CallContext, require
from coordinator_runtime.runtime import Runtime
from partition_log.catalog.acls import AclsChanged, AclTable

ACLS_PER_REQUEST_MAX = 1_000
"""Maximum number of ACLs, or filters, in one request."""


@dataclass(frozen=True, slots=True)
class AclAnswer:
    """Answer to a question of access, with the reason."""

    is_allowed: bool
    rule: Acl | None
    """ACL that decides; None if the principal is a superuser or no ACL allows the operation."""
    is_super_user: bool
    is_enforced: bool
    """False if this server does not enforce ACLs, so that callers may do everything whatever the answer."""


class AclService:
    """Use cases of ACLs. Changes need the permission to alter the server, because a caller that may change ACLs may do
    anything. The others need the permission to describe it."""

    def __init__(
        self, runtime: Runtime, acls: AclTable, access: AclAuthorizer, authorizer: Authorizer, *, is_enforced: bool
    ) -> None:
        self._runtime = runtime
        self._acls = acls
        self._access = access
        self._authorizer = authorizer
        self._is_enforced = is_enforced

    def create(self, acls: Sequence[Acl], context: CallContext, *, validate_only: bool) -> Pending[AclsChanged]:
        """Add ACLs, all of them or none; existing ones stay. They are durable and in force when the reply comes.

        Raises Refused: CLUSTER_AUTHORIZATION_FAILED; INVALID_REQUEST, with the ACL at fault and the reason;
        POLICY_VIOLATION if there would be too many.
        """
        self.require_of_cluster(Permission.ALTER, context)
        _check_count(len(acls), "ACLs")
        for number, acl in enumerate(acls, start=1):
            try:
                check_acl(acl)
            except Refused as refusal:
                raise Refused(refusal.code, f"ACL {number} of {len(acls)}: {refusal.message}") from None
        return self._change(
            Operation(
                CATALOG_KEY, lambda catalog, _turn: catalog.acls.decide_create(acls, validate_only=validate_only)
            ),
            context,
        )

    def delete(
        self, filters: Sequence[AclFilter], context: CallContext, *, validate_only: bool
    ) -> Pending[AclsChanged]:
        """Delete every ACL that matches one of the filters. They are durably out of force when the reply comes.

        Raises Refused: CLUSTER_AUTHORIZATION_FAILED, INVALID_REQUEST.
        """
        self.require_of_cluster(Permission.ALTER, context)
        _check_count(len(filters), "filters of ACLs")
        return self._change(
            Operation(
                CATALOG_KEY, lambda catalog, _turn: catalog.acls.decide_delete(filters, validate_only=validate_only)
            ),
            context,
        )

    def _change(self, operation: Operation, context: CallContext) -> Pending[AclsChanged]:
        def changed(reply: AclsChanged) -> AclsChanged:
            # Before this reply and the later ones of its commit group. The listener runs after all of them.
            self._access.renew()
            return reply

        return self._runtime.write(operation, context).map(changed)

    def describe(self, wanted: AclFilter, context: CallContext) -> AclsChanged:
        """Return the ACLs in force that match the filter, by resource and principal, and the version of all ACLs.

        Raises Refused CLUSTER_AUTHORIZATION_FAILED.
        """
        self.require_of_cluster(Permission.DESCRIBE, context)
        found = sorted(filter(wanted.matches, self._acls.durable()), key=_order)
        return AclsChanged(tuple(found), self._acls.durable_version())

    def check(self, question: AclQuestion, context: CallContext) -> AclAnswer:
        """Return if a principal may do something, and the ACL that decides. Callers may always ask about themselves.

        Raises Refused: CLUSTER_AUTHORIZATION_FAILED, INVALID_REQUEST.
        """
        if question.principal != context.principal:
            self.require_of_cluster(Permission.DESCRIBE, context)
        check_principal(question.principal)
        check_question(question.resource_type, question.name, question.permission)
        try:
            canonical_host(question.host or WILDCARD)
        except ValueError:
            raise Refused(ErrorCode.INVALID_REQUEST, f"the host {question.host!a:.300} is no address") from None
        is_allowed, rule = self._access.explain(question)
        return AclAnswer(is_allowed, rule, question.principal in self._access.super_users, self._is_enforced)

    def require_of_cluster(self, permission: Permission, context: CallContext) -> None:
        """Return only if the caller has the permission for this server. Raises Refused CLUSTER_AUTHORIZATION_FAILED."""
        require(self._authorizer, context, permission, ResourceType.CLUSTER, CLUSTER_NAME)


def _check_count(count: int, what: str) -> None:
    if not 1 <= count <= ACLS_PER_REQUEST_MAX:
        raise Refused(
            ErrorCode.INVALID_REQUEST, f"the request has {count} {what}; send 1 to {ACLS_PER_REQUEST_MAX} at a time"
        )


def _order(acl: Acl) -> tuple[str, ...]:
    return (
        acl.resource_type,
        acl.resource_name,
        acl.pattern_type,
        acl.principal,
        acl.operation,
        acl.permission_type,
        acl.host,
    )
