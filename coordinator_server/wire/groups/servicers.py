"""GroupService, by its parts."""

from __future__ import annotations

from coordinator_core.assembly import Core
from coordinator_server.wire.groups.administration.servicer import AdministrationServicer
from coordinator_server.wire.groups.classic.servicer import ClassicServicer
from coordinator_server.wire.groups.committed.servicer import OffsetServicer
from coordinator_server.wire.groups.consumer.servicer import ConsumerServicer


def group_servicers(core: Core) -> list[object]:
    """One object per part; together they have one function per method of GroupService."""
    services, authorizer = core.groups, core.authorizer
    return [
        ClassicServicer(services.classic, authorizer),
        ConsumerServicer(services.consumer, core.directory, authorizer, core.config.groups.consumer_assignors[0]),
        OffsetServicer(services.offsets),
        AdministrationServicer(services.administration, authorizer),
    ]
