"""Callers that were refused something that they may not do: counted all, and written into the log as far as that does
not fill it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import structlog

from coordinator_protocol.acls import PERMISSIONS_OF, Permission, ResourceType
from coordinator_runtime.clock import Clock
from coordinator_runtime.ports import CallContext

PAUSE_MS: Final = 10_000
"""Shortest time between two lines about the same principal, operation and type of resource."""

REMEMBERED_MAX: Final = 1_000
"""Principals, operations and types about which a line was written lately; nothing is written about further ones."""

_Kind = tuple[str, Permission, ResourceType]

_log = structlog.get_logger("access")


class Refusals:
    """Called with every refusal that a caller gets to see."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._counts = {(each, kind): 0 for kind in ResourceType for each in PERMISSIONS_OF[kind]}
        self._told: dict[_Kind, tuple[int, int]] = {}
        """When the last line was written, in monotonic milliseconds, and the refusals since then."""

    def counts(self) -> Mapping[tuple[str, ...], float]:
        """Return the number of refusals by operation and type of resource."""
        return {(each.value, kind.value): count for (each, kind), count in self._counts.items()}

    def __call__(self, context: CallContext, permission: Permission, resource: ResourceType, name: str) -> None:
        self._counts[permission, resource] += 1
        key = (context.principal, permission, resource)
        now_ms = self._clock.monotonic_ms()
        last_ms, untold = self._told.get(key, (now_ms - PAUSE_MS, 0))
        if now_ms - last_ms < PAUSE_MS:
            self._told[key] = last_ms, untold + 1
            return
        if key not in self._told and len(self._told) >= REMEMBERED_MAX:
            self._told = {each: told for each, told in self._told.items() if now_ms - told[0] < PAUSE_MS}
            if len(self._told) >= REMEMBERED_MAX:
                return
        self._told[key] = now_ms, 0
        _log.warning(
            "refused",
            principal=context.principal,
            host=context.host,
            client_id=context.client_id,
            method=context.method,
            operation=permission.value,
            resource_type=resource.value,
            resource_name=f"{name:.200}",
            unwritten=untold,
        )
