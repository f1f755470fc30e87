"""GroupService, by its parts."""

from __future__ import annotations

from coordinator_core.assembly import Core
from coordinator_server.wire.groups.administration import AdministrationServicer
from coordinator_server.wire.groups.classic import ClassicServicer
from coordinator_server.wire.groups.committed import OffsetServicer
from coordinator_server.wire.groups.consumer import ConsumerServicer


def group_servicers(core: Core) -> list[object]:
    """One object per part; together they have one function per method of GroupService."""
    groups = core.groups
    return [
        ClassicServicer(groups.classic),
        ConsumerServicer(groups.consumer),
        OffsetServicer(groups.offsets),
        AdministrationServicer(groups.administration),
    ]
