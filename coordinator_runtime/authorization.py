"""Authorization: asks the authorizer, and refuses with the code that belongs to the resource (spec transactions 0)."""

from __future__ import annotations

from typing import Final

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.ports import Authorizer, CallContext, Permission, ResourceType

_CODES: Final = {
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
}


def require(
    authorizer: Authorizer, context: CallContext, permission: Permission, resource: ResourceType, name: str
) -> None:
    """Return only if the caller may do it. Raises Refused with the resource's authorization code."""
    if not authorizer.is_allowed(context, permission, resource, name):
        raise denial(context, permission, resource, name)


def denial(context: CallContext, permission: Permission, resource: ResourceType, name: str) -> Refused:
    """The refusal for a caller who may not do it."""
    return Refused(
        _CODES[resource],
        f"{context.principal} may not {permission.value} {resource.value} {name!a}; ask for that permission",
    )


class AllowAll:
    """Allows everybody everything: the authorizer until one is configured."""

    def is_allowed(self, context: CallContext, permission: Permission, resource: ResourceType, name: str) -> bool:
        return True


ALLOW_ALL: Final = AllowAll()
