"""Operations that a caller is permitted on a resource, as bit fields (KIP-430).

Source: Kafka's `AclEntry.supportedOperations`, `Utils.to32BitField`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from coordinator_core.acl_index import AclQuestion
from coordinator_core.acls import AclService
from coordinator_protocol.acls import CLUSTER_NAME, PERMISSIONS_OF, Permission, ResourceType
from coordinator_runtime.ports import CallContext

NOT_ASKED: Final = -(2**31)
"""Value of a bit field that the client did not ask for."""
OPERATION_NUMBERS: Final[Mapping[Permission, int]] = MappingProxyType(
    {
        Permission.ALL: 2,
        Permission.READ: 3,
        Permission.WRITE: 4,
        Permission.CREATE: 5,
        Permission.DELETE: 6,
        Permission.ALTER: 7,
        Permission.DESCRIBE: 8,
        Permission.CLUSTER_ACTION: 9,
        Permission.DESCRIBE_CONFIGS: 10,
        Permission.ALTER_CONFIGS: 11,
        Permission.IDEMPOTENT_WRITE: 12,
        Permission.TWO_PHASE_COMMIT: 15,
    }
)
"""Kafka's numbers of operations. It has none for backup, decide and snapshot, so its clients do not see those."""


class AccessBits:
    """Answers what a caller may do, by the ACLs."""

    def __init__(self, acls: AclService) -> None:
        self._acls = acls

    def may(self, context: CallContext, permission: Permission, resource_type: ResourceType, name: str) -> bool:
        """Return True if the caller has the permission."""
        question = AclQuestion(context.principal, context.host, permission, resource_type, name)
        answer = self._acls.check(question, context)
        return answer.is_allowed or not answer.is_enforced

    def of(self, context: CallContext, resource_type: ResourceType, name: str) -> int:
        """Return the permitted operations on a resource that exists."""
        permitted = (
            permission
            for permission in PERMISSIONS_OF[resource_type]
            if permission in OPERATION_NUMBERS and self.may(context, permission, resource_type, name)
        )
        return sum(1 << OPERATION_NUMBERS[permission] for permission in permitted)

    def of_cluster(self, context: CallContext) -> int:
        """Return the permitted operations on the cluster; 0 for a caller that may not describe it."""
        if not self.may(context, Permission.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
            return 0
        return self.of(context, ResourceType.CLUSTER, CLUSTER_NAME)
