"""Connections of Kafka's protocol that stay open after their first request. The figure is the server's resident memory
for one (bytes)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from bench.load.kafka_frames import KafkaLine, api_versions_request
from bench.processes import resident_mib
from bench.results import LoadFailed, Run
from coordinator_protocol.limits import MEBI

_WARM_UP_CONNECTIONS: Final = 10
"""Connections before the measured ones. The first ones load code, and leave memory that later ones take."""
_SETTLED_S: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Settings of the load."""

    bootstrap: str
    server_process_id: int
    connections: int


def measure(load: Load) -> Run:
    """Open the connections. Raises: LoadFailed."""
    return asyncio.run(_measure(load))


async def _measure(load: Load) -> Run:
    for line in await _opened(load, _WARM_UP_CONNECTIONS):
        line.close()
    await asyncio.sleep(_SETTLED_S)
    before = resident_mib(load.server_process_id)
    lines = await _opened(load, load.connections)
    await asyncio.sleep(_SETTLED_S)
    after = resident_mib(load.server_process_id)
    if before is None or after is None:
        raise LoadFailed("the server's memory is not known")
    return Run(figure=(after - before) * MEBI / len(lines), operations=len(lines), server_mib=after)


async def _opened(load: Load, connections: int) -> list[KafkaLine]:
    request = api_versions_request()
    lines = []
    for _ in range(connections):
        line = await KafkaLine.open(load.bootstrap)
        await line.ask(request)
        lines.append(line)
    return lines
