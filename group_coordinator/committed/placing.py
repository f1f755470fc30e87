"""Partitions that a request about offsets names, looked up in the live catalog."""

from __future__ import annotations

from collections.abc import Iterable

from coordinator_protocol.errors import Refused
from coordinator_runtime.authorization import require
from coordinator_runtime.ports import (
    Authorizer,
    CallContext,
    PartitionName,
    Permission,
    ResourceType,
    TopicCatalog,
)
from group_coordinator.committed.requests import Placed


class Placing:
    """Finds partitions for callers who may use them."""

    def __init__(self, catalog: TopicCatalog, authorizer: Authorizer) -> None:
        self._catalog = catalog
        self._authorizer = authorizer

    def place(self, names: Iterable[PartitionName], permission: Permission, context: CallContext) -> tuple[Placed, ...]:
        """One per name, in order: the partition, or why the caller cannot use it."""
        return tuple(self._place_one(name, permission, context) for name in names)

    def _place_one(self, name: PartitionName, permission: Permission, context: CallContext) -> Placed:
        # Asked by name first, so that who may not see a topic does not learn whether it exists.
        try:
            if name.topic:
                require(self._authorizer, context, permission, ResourceType.TOPIC, name.topic)
            ref = self._catalog.resolve(*name)
            if not name.topic:
                require(self._authorizer, context, permission, ResourceType.TOPIC, ref.topic)
        except Refused as refusal:
            return refusal
        return ref
