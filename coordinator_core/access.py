"""Access decisions by the ACLs of the catalog. Every service asks here for every operation.

ACLs are in force once they are durable, so no reply rests on one that a crash would take back. Permissions that were
granted are cached until the ACLs change, so the usual check is one set lookup.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from coordinator_core.acl_index import AclIndex, AclQuestion
from coordinator_core.permissions import QUESTIONS
from coordinator_protocol.acls import Acl, Permission, PermissionType, ResourceType
from coordinator_protocol.methods import Method
from coordinator_runtime.decision import CATALOG_KEY
from coordinator_runtime.ports import CallContext
from coordinator_runtime.runtime import Runtime
from partition_log.catalog.acls import AclTable

REMEMBERED_MAX: Final = 50_000
"""Size of the cache of granted permissions, some hundred bytes each. A full cache is cleared and filled again."""


class AclAuthorizer:
    """Implements `coordinator_runtime.ports.Authorizer`."""

    def __init__(self, runtime: Runtime, acls: AclTable, super_users: Iterable[str]) -> None:
        self._acls = acls
        self.super_users = frozenset(super_users)
        """Principals that may do everything, whatever the ACLs say. Only the configuration names them. So a principal
        that may change ACLs cannot lock out the operators of the server."""
        self._index = AclIndex()
        self._version = 0
        self.acl_count = 0
        """Number of ACLs in force."""
        self._allowed: set[tuple[str, str, Permission, ResourceType, str]] = set()
        self.on_denied: Callable[[CallContext, Permission, ResourceType, str], None] = lambda *_refusal: None
        """Called for every refusal that the caller gets to see."""
        self.on_renewed: Callable[[], None] = lambda: None
        """Called when the ACLs in force have changed."""
        runtime.on_durable_change(lambda _keys: self.renew(), of=CATALOG_KEY)

    def renew(self) -> None:
        """Take over the durable ACLs for all further decisions."""
        version = self._acls.durable_version()
        if version != self._version:
            acls = self._acls.durable()
            self._index, self.acl_count = AclIndex(acls), len(acls)
            self._allowed.clear()
            self._version = version
            self.on_renewed()

    def is_allowed(self, context: CallContext, permission: Permission, resource: ResourceType, name: str) -> bool:
        key = (context.principal, context.host, permission, resource, name)
        return key in self._allowed or self._decide(key, context.method)

    def _decide(self, key: tuple[str, str, Permission, ResourceType, str], method: str) -> bool:
        _principal, _host, permission, resource, _name = key
        assert (permission, resource) in QUESTIONS[Method(method)], f"{method} asks what its row does not have"
        is_allowed, _rule = self.explain(AclQuestion(*key))
        if is_allowed:
            if len(self._allowed) >= REMEMBERED_MAX:
                self._allowed.clear()
            self._allowed.add(key)
        return is_allowed

    def explain(self, question: AclQuestion) -> tuple[bool, Acl | None]:
        """Return the decision and the ACL behind it. The ACL is None for superusers, and if no ACL allows the
        operation."""
        if question.principal in self.super_users:
            return True, None
        rule = self._index.deciding(question)
        return rule is not None and rule.permission_type is PermissionType.ALLOW, rule

    def on_refused(self, context: CallContext, permission: Permission, resource: ResourceType, name: str) -> None:
        self.on_denied(context, permission, resource, name)
