"""GroupService, by its parts."""

from __future__ import annotations

from coordinator_server.wire.groups.administration.servicer import AdministrationServicer
from coordinator_server.wire.groups.classic.servicer import ClassicServicer
from coordinator_server.wire.groups.committed.servicer import OffsetServicer
from coordinator_server.wire.groups.consumer.servicer import ConsumerServicer
from group_coordinator.parts import GroupSurroundings, group_services


def group_servicers(around: GroupSurroundings) -> list[object]:
    """One object per part; together they have one function per method of GroupService."""
    services, authorizer = group_services(around), around.authorizer
    return [
        ClassicServicer(services.classic, authorizer),
        ConsumerServicer(services.consumer, around.topics, authorizer, around.config.consumer_assignors[0]),
        OffsetServicer(services.offsets),
        AdministrationServicer(services.administration, authorizer),
    ]
